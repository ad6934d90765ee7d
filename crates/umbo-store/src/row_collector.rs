//! The chunk of a walk while it is filled: counts rows and bytes, returned and read, and records its last row.

use umbo_types::Timestamp;
use umbo_types::limits::{CHUNK_BYTES_MAX, CHUNK_ROWS_MAX};

use crate::request::Touched;
use crate::row_batch::{RowBatch, RowRef};

/// Rows collected so far, up to the limits of the request and of every chunk. `P` is a position.
#[derive(Debug)]
pub struct RowCollector<P> {
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
    /// Begins a chunk of a request with these limits, in rows and bytes.
    pub fn new(rows_max: u32, bytes_max: u32, keys_only: bool) -> Self {
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

    /// Visits the next row of the walk; the engine has read `bytes_read` bytes for it. Returns false, and does not
    /// keep the row, if the chunk was already full.
    pub fn visit(
        &mut self,
        mut row: RowRef<'_>,
        bytes_read: u64,
        now: Timestamp,
        position: impl FnOnce() -> P,
    ) -> bool {
        if !self.has_room() {
            self.is_cut = true;
            return false;
        }
        self.pass(position());
        self.touched += Touched {
            rows: 1,
            bytes: bytes_read,
        };
        if self.keys_only {
            row.value = &[];
        }
        if row.expires_at.is_none_or(|at| at > now) {
            self.bytes += row.returned_bytes() as u64;
            self.rows.push(row);
        }
        true
    }

    /// Passes a place of the walk that has no row.
    pub fn pass(&mut self, position: P) {
        self.visited += 1;
        self.last = Some(position);
    }

    /// Ends the chunk before the end of the walk.
    pub const fn cut(&mut self) {
        self.is_cut = true;
    }

    fn has_room(&self) -> bool {
        (self.rows.len() as u64) < u64::from(self.rows_max)
            && (self.rows.is_empty() || self.bytes < self.bytes_max)
            && self.touched.bytes < CHUNK_BYTES_MAX.into()
            && self.visited < CHUNK_ROWS_MAX
    }

    /// Returns the rows, the position to continue at if a row did not fit, and the rows and bytes read.
    pub fn finish(self) -> (RowBatch, Option<P>, Touched) {
        (self.rows, self.last.filter(|_| self.is_cut), self.touched)
    }
}
