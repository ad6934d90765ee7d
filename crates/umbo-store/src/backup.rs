//! Backups of shards.

use std::time::Duration;

use umbo_types::ShardId;

/// Idle time after which a shard drops the state that it keeps for a backup. While the shard keeps the state, the file
/// reuses no space.
pub const BACKUP_IDLE: Duration = Duration::from_mins(1);

/// The beginning of a backup of a shard, or a piece of it.
///
/// The bytes of a backup are one stream in a format that the engine defines. They hold the state that was committed
/// when the backup began. Pieces are requested one after the other; the last one may be requested again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupRequest {
    /// The shard.
    pub shard: ShardId,
    /// Number of the backup; its initiator draws it. A shard has one backup at a time: to begin another one ends it. To
    /// begin an earlier one again changes nothing.
    pub backup: u64,
    /// Number of the piece, from 1 on; 0 begins the backup.
    pub piece: u32,
}
