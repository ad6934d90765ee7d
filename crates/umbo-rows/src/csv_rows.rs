//! CSV: bytes in, rows out. Holds one record of up to 16 MiB.

use std::io::Read;

use crate::error::RowsError;
use crate::format::Csv;
use crate::records::{CellPlace, Record, Records};
use crate::row::{InputRow, ReadRow, RejectReason, RejectedRow};
use crate::table::{Cell, Cells, Table};

/// Reads rows of CSV.
pub(crate) struct CsvRows<R> {
    records: Records<R>,
    table: Table,
    null: Option<Vec<u8>>,
}

impl<R: Read> CsvRows<R> {
    /// Reads the header, if there is one.
    pub(crate) fn new(source: R, format: &Csv) -> Result<Self, RowsError> {
        let dialect = &format.dialect;
        let mut records = Records::new(source, dialect.delimiter)?;
        let table = match &dialect.columns {
            Some(names) => Table::new(names.iter().map(String::as_bytes), &format.columns),
            None if !records.read()? => Err(RowsError::NoHeader),
            None => {
                let header = &records.record;
                if let Some(fault) = &header.fault {
                    return Err(RowsError::Header(fault.clone()));
                }
                let (bytes, cells) = (&header.bytes, &header.cells);
                let names = cells.iter().map(|cell| &bytes[cell.range.clone()]);
                Table::new(names, &format.columns).map_err(|error| {
                    divided_by(bytes, dialect.delimiter, cells.len())
                        .map_or(error, RowsError::Delimiter)
                })
            }
        };
        Ok(Self {
            table: table?,
            records,
            null: dialect.null.clone().map(String::into_bytes),
        })
    }

    /// Returns the first line of the last record.
    pub(crate) const fn line(&self) -> u64 {
        self.records.record.line
    }

    /// Returns the next row, or `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<ReadRow>, RowsError> {
        if !self.records.read()? {
            return Ok(None);
        }
        let row = self.row();
        Ok(Some(row.map_err(|reason| RejectedRow {
            line: self.line(),
            reason,
            bytes: self.records.record.excerpt(),
        })))
    }

    fn row(&self) -> Result<InputRow, RejectReason> {
        let record = &self.records.record;
        if let Some(fault) = &record.fault {
            return Err(fault.clone());
        }
        let (expected, found) = (self.table.len(), record.cells.len());
        if found != expected {
            return Err(RejectReason::Ragged { expected, found });
        }
        self.table.row(&RecordCells {
            text: std::str::from_utf8(&record.bytes).ok(),
            record,
            null: self.null.as_deref(),
            table: &self.table,
        })
    }
}

/// Returns the likely delimiter of a header that lacks the expected names, if any.
fn divided_by(header: &[u8], delimiter: u8, cells: usize) -> Option<&'static str> {
    let others = [
        (b';', "semicolons"),
        (b'\t', "tabs"),
        (b'|', "bars"),
        (b',', "commas"),
        (b' ', "spaces"),
    ];
    let found = others.into_iter().find(|&(byte, _)| {
        let is_likely = byte != b' ' || cells == 1;
        is_likely && byte != delimiter && header.contains(&byte)
    });
    found.map(|(_, name)| name)
}

/// The cells of a record.
struct RecordCells<'a> {
    record: &'a Record,
    /// Its bytes, if all of them are UTF-8.
    text: Option<&'a str>,
    null: Option<&'a [u8]>,
    table: &'a Table,
}

impl Cells for RecordCells<'_> {
    fn cell(&self, column: usize) -> Result<Cell, RejectReason> {
        let Some(CellPlace { range, is_quoted }) = self.record.cells.get(column) else {
            return Ok(Cell::Null);
        };
        let bytes = self.record.bytes.slice(range.clone());
        if !is_quoted && self.null.is_some_and(|null| bytes == null) {
            return Ok(Cell::Null);
        }
        // A cell that begins or ends within a character is not text.
        let is_text = match self.text {
            Some(text) => text.is_char_boundary(range.start) && text.is_char_boundary(range.end),
            None => std::str::from_utf8(&bytes).is_ok(),
        };
        if !is_text {
            return Err(RejectReason::NotText(self.table.name(column).to_owned()));
        }
        Ok(Cell::Text(bytes))
    }
}
