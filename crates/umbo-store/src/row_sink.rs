//! The receiver of the rows of a chunk while a store reads them.

use crate::row_batch::{RowBatch, RowRef};

/// Takes the rows of a chunk one by one, in order, as a store reads them. So a reader works on the store's own bytes,
/// without a copy.
pub trait RowSink: Send {
    /// Makes room for more rows with `bytes` bytes together. An estimate; any number of rows may follow.
    fn reserve(&mut self, rows: usize, bytes: usize);

    /// Takes the next row.
    fn push(&mut self, row: RowRef<'_>);

    /// Drops the rows of the chunk, because they will be read again.
    fn clear(&mut self);

    /// Takes rows that were read before.
    fn append(&mut self, rows: &RowBatch) {
        self.reserve(rows.len(), rows.plain_bytes());
        for row in rows.iter() {
            self.push(row);
        }
    }
}

impl RowSink for RowBatch {
    fn reserve(&mut self, rows: usize, bytes: usize) {
        Self::reserve(self, rows, bytes);
    }

    fn push(&mut self, row: RowRef<'_>) {
        Self::push(self, row);
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}
