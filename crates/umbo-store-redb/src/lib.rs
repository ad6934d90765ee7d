//! The store contract on redb: shards, group commit, recovery and reclaiming.
//!
//! A data folder holds a manifest, a lock and one redb file a shard. Reads go to the last
//! committed snapshot on the caller's thread ; writes are queued to the one
//! committer thread of their shard , which commits together what has gathered
//! while the commit before was on its way to the disk.
//!
//! Start with [`RedbStore`]. Knows nothing of HTTP. The invariant of the crate: what was
//! acknowledged is never lost, and a shard that fails takes no other down.

mod committer;
mod config;
mod error;
mod failure;
#[cfg(test)]
mod fault_tests;
mod folder_lock;
mod follow;
mod key_codec;
mod manifest;
mod member_folder;
mod open;
mod opened_shard;
mod queue;
mod report;
mod row_codec;
mod running;
mod shard;
mod shard_file;
mod snapshot;
mod split;
mod store;
mod tables;
mod tenure;
mod verify;
mod work;

pub use config::{ClusterMember, Config};
pub use error::OpenError;
pub use manifest::shard_file_name;
pub use report::{OpenReport, ShardReport};
pub use store::RedbStore;
pub use verify::{FileCheck, FileState, FolderCheck, verify_folder};
