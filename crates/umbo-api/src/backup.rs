//! Backups: the answer that begins one, and reports of completed ones.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A backup that was begun: its shards are read piece by piece.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"backup": "00c0ffee00c0ffee", "shards": 4, "epoch": 1, "revision": 17, "records": "AQAAAAAAAAAA"}))]
pub struct BackupBegun {
    /// Number of the backup, 16 hexadecimal digits.
    pub backup: String,
    /// Number of shards, counted from 0.
    pub shards: u16,
    /// Epoch of the home of Umbo's own records.
    pub epoch: u64,
    /// Revision of the records. It did not change while the states of the shards were taken.
    pub revision: u64,
    /// The records at this revision, in Base64. They hold secrets and the hashes of tokens.
    pub records: String,
}

/// A backup whose files are all written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"location": "s3://bucket/umbo/monday", "rows": 1_200_000, "bytes": 512_000_000, "seconds": 95}))]
pub struct BackupEnd {
    /// Its location, as given to the command that made it: 1 to 1,024 bytes without control characters.
    pub location: String,
    /// Rows of all shards.
    pub rows: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Seconds from its begin to its end.
    pub seconds: u64,
}

/// A backup that a caller has reported as complete.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CompletedBackup {
    /// Number of the backup.
    pub backup: String,
    /// When it was complete, in milliseconds since the Unix epoch, by the clock of the home of Umbo's own records.
    pub ended_ms: u64,
    /// The caller that reported it.
    pub by: String,
    /// Its location, as reported.
    pub location: String,
    /// Rows of all shards.
    pub rows: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Seconds from its begin to its end.
    pub seconds: u64,
}

/// The last completed backups.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"backups": [{"backup": "00c0ffee00c0ffee", "ended_ms": 1_764_288_000_000_u64, "by": "operator",
    "location": "s3://bucket/umbo/monday", "rows": 1_200_000, "bytes": 512_000_000, "seconds": 95}]}))]
pub struct BackupList {
    /// At most eight, newest first.
    pub backups: Vec<CompletedBackup>,
}
