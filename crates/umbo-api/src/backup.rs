//! Backups: the answer that begins one.

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
