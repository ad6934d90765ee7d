//! Why something is not the map of a cluster. Every message names the shard, node or line.

use umbo_types::ShardId;

use super::ClusterMap;
use crate::shard_map::ShardMapError;

/// How many edits a misspelt name may be away from the one that is suggested for it.
const EDITS_MAX: usize = 2;
const NODES_MAX: usize = ClusterMap::NODES_MAX;
const SHARDS_MAX: u16 = ClusterMap::SHARDS_MAX;

/// Says why something is not the map of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterMapError {
    /// The text has more bytes than any map.
    #[error("a cluster map has at most {max} bytes, this one has {len}")]
    TooLong {
        /// Its length, in bytes.
        len: usize,
        /// The most it may be.
        max: usize,
    },
    /// The text is not TOML, or something is missing or of the wrong type.
    #[error("line {line}: {message}")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// What is wrong there.
        message: String,
    },
    /// There is no such key.
    #[error("line {line}: there is no '{key}' in a cluster map{}", suggestion(nearest.as_deref()))]
    UnknownKey {
        /// Line, from 1.
        line: usize,
        /// As written.
        key: String,
        /// What was probably meant.
        nearest: Option<String>,
    },
    /// A cluster or node cannot have this name.
    #[error(
        "{what} is named by 1 to 64 characters of [a-z0-9._-], the first a letter or digit; '{name}' is not"
    )]
    BadName {
        /// What it should be the name of.
        what: &'static str,
        /// As written.
        name: String,
    },
    /// A version that no map has.
    #[error("a version is a whole number from 1, not {0}")]
    BadVersion(u64),
    /// No or too many nodes.
    #[error("a cluster has 1 to {NODES_MAX} nodes, not {0}")]
    NodeCount(usize),
    /// A name that two nodes have.
    #[error("node '{0}' stands twice")]
    DuplicateNode(String),
    /// A node that nobody could find.
    #[error("node '{0}' has no address; it is written like shard-a:7411")]
    NoAddress(String),
    /// A node that nobody could find there.
    #[error("node '{node}': '{address}' is no address like shard-a:7411: {reason}")]
    BadAddress {
        /// Name of the node.
        node: String,
        /// As written.
        address: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Two nodes in one place.
    #[error("nodes '{one}' and '{other}' have one address, {address}")]
    OneAddress {
        /// One node.
        one: String,
        /// The other one.
        other: String,
        /// Their address.
        address: String,
    },
    /// No or too many shards.
    #[error("a cluster has 1 to {SHARDS_MAX} shards, not {0}")]
    ShardCount(usize),
    /// A node that nothing is left for.
    #[error("{shards} shards are too few for {nodes} nodes: each has at least one")]
    FewShards {
        /// How many shards there are.
        shards: usize,
        /// How many nodes there should be.
        nodes: usize,
    },
    /// A number that two shards have.
    #[error("shard {0} stands twice")]
    DuplicateShard(ShardId),
    /// A number that no shard has, though a higher one is there.
    #[error("shard {0} is missing: shards are numbered from 0, without a gap")]
    MissingShard(ShardId),
    /// A text that is no slots.
    #[error("shard {shard}: '{slots}' is no range of slots like 0-341, within 0-4095")]
    BadSlots {
        /// The shard.
        shard: ShardId,
        /// As written.
        slots: String,
    },
    /// A shard that no key belongs to.
    #[error("shard {0} has no slots")]
    NoSlots(ShardId),
    /// The slots have a gap or two owners.
    #[error(transparent)]
    Slots(#[from] ShardMapError),
    /// A shard on a node that does not exist.
    #[error(
        "shard {shard} is on node '{node}', which is not in [nodes]{}",
        suggestion(nearest.as_deref())
    )]
    UnknownNode {
        /// The shard.
        shard: ShardId,
        /// As written.
        node: String,
        /// What was probably meant.
        nearest: Option<String>,
    },
    /// A count of moves that does not go with where the shard came from.
    #[error(
        "shard {shard}: moves = {moves} and 'from' do not go together: a shard that has moved says from which other node, one that has not (moves = 0) does not"
    )]
    BadHistory {
        /// The shard.
        shard: ShardId,
        /// Its moves.
        moves: u32,
    },
    /// There is no higher version.
    #[error("the highest version there is has been reached")]
    LastVersion,
}

/// Returns the name that looks most like a misspelt one, none where none does.
pub(super) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = known
        .iter()
        .map(|&known| (strsim::damerau_levenshtein(known, name), known));
    let (distance, nearest) = near.min_by_key(|(distance, _)| *distance)?;
    // Of a short name too much would have to change for it to look alike.
    (distance <= EDITS_MAX.min(nearest.len() / 2)).then_some(nearest)
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean '{name}'?"))
}
