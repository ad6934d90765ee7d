//! Backups of shards.

use std::time::Duration;

use umbo_types::ShardId;

/// How long the state of a shard is kept for a backup of which no piece is asked for. Meanwhile the file reuses none of
/// its space.
pub const BACKUP_IDLE: Duration = Duration::from_mins(1);

/// The beginning of a backup of a shard, or a piece of it.
///
/// The bytes of a backup are one stream, which the engine defines, of the state that was committed when it was begun. Its
/// pieces are asked for one after the other; the last one may be asked for again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupRequest {
    /// The shard.
    pub shard: ShardId,
    /// Number of the backup, drawn by whoever begins it. A shard has one at a time: the beginning of another ends it, and
    /// that of one that was begun before changes nothing.
    pub backup: u64,
    /// Which piece, from 1 on; 0 begins the backup.
    pub piece: u32,
}
