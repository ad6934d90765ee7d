//! The rows of a snapshot: a row of a memtable replaces the row of the table. Idempotency records, which memtables have
//! too, are no rows.

use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow};

use redb::{AccessGuard, ReadOnlyTable, ReadableTable};

use super::{ShardSnapshot, Tables};
use crate::file_error::FileError;
use crate::key_codec;
use crate::memtable::{KeyBounds, OverlayWalk};

impl ShardSnapshot {
    /// Calls `read` with the stored bytes of a row, or with `None` for a missing row.
    #[inline]
    pub(crate) fn stored<T>(
        &self,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        self.stored_in(key, |tables| Some(&tables.rows), read)
    }

    /// Calls `read` with the stored bytes of an idempotency record, or with `None` for a missing one.
    pub(crate) fn stored_record<T>(
        &self,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        self.stored_in(key, |tables| tables.records.as_ref(), read)
    }

    #[inline]
    fn stored_in<T>(
        &self,
        key: &[u8],
        table: impl FnOnce(&Tables) -> Option<&ReadOnlyTable<&'static [u8], &'static [u8]>>,
        read: impl FnOnce(Option<&[u8]>) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        let mut read = Some(read);
        let found = self
            .overlay
            .get(key, |row| read.take().map(|read| read(row)));
        match (found.flatten(), read) {
            (None, Some(read)) => {
                // The method of the trait ties the guard to the table, which keeps the transaction alive.
                let table = table(self.tables()?);
                let guard = table.map(|table| ReadableTable::get(table, key));
                let guard = guard.transpose()?.flatten();
                read(guard.as_ref().map(AccessGuard::value))
            }
            (found, _) => found.unwrap_or(Err(FileError::Paused)),
        }
    }

    /// Calls `visit` with each row between two keys, in one direction, until it breaks.
    #[inline]
    pub(crate) fn walk<B>(
        &self,
        bounds: KeyBounds<'_>,
        is_reverse: bool,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<B>, FileError>,
    ) -> Result<Option<B>, FileError> {
        // A row costs a cursor a third less than redb's iterator, whose two ends look for each other.
        let table = &self.tables()?.rows;
        let mut cursor = if is_reverse {
            ReadableTable::upper_bound(table, bounds.1)?
        } else {
            ReadableTable::lower_bound(table, bounds.0)?
        };
        let mut next = || {
            if is_reverse {
                cursor.prev()
            } else {
                cursor.next()
            }
        };
        let (end, is_included) = match if is_reverse { bounds.0 } else { bounds.1 } {
            Bound::Unbounded => (None, false),
            Bound::Included(end) => (Some(end), true),
            Bound::Excluded(end) => (Some(end), false),
        };
        let is_within = |key: &[u8]| {
            end.is_none_or(|end| match key.cmp(end) {
                Ordering::Less => !is_reverse,
                Ordering::Equal => is_included,
                Ordering::Greater => is_reverse,
            })
        };
        let changes = self.overlay.walk(bounds, is_reverse);
        if changes.peek().is_some() {
            let mut next = || {
                let stored = next()?;
                Ok(stored.filter(|(key, _)| is_within(key.value())))
            };
            return walk_merged(changes, is_reverse, &mut next, &mut visit);
        }
        while let Some((key, row)) = next()? {
            let key = key.value();
            if !is_within(key) {
                break;
            }
            if let ControlFlow::Break(end) = visit(key, row.value())? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }
}

/// A stored row, with its key.
type GuardedRow<'a> = (
    AccessGuard<'a, &'static [u8]>,
    AccessGuard<'a, &'static [u8]>,
);

/// Takes the key and the stored bytes of each row.
type RowVisit<'v, B> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<B>, FileError> + 'v;

/// Calls `visit` with stored rows and changes, in one direction, until it breaks. A change replaces the stored row.
#[cold]
fn walk_merged<'a, B>(
    mut changes: OverlayWalk<'_>,
    is_reverse: bool,
    next: &mut dyn FnMut() -> Result<Option<GuardedRow<'a>>, FileError>,
    visit: &mut RowVisit<'_, B>,
) -> Result<Option<B>, FileError> {
    loop {
        let stored = next()?;
        let stored = stored.as_ref().map(|(key, row)| (key.value(), row.value()));
        let is_after = |changed: &[u8]| match stored {
            None => false,
            Some((key, _)) if is_reverse => changed < key,
            Some((key, _)) => changed > key,
        };
        let mut is_replaced = false;
        while let Some((changed, row)) = changes.peek()
            && !is_after(changed)
        {
            is_replaced |= stored.is_some_and(|(key, _)| key == changed);
            if let Some(row) = row
                && !key_codec::is_record(changed)
                && let ControlFlow::Break(end) = visit(changed, row)?
            {
                return Ok(Some(end));
            }
            changes.advance();
        }
        let Some((key, row)) = stored else {
            return Ok(None);
        };
        if !is_replaced && let ControlFlow::Break(end) = visit(key, row)? {
            return Ok(Some(end));
        }
    }
}
