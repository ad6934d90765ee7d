//! The result of opening a data folder, for operators; and how results name a shard.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serializer;
use umbo_types::{ShardId, Version};

/// How a data folder was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenReport {
    /// Each shard that belongs to the folder, in order.
    pub shards: Vec<ShardOpening>,
    /// Files of shards that the node does not have. They are left alone.
    pub others: Vec<PathBuf>,
    /// Time until the first read could be answered.
    pub took: Duration,
    /// Whether the folder was created.
    pub was_created: bool,
}

/// How a shard was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardOpening {
    /// The shard.
    pub shard: ShardId,
    /// File of the shard.
    pub file: PathBuf,
    /// Rows stored, expired ones that await reclaiming included.
    pub rows: u64,
    /// No version given so far is higher; up to a second ahead of the last one given.
    pub version_ceiling: Version,
    /// Time that opening took.
    pub took: Duration,
    /// Whether the previous process that had it open ended without closing it.
    pub was_recovered: bool,
    /// Whether redb had to read the whole file to repair it.
    pub was_repaired: bool,
    /// Why the shard does not serve, or `None` if it does.
    pub unavailable: Option<String>,
}

/// Serializes a shard as its number.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde asks for"
)]
pub(crate) fn serialize_shard<S: Serializer>(
    shard: &ShardId,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(shard.0)
}
