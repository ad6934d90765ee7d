//! Backups of shards.

use std::time::Duration;

use umbo_types::ShardId;

/// How long the state of a shard is kept for a backup of which no piece is asked for. Meanwhile the file reuses none of
/// its space.
pub const BACKUP_IDLE: Duration = Duration::from_mins(1);

/// A piece of a backup of a shard.
///
/// The bytes of a backup are one stream, which the engine defines, of the state that was committed when its first piece
/// was asked for. Its pieces are asked for one after the other; the last one may be asked for again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupRequest {
    /// The shard.
    pub shard: ShardId,
    /// Number of the backup, which its maker draws. A shard has one at a time: the first piece of another ends it.
    pub backup: u64,
    /// Which piece, from 0 on.
    pub piece: u32,
}
