//! How a load is stored: the keys and the content of its rows.
//!
//! *Content*: the bytes of each upload, in segments of [`SEGMENT_LEN`]. Each segment is a partition, so that the shards
//! share them. Within a segment a row holds up to [`PIECE_LEN`] bytes as they were sent. Its sort key holds their
//! offset and their number, so that the stored bytes can be counted without reading them. Rows may overlap after an
//! upload broke off and was continued: they hold the same bytes of the same upload. Sorted runs are stored as uploads
//! of the runner.
//!
//! *Report*: one partition for each kind of row, in the order of the parts; and one row in each shard that is written
//! when the load is created. The version of that row is above all versions that the shard has assigned before. No time
//! of day tells which rows of a shard are older than the load, as versions may be ahead of every clock.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use umbo_api::batch::KeyFields;
use umbo_store::{Change, Condition, Mutation};
use umbo_types::{Key, PartitionKey, ShardId, Value};

use crate::limits::{PIECE_LEN, SEGMENT_LEN};

/// Partitions of the report.
pub const PARTS: &str = "parts";
/// Uploads that were begun, by the number of their part.
pub const UPLOADS: &str = "uploads";
/// Counts of the rows of each part.
pub const PROGRESS: &str = "progress";
/// Rejected rows, by part and line.
pub const REJECTS: &str = "rejects";
/// The run: its progress and its runner.
pub const RUN: &str = "run";

/// Names that are tried for a partition of each shard: all of them miss one slot of 4,096 once in 10^13 maps.
const PARTITION_TRIES: u32 = 1 << 17;

/// A part that is whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRecord {
    /// The upload that has its bytes.
    pub upload: u64,
    /// Bytes as sent.
    pub len: u64,
    /// SHA-256 of the bytes as sent, in hexadecimal.
    pub sha256: String,
    /// Media type.
    pub content_type: String,
    /// Content coding; empty for none.
    pub coding: String,
}

/// An upload that was begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadRecord {
    /// Random number of the upload.
    pub upload: u64,
    /// Media type.
    pub content_type: String,
    /// Content coding; empty for none.
    pub coding: String,
}

/// A run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Random number of the runner; 0 if it has let the load go.
    pub runner: u64,
    /// How often in a row the load was taken over from a runner that had not let it go and had made no progress.
    #[serde(default)]
    pub fruitless: u32,
    /// Grows with each write, so that the row changes. Its value at the take-over is the number of the run. All other
    /// writes of the run carry this number, and shards that have seen a later one refuse them.
    pub beat: u64,
    /// Parts that were checked.
    pub checked: u32,
    /// Rows that were read to be counted, including rejected ones.
    pub rows: u64,
    /// Rows that were rejected.
    pub rejected: u64,
    /// Rows among them whose keys an operator has blocked.
    #[serde(default)]
    pub blocked: u64,
    /// The part that is being applied.
    pub part: u32,
    /// Rows of it that were read so far, including rejected ones.
    pub row: u64,
    /// Rows of it so far that cannot be read, or whose quotas are too low. If the parts of the load are checked first,
    /// this leaves out unreadable rows: they were counted before.
    #[serde(default)]
    pub unreadable: u64,
    /// Rows that were stored or removed.
    pub applied: u64,
    /// Rows that were left out.
    pub skipped: u64,
    /// Rows that were applied, by shard.
    #[serde(default)]
    pub shards: BTreeMap<u16, u64>,
    /// Runs of sorted rows that are stored and not applied, in the order of their rows: all of them come before the
    /// part that is being applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<SortedRun>,
    /// Charged bytes that parts have inflated to, for parts that are not checked.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inflated: BTreeMap<u16, u64>,
    /// Long values that are stored, completely or partly, before their rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<ValueUpload>,
    /// The key of the last row that came in order. The next rows are in order unless they are before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<KeyFields>,
    /// Whether the next rows are not in the order of their keys. Then they are sorted with all rows that follow, once
    /// the load is sealed.
    #[serde(default)]
    pub unordered: bool,
    /// Number of parts that the run had begun to apply when it last found that the load was not sealed.
    #[serde(default)]
    pub begun: u32,
    /// The reason why it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
}

/// Progress of a load: parts checked, the part being applied, its rows, applied bytes of the sorted runs, the number of
/// these runs, and chunks of long values.
pub type RunPosition = (u32, u32, u64, u64, usize, u64);

impl RunRecord {
    /// Returns the progress of the load.
    pub fn place(&self) -> RunPosition {
        let applied = self.runs.iter().map(|run| run.applied).sum();
        let chunks = self
            .values
            .iter()
            .map(|value| u64::from(value.chunks))
            .sum();
        let runs = self.runs.len();
        (self.checked, self.part, self.row, applied, runs, chunks)
    }

    /// Returns whether the next rows are sorted before they are applied.
    pub const fn is_sorting(&self) -> bool {
        self.unordered || !self.runs.is_empty()
    }
}

/// Rows that are stored in the order of their keys, before they are applied. Their bytes are stored as an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SortedRun {
    /// Number of the upload.
    pub upload: u64,
    /// Bytes.
    pub len: u64,
    /// Bytes whose rows are applied; they may be removed already.
    pub applied: u64,
}

/// The bytes of a long value that are stored before its row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueUpload {
    /// The shard that has them.
    pub shard: u16,
    /// SHA-256 of the whole value, in hexadecimal.
    pub sha256: String,
    /// Id of the upload.
    pub upload: u128,
    /// Chunks that are stored, from the first on.
    pub chunks: u32,
    /// How often the shard has given up an upload of the value.
    pub given_up: u32,
}

/// Counts of the rows of a part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartProgress {
    /// Rows that it holds, including rejected ones.
    pub rows: u64,
    /// Rows of it that were rejected.
    pub rejected: u64,
}

fn partition(text: String) -> PartitionKey {
    PartitionKey::new(text).expect("it is short and not empty")
}

/// Returns a partition of the report.
pub fn report_partition(name: &str) -> PartitionKey {
    partition(name.to_owned())
}

/// Returns the key of a row of the report that is about a part.
pub fn part_key(name: &str, part: u16) -> Key {
    report_key(name, part.to_be_bytes().to_vec())
}

/// Returns the key of a rejected row.
pub fn reject_key(part: u16, line: u64) -> Key {
    report_key(
        REJECTS,
        [&part.to_be_bytes()[..], &line.to_be_bytes()].concat(),
    )
}

/// Reads part and line from the sort key of a rejected row.
pub fn reject_of(sort: &[u8]) -> Option<(u16, u64)> {
    let (part, line) = sort.split_first_chunk()?;
    Some((
        u16::from_be_bytes(*part),
        u64::from_be_bytes(line.try_into().ok()?),
    ))
}

/// Returns the key of the run.
pub fn run_key() -> Key {
    report_key(RUN, Vec::new())
}

fn report_key(name: &str, sort: Vec<u8>) -> Key {
    Key::new(name.to_owned(), sort).expect("it is short and not empty")
}

/// Returns the key of the row of the report that is written in each of these shards when the load is created.
pub fn creation_keys(
    shards: &[ShardId],
    shard_of: impl Fn(&PartitionKey) -> ShardId,
) -> BTreeMap<ShardId, Key> {
    let mut keys = BTreeMap::new();
    for name in 0..PARTITION_TRIES {
        if keys.len() == shards.len() {
            break;
        }
        let key = report_key(&format!("created-{name}"), Vec::new());
        let shard = shard_of(&key.partition);
        if shards.contains(&shard) {
            keys.entry(shard).or_insert(key);
        }
    }
    keys
}

/// Returns the change that writes the row of a key of [`creation_keys`]; only once.
pub fn creation_row(key: Key) -> Mutation {
    Mutation {
        key,
        change: Change::Put {
            value: Value::default(),
            expires_at: None,
        },
        condition: Condition::Absent,
    }
}

/// Reads the number of the part from a sort key.
pub fn part_of(sort: &[u8]) -> Option<u16> {
    sort.first_chunk().map(|part| u16::from_be_bytes(*part))
}

/// Returns the partition of the bytes from an offset on.
pub fn segment(upload: u64, offset: u64) -> PartitionKey {
    partition(format!("{upload:016x}/{:05}", offset / SEGMENT_LEN))
}

/// Returns the key of the row that has `len` bytes from `offset` on.
pub fn piece_key(upload: u64, offset: u64, len: u64) -> Key {
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    let sort = [&offset.to_be_bytes()[..], &len.to_be_bytes()].concat();
    let partition = format!("{upload:016x}/{:05}", offset / SEGMENT_LEN);
    Key::new(partition, sort).expect("it is short and not empty")
}

/// Returns the change that stores the bytes from `offset` on as one row, of as many bytes as [`piece_end`] allows.
pub fn piece(upload: u64, offset: u64, bytes: Bytes) -> Mutation {
    Mutation {
        key: piece_key(upload, offset, bytes.len() as u64),
        change: Change::Put {
            value: Value {
                bytes,
                ..Value::default()
            },
            expires_at: None,
        },
        condition: Condition::Always,
    }
}

/// Returns the least sort key of a piece that begins at `offset` or later.
pub fn piece_from(offset: u64) -> Bytes {
    Bytes::copy_from_slice(&offset.to_be_bytes())
}

/// Reads the offsets of the beginning and the end of a piece from its sort key.
pub fn piece_bounds(sort: &[u8]) -> Option<(u64, u64)> {
    let (offset, len) = sort.split_first_chunk::<8>()?;
    let offset = u64::from_be_bytes(*offset);
    let len = u32::from_be_bytes(len.try_into().ok()?);
    Some((offset, offset.checked_add(len.into())?))
}

/// Returns the end of the piece that begins at `offset`: pieces never go beyond a multiple of their length, and so
/// never into another segment.
pub const fn piece_end(offset: u64) -> u64 {
    (offset / PIECE_LEN + 1) * PIECE_LEN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_stay_in_their_segment_and_say_where_they_are() {
        for offset in [
            0,
            1,
            PIECE_LEN - 1,
            PIECE_LEN,
            SEGMENT_LEN - 1,
            SEGMENT_LEN,
            200 << 20,
        ] {
            let end = piece_end(offset);
            assert!(end > offset && end - offset <= PIECE_LEN);
            let key = piece_key(7, offset, end - offset);
            assert_eq!(piece_bounds(key.sort.as_bytes()), Some((offset, end)));
            assert_eq!(key.partition, segment(7, offset));
            assert_eq!(key.partition, segment(7, end - 1));
            assert!(key.sort.as_bytes() >= &piece_from(offset)[..]);
            assert!(key.sort.as_bytes() < &piece_from(offset + 1)[..]);
        }
        assert_eq!(piece_bounds(b"short"), None);
        assert_eq!(piece_bounds(&[0xff; 12]), None);
    }

    #[test]
    fn every_shard_has_a_row_of_the_creation() {
        let shards: Vec<_> = (0..64).map(ShardId).collect();
        let shard_of = |partition: &PartitionKey| {
            let sum: u32 = partition
                .as_bytes()
                .iter()
                .map(|&byte| u32::from(byte))
                .sum();
            ShardId((sum % 64) as u16)
        };
        let keys = creation_keys(&shards, shard_of);
        assert_eq!(keys.len(), 64);
        assert!(
            keys.iter()
                .all(|(shard, key)| shard_of(&key.partition) == *shard)
        );
    }

    #[test]
    fn rows_about_parts_are_in_their_order() {
        let keys = [0, 1, 255, 256, 9_999].map(|part| part_key(PARTS, part));
        assert!(keys.is_sorted());
        assert_eq!(part_of(keys[3].sort.as_bytes()), Some(256));
        assert!(reject_key(1, 300) < reject_key(2, 1));
        let of = |key: Key| reject_of(key.sort.as_bytes());
        assert_eq!(of(reject_key(7, 70_000)), Some((7, 70_000)));
        assert_eq!(of(run_key()), None);
    }
}
