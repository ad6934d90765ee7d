//! The store contract on redb: shards, group commit, recovery and reclaiming.
//!
//! A data folder holds a manifest, a lock, a copy of Umbo's own records and one redb file per shard. Reads use the last
//! committed snapshot on the caller's thread. Writes are queued for the one committer thread of their shard. It commits
//! the work together that has gathered during the previous commit.
//!
//! Start with [`RedbStore`]. Does not depend on HTTP. The invariant of the crate: a write that was acknowledged as
//! durable is never lost, and a failing shard does not affect the others.

mod backup;
mod bad_read;
mod chunk_codec;
mod claim;
mod committer;
mod config;
mod dataset_groups;
mod disk;
mod disk_space;
mod error;
#[cfg(test)]
mod fault_tests;
mod fences;
mod fencing_tokens;
mod file_error;
mod folder_check;
mod folder_lock;
mod follow;
mod hand_over;
mod kept_records;
mod key_codec;
mod log_recovery;
mod manifest;
mod member_folder;
mod memtable;
mod open;
mod opened_shard;
mod opener;
mod page_cache;
mod plain_files;
mod queue;
mod records;
mod repair;
mod replaced_file;
mod report;
mod reserve;
mod reserved_file;
mod restore;
mod retry;
mod row_cache;
mod row_codec;
mod runner;
mod running;
mod running_committer;
mod shard;
mod shard_file;
mod shard_ownership;
mod sizes;
mod snapshot;
mod store;
mod stored_rows;
mod stranded;
mod tables;
mod verify;
mod walk;
mod watched_file;
mod work;
mod write_log;
mod written;
mod written_pages;

pub use config::{ClusterMember, Config};
pub use error::OpenError;
pub use hand_over::{
    GivenShard, HandOver, HandOverOutcome, given_shards, note_map_version, reclaim_shard,
    release_shards,
};
pub use manifest::shard_file_name;
#[cfg(feature = "simulation")]
pub use opener::{Opener, ReadAtOnce};
pub use repair::{ShardRepair, count_misplaced, repair_shards};
pub use report::{OpenReport, ShardOpening};
pub use restore::{BackupCheck, Restore, RestoreError, RestoredRows};
#[cfg(feature = "simulation")]
pub use runner::Runner;
pub use store::RedbStore;
pub use verify::{FileCheck, FileState, FolderCheck, verify_folder};
