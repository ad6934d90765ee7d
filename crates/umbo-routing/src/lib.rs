//! Which shard owns a partition key, and which node has the shard: partition key → slot → shard →
//! node.
//!
//! Owns the slot function, the shard map, and the map of a cluster with its text. Deliberately
//! knows nothing of networks, files or asynchronous code. The invariants: a map covers every slot
//! exactly once; the slot of a key and the shard of a slot never change, so only shards ever move,
//! each with its whole file.

mod cluster_map;
mod shard_map;
mod slot;

pub use cluster_map::{
    ClusterMap, ClusterMapError, ClusterNode, Move, Plan, ShardPlace, Succession, SuccessionError,
};
pub use shard_map::{ShardMap, ShardMapError, SlotRange};
pub use slot::{SLOTS, Slot};
