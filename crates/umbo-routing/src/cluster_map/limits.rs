//! The bounds of a cluster map.

/// Most shards of a cluster: each costs its node a thread and a file.
pub const SHARDS_MAX: u16 = 512;
/// Most nodes of a cluster: each has a shard.
pub(super) const NODES_MAX: usize = SHARDS_MAX as usize;
/// Highest version of a map: the largest integer of TOML.
pub(super) const VERSION_MAX: u64 = i64::MAX as u64;
