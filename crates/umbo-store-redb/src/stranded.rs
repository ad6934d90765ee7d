//! Acknowledged rows, and idempotency records, whose place in their table cannot be read.
//!
//! A row of the log may meet a bad page only when it is committed to the file, and no commit may leave it out then. So
//! it goes into the table `stranded`, under its physical key; the value of a removal is empty. Readers see these rows
//! over the row table, and each commit tries to put them there. The invariant: nothing else changes a row
//! that is stranded.

use redb::{ReadTransaction, ReadableTable, Table, TableError, WriteTransaction};

use crate::bad_read::unisolated;
use crate::file_error::FileError;
use crate::memtable::Overlay;
use crate::tables::STRANDED;

/// The stranded rows within one transaction.
pub(crate) struct StrandedRows<'txn> {
    table: Table<'txn, &'static [u8], &'static [u8]>,
    before: Overlay,
}

impl<'txn> StrandedRows<'txn> {
    /// Opens the table.
    pub(crate) fn of(transaction: &'txn WriteTransaction) -> Result<Self, FileError> {
        let table = unisolated(|| transaction.open_table(STRANDED))?;
        let before = rows_of(&table)?;
        Ok(Self { table, before })
    }

    /// Returns the rows that were stranded before the transaction.
    pub(crate) const fn before(&self) -> &Overlay {
        &self.before
    }

    /// Keeps a row, or its removal.
    pub(crate) fn keep(&mut self, key: &[u8], row: Option<&[u8]>) -> Result<(), FileError> {
        self.table.insert(key, row.unwrap_or_default())?;
        Ok(())
    }

    /// Forgets a row: it is in its place, or its namespace is fenced.
    pub(crate) fn forget(&mut self, key: &[u8]) -> Result<(), FileError> {
        if !self.before.is_empty() {
            self.table.remove(key)?;
        }
        Ok(())
    }
}

/// Reads the stranded rows of a file.
pub(crate) fn read(transaction: &ReadTransaction) -> Result<Overlay, FileError> {
    match transaction.open_table(STRANDED) {
        Err(TableError::TableDoesNotExist(_)) => Ok(Overlay::default()),
        table => rows_of(&table?),
    }
}

fn rows_of(table: &impl ReadableTable<&'static [u8], &'static [u8]>) -> Result<Overlay, FileError> {
    let mut rows = Vec::new();
    for entry in table.iter()? {
        let (key, row) = entry?;
        let row = Some(row.value()).filter(|row| !row.is_empty());
        rows.push((key.value().into(), row.map(Into::into)));
    }
    if rows.is_empty() {
        return Ok(Overlay::default());
    }
    Ok(Overlay::of(rows.into_iter()))
}
