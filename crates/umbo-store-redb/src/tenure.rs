//! Who had a shard's file last: the record that tells a file that stayed behind from the one that
//! went on.
//!
//! Every node of a cluster that opens a shard writes its name and the shard's count of moves into
//! the file, and marks it as in use until it is closed. The invariant: a file that another node
//! had is taken over only where the map counts exactly that move, and only where that node had
//! closed it; anything else needs an operator's word, because acknowledged rows might be missing.

use std::fmt;

use umbo_routing::ShardPlace;
use umbo_types::ShardId;

/// Name of the [`Holder`] record.
pub(crate) const META_HOLDER: &str = "holder";

const FORMAT: u8 = 1;

/// The node that opened a file last, and how often the shard had moved by then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Name of the node.
    pub(crate) node: String,
    /// Moves of the shard.
    pub(crate) moves: u32,
}

impl Holder {
    /// Encodes the record.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let moves = self.moves.to_be_bytes();
        [&[FORMAT], &moves[..], self.node.as_bytes()].concat()
    }

    /// Decodes the record; none where it is not one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&FORMAT, rest) = bytes.split_first()? else {
            return None;
        };
        let (moves, node) = rest.split_first_chunk()?;
        Some(Self {
            node: String::from_utf8(node.to_vec()).ok()?,
            moves: u32::from_be_bytes(*moves),
        })
    }
}

/// The time during which a node has a shard, as the map counts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tenure {
    /// The shard.
    pub(crate) shard: ShardId,
    /// Where it is and was; its node is the one that opens it.
    pub(crate) place: ShardPlace,
    /// Whether an operator says that the file is the right one, whoever had it.
    pub(crate) is_accepted: bool,
}

/// Says why a file is not the one to go on with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotTheLast {
    tenure: Tenure,
    found: Holder,
    was_closed: bool,
}

impl Tenure {
    /// Returns the record of this tenure.
    pub(crate) fn holder(&self) -> Holder {
        Holder {
            node: self.place.node.clone(),
            moves: self.place.moves,
        }
    }

    /// Checks that a file, last held by `found` and then closed or not, is the one to go on with.
    pub(crate) fn check(&self, found: &Holder, was_closed: bool) -> Result<(), NotTheLast> {
        let is_own = *found == self.holder();
        let is_handed_over = found.moves.checked_add(1) == Some(self.place.moves)
            && Some(&found.node) == self.place.from.as_ref()
            && was_closed;
        if is_own || is_handed_over || self.is_accepted {
            return Ok(());
        }
        Err(NotTheLast {
            tenure: self.clone(),
            found: found.clone(),
            was_closed,
        })
    }
}

impl fmt::Display for NotTheLast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tenure:
                Tenure {
                    shard,
                    place: ShardPlace { node, moves, from },
                    ..
                },
            found,
            was_closed,
        } = self;
        let owner = from.as_ref().unwrap_or(node);
        let (holder, had) = (&found.node, found.moves);
        if had > *moves {
            write!(
                f,
                "the shard has moved {had} times by its file, last to node '{holder}', and {moves} \
                 times by the map of this node: the map is too old"
            )?;
        } else if had + 1 == *moves && holder == owner && !was_closed {
            write!(
                f,
                "node '{holder}' has not closed this file: it was copied while the node ran, or \
                 the node was killed; stop it in order, and copy the file again"
            )?;
        } else if had == *moves {
            write!(
                f,
                "node '{holder}' had it last, and the map counts no move from there to node \
                 '{node}'"
            )?;
        } else {
            write!(
                f,
                "it is a file that stayed behind: node '{holder}' had it when the shard had moved \
                 {had} times, now it has moved {moves} times; copy the file of node '{owner}'"
            )?;
        }
        write!(
            f,
            " (or, if this is the right file nevertheless, start once with --accept-shards {shard})"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tenure(moves: u32, from: Option<&str>) -> Tenure {
        Tenure {
            shard: ShardId(5),
            place: ShardPlace {
                node: "b".to_owned(),
                moves,
                from: from.map(str::to_owned),
            },
            is_accepted: false,
        }
    }

    fn holder(node: &str, moves: u32) -> Holder {
        Holder {
            node: node.to_owned(),
            moves,
        }
    }

    #[test]
    fn a_node_goes_on_with_its_own_file_however_it_was_left() {
        for was_closed in [true, false] {
            assert!(tenure(0, None).check(&holder("b", 0), was_closed).is_ok());
            assert!(
                tenure(3, Some("a"))
                    .check(&holder("b", 3), was_closed)
                    .is_ok()
            );
        }
    }

    #[test]
    fn a_file_is_taken_over_from_the_last_node_once_that_has_closed_it() {
        let moved = tenure(2, Some("a"));
        assert!(moved.check(&holder("a", 1), true).is_ok());
        for (found, was_closed, reason) in [
            (holder("a", 1), false, "has not closed this file"),
            (holder("c", 1), true, "stayed behind"),
            (holder("b", 0), true, "copy the file of node 'a'"),
            (holder("a", 2), true, "counts no move"),
            (holder("c", 3), true, "the map is too old"),
            (holder("a", u32::MAX), true, "the map is too old"),
        ] {
            let refused = moved.check(&found, was_closed).unwrap_err().to_string();
            assert!(refused.contains(reason), "{refused}");
            assert!(refused.contains("--accept-shards 5"), "{refused}");
            let accepted = Tenure {
                is_accepted: true,
                ..moved.clone()
            };
            assert!(accepted.check(&found, was_closed).is_ok());
        }
    }

    proptest! {
        #[test]
        fn records_come_back(node in "[a-z0-9.-]{1,64}", moves: u32) {
            let record = Holder { node, moves };
            prop_assert_eq!(Holder::decode(&record.encode()), Some(record));
        }

        #[test]
        fn hostile_records_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
            let _ = Holder::decode(&bytes);
        }
    }
}
