//! The shard of a partition key, and the node of a shard: partition key → slot → shard → node.
//!
//! Owns the slot function, the shard map, and the map of a cluster with its text. Deliberately does not
//! depend on networks, files or asynchronous code. The invariants: a map covers every slot exactly once; the
//! slot of a key and the shard of a slot never change, so only whole shards move, each with its file.

mod cluster_map;
mod home;
mod placements;
mod shard_map;
mod slot;

pub use cluster_map::{
    ClusterMap, ClusterMapError, ClusterNode, Move, Plan, SHARDS_MAX, ShardPlace, Succession,
    SuccessionError,
};
pub use home::RecordsHome;
pub use placements::{Misplaced, Placements};
pub use shard_map::{ShardMap, ShardMapError, SlotRange};
pub use slot::Slot;
