//! Rows as ranges and scans return them, to compare with what is expected.

use umbo_types::limits::{CHUNK_BYTES_MAX, CHUNK_ROWS_MAX};
use umbo_types::{Row, Timestamp, Version};

use crate::RowRef;

/// A row that a range or scan returned.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seen {
    pub(super) partition: Vec<u8>,
    pub(super) sort: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) value_len: u32,
    content_type: Vec<u8>,
    content_encoding: Vec<u8>,
    pub(super) version: Version,
    expires_at: Option<Timestamp>,
}

impl Seen {
    pub(super) fn new(row: RowRef<'_>) -> Self {
        Self {
            partition: row.partition.into(),
            sort: row.sort.into(),
            value: row.value.into(),
            value_len: row.value_len,
            content_type: row.content_type.into(),
            content_encoding: row.content_encoding.into(),
            version: row.version,
            expires_at: row.expires_at,
        }
    }

    /// Returns how a stored row is to be seen.
    pub(super) fn expected(partition: &[u8], sort: &[u8], row: &Row, keys_only: bool) -> Self {
        let value = &row.value.bytes;
        Self {
            partition: partition.into(),
            sort: sort.into(),
            value: if keys_only {
                Vec::new()
            } else {
                value.to_vec()
            },
            value_len: value.len() as u32,
            content_type: row.value.content_type.to_vec(),
            content_encoding: row.value.content_encoding.to_vec(),
            version: row.version,
            expires_at: row.expires_at,
        }
    }

    /// Returns whether the row expires at all.
    pub(super) fn expires(&self) -> bool {
        self.expires_at.is_some()
    }

    fn held(&self) -> usize {
        self.partition.len() + self.sort.len() + self.value.len()
    }
}

pub(super) fn sorts(rows: &[Seen]) -> Vec<&[u8]> {
    rows.iter().map(|row| &row.sort[..]).collect()
}

/// Checks the limits of a chunk: it ends at the latest with the row that reaches the bytes.
pub(super) fn check_limits(rows: &[Seen], rows_max: u32, bytes_max: u32) {
    let rows_max = rows_max.min(CHUNK_ROWS_MAX) as usize;
    assert!(rows.len() <= rows_max, "{} rows in a chunk", rows.len());
    if let Some((_, before_last)) = rows.split_last() {
        let bytes: usize = before_last.iter().map(Seen::held).sum();
        let bytes_max = bytes_max.min(CHUNK_BYTES_MAX) as usize;
        let is_within = before_last.is_empty() || bytes < bytes_max;
        assert!(is_within, "{bytes} bytes before the last row of a chunk");
    }
}
