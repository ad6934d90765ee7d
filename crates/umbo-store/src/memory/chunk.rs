//! The chunk of a walk while it is filled: counts rows and bytes, returned and read, and records where it ends.

use umbo_types::limits::{CHUNK_BYTES_MAX, CHUNK_ROWS_MAX};
use umbo_types::{Row, Timestamp};

use crate::request::Touched;
use crate::row_batch::{RowBatch, RowRef};

/// Rows collected so far, up to the requested limits and those of a chunk. `P` is a position.
pub(super) struct RowCollector<P> {
    rows: RowBatch,
    bytes: u64,
    touched: Touched,
    visited: u32,
    rows_max: u32,
    bytes_max: u64,
    keys_only: bool,
    last: Option<P>,
    is_cut: bool,
}

impl<P> RowCollector<P> {
    pub(super) fn new(rows_max: u32, bytes_max: u32, keys_only: bool) -> Self {
        Self {
            rows: RowBatch::default(),
            bytes: 0,
            touched: Touched::default(),
            visited: 0,
            rows_max: rows_max.min(CHUNK_ROWS_MAX),
            bytes_max: bytes_max.min(CHUNK_BYTES_MAX).into(),
            keys_only,
            last: None,
            is_cut: false,
        }
    }

    /// Visits the next row of the walk. Returns false, and does not keep the row, if the chunk was already
    /// full.
    pub(super) fn visit(
        &mut self,
        (partition, sort): (&[u8], &[u8]),
        row: &Row,
        now: Timestamp,
        position: impl FnOnce() -> P,
    ) -> bool {
        let is_full = self.rows.len() as u64 >= u64::from(self.rows_max)
            || (!self.rows.is_empty() && self.bytes >= self.bytes_max)
            || self.touched.bytes >= CHUNK_BYTES_MAX.into()
            || self.visited >= CHUNK_ROWS_MAX;
        if is_full {
            self.is_cut = true;
            return false;
        }
        self.visited += 1;
        self.last = Some(position());
        let mut found = RowRef {
            partition,
            sort,
            value: &row.value.bytes,
            form: row.value.form,
            value_len: row.value.plain_len() as u32,
            content_type: &row.value.content_type,
            content_encoding: &row.value.content_encoding,
            version: row.version,
            expires_at: row.expires_at,
        };
        self.touched += Touched {
            rows: 1,
            bytes: found.stored_bytes(),
        };
        if self.keys_only {
            found.value = &[];
        }
        if !row.is_expired(now) {
            self.bytes += found.returned_bytes() as u64;
            self.rows.push(found);
        }
        true
    }

    /// Returns the rows, the position to continue at if a row did not fit, and what was read.
    pub(super) fn finish(self) -> (RowBatch, Option<P>, Touched) {
        (self.rows, self.last.filter(|_| self.is_cut), self.touched)
    }
}
