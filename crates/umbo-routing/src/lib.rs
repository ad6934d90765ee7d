//! Which shard owns a partition key: partition key → slot → shard.
//!
//! Owns the slot function and the shard map. Deliberately knows nothing of networks, files or
//! asynchronous code. The invariant: a map covers every slot exactly once, and the slot of a key
//! never changes, so only slots ever move between shards.

mod shard_map;
mod slot;

pub use shard_map::{ShardMap, ShardMapError, SlotRange};
pub use slot::{SLOTS, Slot};
