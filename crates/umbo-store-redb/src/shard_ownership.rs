//! The ownership of a shard's file: the records that distinguish the newest file of a shard from the copies
//! that stayed behind.
//!
//! Every cluster node that opens a shard writes its name and the shard's count of moves into the file. A node that
//! gives a shard away closes the file and stamps it with the next owner and that owner's count of moves; only then may
//! the file be copied. The invariant: of all files of a shard only one opens under any map. An unstamped file opens at
//! the node that had it last, a stamped file at the node that the stamp names, each with exactly the count of moves in
//! the map. So the copy that stays behind opens nowhere, and a copy that was made before the stamp opens nowhere else.
//! Anything else needs an operator's decision, because acknowledged rows might be missing.

use std::fmt;

use umbo_routing::ShardPlace;
use umbo_types::ShardId;

/// Name of the [`OwnerRecord`] record.
pub(crate) const META_OWNER: &str = "holder";
/// Name of the [`HandOverStamp`] record, which only a file that was given away has.
pub(crate) const META_STAMP: &str = "given";

const FORMAT: u8 = 1;

/// The node that opened a file last, and the shard's count of moves at that time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnerRecord {
    /// Name of the node.
    pub(crate) node: String,
    /// Moves of the shard.
    pub(crate) moves: u32,
}

impl OwnerRecord {
    /// Encodes the record.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let moves = self.moves.to_be_bytes();
        [&[FORMAT], &moves[..], self.node.as_bytes()].concat()
    }

    /// Decodes the record, or returns `None` if the bytes are not valid.
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

/// The record of a file that was given away: it opens only at this node, with this count of moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HandOverStamp {
    /// The next owner.
    pub(crate) owner: OwnerRecord,
    /// Host and port of the owner's node, so that it can be asked whether it has opened the file; empty if
    /// unknown.
    pub(crate) address: String,
    /// Version of the map that gave the shard to the owner.
    pub(crate) map_version: u64,
}

impl HandOverStamp {
    /// Encodes the record.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let owner = self.owner.encode();
        let owner_len = u32::try_from(owner.len()).expect("a name has at most 64 bytes");
        [
            &[FORMAT],
            &self.map_version.to_be_bytes()[..],
            &owner_len.to_be_bytes(),
            &owner,
            self.address.as_bytes(),
        ]
        .concat()
    }

    /// Decodes the record, or returns `None` if the bytes are not valid.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&FORMAT, rest) = bytes.split_first()? else {
            return None;
        };
        let (map_version, rest) = rest.split_first_chunk()?;
        let (owner_len, rest) = rest.split_first_chunk()?;
        let owner_len = usize::try_from(u32::from_be_bytes(*owner_len)).ok()?;
        let (owner, address) = rest.split_at_checked(owner_len)?;
        Some(Self {
            owner: OwnerRecord::decode(owner)?,
            address: String::from_utf8(address.to_vec()).ok()?,
            map_version: u64::from_be_bytes(*map_version),
        })
    }
}

impl fmt::Display for HandOverStamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OwnerRecord { node, moves } = &self.owner;
        write!(
            f,
            "given to node '{node}' as move {moves}, by version {} of the map",
            self.map_version
        )
    }
}

/// The ownership records in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileOwnership {
    /// The node that opened it last.
    pub(crate) last_owner: OwnerRecord,
    /// The stamp, if the file was given away since.
    pub(crate) stamp: Option<HandOverStamp>,
}

/// The records of a shard in the manifest of a node's folder, in addition to the records in the shard's file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Remembered {
    /// Highest count of moves with which the folder has opened the shard.
    pub(crate) claimed: Option<u32>,
    /// Highest count of moves with which the folder has given it to another node.
    pub(crate) given: Option<u32>,
}

/// The ownership of a shard by a node, by the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShardOwnership {
    /// The shard.
    pub(crate) shard: ShardId,
    /// The shard's current and previous node; the current one opens the file.
    pub(crate) place: ShardPlace,
    /// The records of the folder.
    pub(crate) remembered: Remembered,
    /// Whether an operator declares that the file is the right one, even if another node had it. Does not open a file
    /// that was given to another node: that file must be taken back first.
    pub(crate) is_accepted: bool,
}

/// Why a file is not the newest of its shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StaleShardFile {
    ownership: ShardOwnership,
    found: FileOwnership,
}

impl ShardOwnership {
    /// Returns the owner record that this ownership writes.
    pub(crate) fn owner_record(&self) -> OwnerRecord {
        OwnerRecord {
            node: self.place.node.clone(),
            moves: self.place.moves,
        }
    }

    /// Checks that a file is the newest of its shard.
    pub(crate) fn check(&self, found: &FileOwnership) -> Result<(), Box<StaleShardFile>> {
        let Remembered { claimed, given } = self.remembered;
        let moves = Some(self.place.moves);
        let (is_named, is_first_use) = match &found.stamp {
            None => (found.last_owner == self.owner_record(), given <= moves),
            Some(stamp) => (stamp.owner == self.owner_record(), claimed < moves),
        };
        let is_anothers = found.stamp.is_some() && !is_named;
        if is_named && is_first_use || self.is_accepted && !is_anothers {
            return Ok(());
        }
        Err(Box::new(StaleShardFile {
            ownership: self.clone(),
            found: found.clone(),
        }))
    }
}

impl fmt::Display for StaleShardFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ShardOwnership { shard, place, .. } = &self.ownership;
        match &self.found.stamp {
            Some(stamp) if stamp.owner != self.ownership.owner_record() => {
                self.explain_stamp(stamp, f)
            }
            Some(_) => {
                write!(
                    f,
                    "this folder has opened the shard as move {} before, so the file is an older copy: \
                     restore the newer one",
                    place.moves
                )?;
                accept_advice(*shard, f)
            }
            None => {
                self.explain_last_owner(f)?;
                accept_advice(*shard, f)
            }
        }
    }
}

fn accept_advice(shard: ShardId, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(
        f,
        " (or, if this is the right file nevertheless, start once with --accept-shards {shard})"
    )
}

impl StaleShardFile {
    fn explain_stamp(&self, stamp: &HandOverStamp, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ShardOwnership { shard, place, .. } = &self.ownership;
        let (giver, to) = (&self.found.last_owner.node, &stamp.owner);
        if to.moves > place.moves {
            return write!(
                f,
                "node '{giver}' has given this file away ({stamp}), and by the map of this node the shard \
                 has moved {} times: the map is too old; use the newest one (or, if node '{}' has never \
                 opened the file, take it back with 'umbo shard reclaim --shards {shard}', under a newer map)",
                place.moves, to.node
            );
        }
        write!(
            f,
            "node '{giver}' has given this file away ({stamp}), so it opens only there: copy the file of \
             node '{}' (or, if node '{}' has never opened it, take it back with 'umbo shard reclaim \
             --shards {shard}' on node '{giver}')",
            place.from.as_ref().unwrap_or(&place.node),
            to.node
        )
    }

    fn explain_last_owner(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ShardPlace { node, moves, from } = &self.ownership.place;
        let owner = from.as_ref().unwrap_or(node);
        let OwnerRecord {
            node: holder,
            moves: had,
        } = &self.found.last_owner;
        if had > moves {
            write!(
                f,
                "the shard has moved {had} times by its file, last to node '{holder}', and {moves} \
                 times by the map of this node: the map is too old"
            )
        } else if *had == *moves && holder == node {
            write!(
                f,
                "this folder has given the shard away since then, so the file is outdated: remove it, and \
                 use the newest map"
            )
        } else if had + 1 == *moves && holder == owner {
            write!(
                f,
                "node '{holder}' has not given this file away: it was copied before node '{holder}' knew \
                 the map, and newer rows may be in the file there; give node '{holder}' the map while it \
                 runs, or run 'umbo shard release' on its data folder, and copy the file again"
            )
        } else if had == moves {
            write!(
                f,
                "node '{holder}' had it last, and the map counts no move from there to node \
                 '{node}'"
            )
        } else {
            write!(
                f,
                "the file is outdated: node '{holder}' had it when the shard had moved {had} times, and now \
                 it has moved {moves} times; copy the file of node '{owner}'"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ownership(moves: u32, from: Option<&str>) -> ShardOwnership {
        ShardOwnership {
            shard: ShardId(5),
            place: ShardPlace {
                node: "b".to_owned(),
                moves,
                from: from.map(str::to_owned),
            },
            remembered: Remembered::default(),
            is_accepted: false,
        }
    }

    fn owner_record(node: &str, moves: u32) -> OwnerRecord {
        OwnerRecord {
            node: node.to_owned(),
            moves,
        }
    }

    fn held(node: &str, moves: u32) -> FileOwnership {
        FileOwnership {
            last_owner: owner_record(node, moves),
            stamp: None,
        }
    }

    fn given(from: (&str, u32), to: (&str, u32)) -> FileOwnership {
        FileOwnership {
            last_owner: owner_record(from.0, from.1),
            stamp: Some(HandOverStamp {
                owner: owner_record(to.0, to.1),
                address: "10.0.0.2:7411".to_owned(),
                map_version: 7,
            }),
        }
    }

    fn accepted(ownership: &ShardOwnership) -> ShardOwnership {
        ShardOwnership {
            is_accepted: true,
            ..ownership.clone()
        }
    }

    #[test]
    fn a_node_goes_on_with_its_own_file() {
        ownership(0, None).check(&held("b", 0)).unwrap();
        ownership(3, Some("a")).check(&held("b", 3)).unwrap();
    }

    #[test]
    fn a_file_is_taken_over_once_it_was_given_away() {
        let moved = ownership(2, Some("a"));
        moved.check(&given(("a", 1), ("b", 2))).unwrap();
        // Taken back by the node that gave it away, under a map that counts the way there and back.
        moved.check(&given(("b", 0), ("b", 2))).unwrap();
        for (found, reason) in [
            (held("a", 1), "has not given this file away"),
            (held("c", 1), "the file is outdated"),
            (held("b", 0), "copy the file of node 'a'"),
            (held("a", 2), "counts no move"),
            (held("c", 3), "the map is too old"),
            (held("a", u32::MAX), "the map is too old"),
        ] {
            let refused = moved.check(&found).unwrap_err().to_string();
            assert!(refused.contains(reason), "{refused}");
            assert!(refused.contains("--accept-shards 5"), "{refused}");
            accepted(&moved).check(&found).unwrap();
        }
    }

    #[test]
    fn a_file_that_was_given_away_opens_nowhere_else() {
        for (ownership, found, reason) in [
            // The copy that stayed behind, under the old map and under a later one.
            (ownership(0, None), given(("b", 0), ("a", 1)), "too old"),
            (
                ownership(2, Some("a")),
                given(("b", 0), ("a", 1)),
                "copy the file of node 'a'",
            ),
            // A copy that went to the wrong node.
            (
                ownership(1, Some("a")),
                given(("a", 0), ("c", 1)),
                "given to node 'c' as move 1",
            ),
        ] {
            for ownership in [accepted(&ownership), ownership] {
                let refused = ownership.check(&found).unwrap_err().to_string();
                assert!(refused.contains(reason), "{refused}");
                assert!(refused.contains("umbo shard reclaim"), "{refused}");
                assert!(!refused.contains("--accept-shards"), "{refused}");
            }
        }
    }

    #[test]
    fn a_folder_remembers_what_its_files_may_have_forgotten() {
        let with = |moves, from, claimed, given| ShardOwnership {
            remembered: Remembered { claimed, given },
            ..ownership(moves, from)
        };
        // The copy that was taken over replaces the file that continued from it.
        let again = with(1, Some("a"), Some(1), None);
        let refused = again.check(&given(("a", 0), ("b", 1))).unwrap_err();
        assert!(refused.to_string().contains("an older copy"), "{refused}");
        again.check(&held("b", 1)).unwrap();
        with(3, Some("a"), Some(1), Some(2))
            .check(&given(("a", 2), ("b", 3)))
            .unwrap();
        // A backup from before the file was given away.
        let restored = with(0, None, Some(0), Some(1));
        let refused = restored.check(&held("b", 0)).unwrap_err();
        assert!(refused.to_string().contains("given the shard away"));
    }

    proptest! {
        #[test]
        fn records_come_back(
            node in "[a-z0-9.-]{1,64}", moves: u32, address in "[a-z0-9.:]{0,40}", map_version: u64,
        ) {
            let owner = OwnerRecord { node, moves };
            prop_assert_eq!(OwnerRecord::decode(&owner.encode()), Some(owner.clone()));
            let stamp = HandOverStamp { owner, address, map_version };
            prop_assert_eq!(HandOverStamp::decode(&stamp.encode()), Some(stamp));
        }

        #[test]
        fn hostile_records_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
            let _ = OwnerRecord::decode(&bytes);
            let _ = HandOverStamp::decode(&bytes);
        }

        /// Whatever a file says, two different nodes or counts of moves never both open it.
        #[test]
        fn a_file_opens_under_one_tenure(
            holder_at in 0..3_usize, holder_moves in 0..3_u32,
            stamp in prop::option::of((0..3_usize, 0..3_u32)),
        ) {
            let names = ["a", "b", "c"];
            let found = match stamp {
                None => held(names[holder_at], holder_moves),
                Some((node, moves)) => given((names[holder_at], holder_moves), (names[node], moves)),
            };
            let places = names.iter().flat_map(|node| (0..3).map(move |moves| (*node, moves)));
            let opening = places.filter(|&(node, moves)| {
                let mut ownership = ownership(moves, None);
                ownership.place.node = node.to_owned();
                ownership.check(&found).is_ok()
            });
            prop_assert_eq!(opening.count(), 1);
        }
    }
}
