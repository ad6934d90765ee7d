//! Errors in a cluster map. Every message names the shard, node or line.

use umbo_types::ShardId;

use super::limits::{NODES_MAX, SHARDS_MAX};
use crate::shard_map::ShardMapError;

/// Most edits between a misspelt name and a suggested one.
const EDITS_MAX: usize = 2;

/// Why something is not a valid cluster map.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterMapError {
    /// The text is longer than any map.
    #[error("a cluster map has at most {max} bytes, this one has {len}")]
    TooLong {
        /// Length of the text, in bytes.
        len: usize,
        /// The maximum length, in bytes.
        max: usize,
    },
    /// The text is not TOML, or something is missing or of the wrong type.
    #[error("line {line}: {message}")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// The error.
        message: String,
    },
    /// There is no such key.
    #[error("line {line}: there is no '{key}' in a cluster map{}", suggestion(nearest.as_deref()))]
    UnknownKey {
        /// Line, from 1.
        line: usize,
        /// The key as written.
        key: String,
        /// The key that was probably meant.
        nearest: Option<String>,
    },
    /// Not a valid name of a cluster or node.
    #[error(
        "{what} is named by 1 to 64 characters of [a-z0-9._-], the first a letter or digit; '{name}' is not"
    )]
    BadName {
        /// A cluster or a node.
        what: &'static str,
        /// The name as written.
        name: String,
    },
    /// Not a valid version.
    #[error("a version is a whole number from 1, not {0}")]
    BadVersion(u64),
    /// No or too many nodes.
    #[error("a cluster has 1 to {NODES_MAX} nodes, not {0}")]
    NodeCount(usize),
    /// Two nodes with the same name.
    #[error("node '{0}' is listed twice")]
    DuplicateNode(String),
    /// A node without an address.
    #[error("node '{0}' has no address; it is written like shard-a:7411")]
    NoAddress(String),
    /// A node whose address is invalid.
    #[error("node '{node}': '{address}' is not an address like shard-a:7411: {reason}")]
    BadAddress {
        /// Name of the node.
        node: String,
        /// The address as written.
        address: String,
        /// Why it is invalid.
        reason: &'static str,
    },
    /// Two nodes with the same address.
    #[error("nodes '{one}' and '{other}' have the same address, {address}")]
    OneAddress {
        /// One node.
        one: String,
        /// The other one.
        other: String,
        /// Address of both nodes.
        address: String,
    },
    /// No or too many shards.
    #[error("a cluster has 1 to {SHARDS_MAX} shards, not {0}")]
    ShardCount(usize),
    /// More nodes than shards.
    #[error("{shards} shards are too few for {nodes} nodes: each has at least one")]
    FewShards {
        /// Number of shards.
        shards: usize,
        /// Number of nodes.
        nodes: usize,
    },
    /// Two shards with the same number.
    #[error("shard {0} is listed twice")]
    DuplicateShard(ShardId),
    /// A missing number below the number of another shard.
    #[error("shard {0} is missing: shards are numbered from 0, without a gap")]
    MissingShard(ShardId),
    /// Not a valid range of slots.
    #[error("shard {shard}: '{slots}' is not a range of slots like 0-341, within 0-4095")]
    BadSlots {
        /// The shard.
        shard: ShardId,
        /// The slots as written.
        slots: String,
    },
    /// A shard without slots.
    #[error("shard {0} has no slots")]
    NoSlots(ShardId),
    /// A slot without an owner or with two.
    #[error(transparent)]
    Slots(#[from] ShardMapError),
    /// A shard on a node that is not in the map.
    #[error(
        "shard {shard} is on node '{node}', which is not in [nodes]{}",
        suggestion(nearest.as_deref())
    )]
    UnknownNode {
        /// The shard.
        shard: ShardId,
        /// The node as written.
        node: String,
        /// The node that was probably meant.
        nearest: Option<String>,
    },
    /// A count of moves that contradicts `from`.
    #[error(
        "shard {shard}: moves = {moves} and 'from' contradict each other: a shard that has moved needs its previous node in 'from', a shard that has not (moves = 0) must not have it"
    )]
    BadHistory {
        /// The shard.
        shard: ShardId,
        /// Count of moves of the shard.
        moves: u32,
    },
    /// A home of Umbo's own records in a shard that is not in the map.
    #[error(
        "the home of the records is shard {shard}, but there are {shards} shards, counted from 0"
    )]
    UnknownHome {
        /// The shard as written.
        shard: ShardId,
        /// Number of shards.
        shards: usize,
    },
    /// Not a valid epoch.
    #[error("the epoch of the records' home is a whole number from 1, not {0}")]
    BadEpoch(u64),
    /// There is no higher version.
    #[error("the highest possible version or epoch has been reached")]
    LastVersion,
}

/// Returns the name that is most similar to a misspelt one, or `None` if no name is similar.
pub(super) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = known
        .iter()
        .map(|&known| (strsim::damerau_levenshtein(known, name), known));
    let (distance, nearest) = near.min_by_key(|(distance, _)| *distance)?;
    // A short name must not be changed beyond recognition.
    (distance <= EDITS_MAX.min(nearest.len() / 2)).then_some(nearest)
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean '{name}'?"))
}
