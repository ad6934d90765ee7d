//! CSV: bytes in, rows out. Holds one record of up to 16 MiB.

use std::io::Read;

use crate::error::RowsError;
use crate::format::Csv;
use crate::records::Records;
use crate::row::{LoadRow, ReadRow, RejectReason, RejectedRow};
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
        let mut records = Records::new(source, dialect.delimiter())?;
        let table = match dialect.columns() {
            Some(names) => Table::new(names.iter().map(String::as_bytes), &format.columns),
            None if !records.read()? => Err(RowsError::NoHeader),
            None => {
                let cells = records.cells().map_err(RowsError::Header)?;
                let names = cells.iter().map(|cell| &records.bytes()[cell.clone()]);
                Table::new(names, &format.columns).map_err(|error| {
                    divided_by(records.bytes(), dialect.delimiter(), cells.len())
                        .map_or(error, RowsError::Delimiter)
                })
            }
        };
        Ok(Self {
            table: table?,
            records,
            null: dialect.null().map(<[u8]>::to_vec),
        })
    }

    /// Returns the first line of the last record.
    pub(crate) const fn line(&self) -> u64 {
        self.records.line()
    }

    /// Returns the next row, none at the end.
    pub(crate) fn next(&mut self) -> Result<Option<ReadRow>, RowsError> {
        if !self.records.read()? {
            return Ok(None);
        }
        let row = self.row();
        Ok(Some(row.map_err(|reason| RejectedRow {
            line: self.line(),
            reason,
            bytes: self.records.excerpt(),
        })))
    }

    fn row(&self) -> Result<LoadRow, RejectReason> {
        let cells = self.records.cells()?;
        if cells.len() != self.table.len() {
            return Err(RejectReason::Ragged {
                expected: self.table.len(),
                found: cells.len(),
            });
        }
        self.table.row(&Record {
            text: std::str::from_utf8(self.records.bytes()).ok(),
            rows: self,
        })
    }
}

/// Returns what divides the columns of a header that does not name what it should, if it looks like a delimiter.
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

/// A record.
struct Record<'a, R> {
    /// Its bytes, if all of them are UTF-8.
    text: Option<&'a str>,
    rows: &'a CsvRows<R>,
}

impl<R: Read> Cells for Record<'_, R> {
    fn cell(&self, column: usize) -> Result<Cell, RejectReason> {
        let (records, null) = (&self.rows.records, &self.rows.null);
        let Some(range) = records.cells()?.get(column) else {
            return Ok(Cell::Null);
        };
        let bytes = records.bytes().slice(range.clone());
        if null.as_ref().is_some_and(|null| bytes == null) && !records.is_quoted(column) {
            return Ok(Cell::Null);
        }
        // Text that is divided within a character is none.
        let is_text = match self.text {
            Some(text) => text.is_char_boundary(range.start) && text.is_char_boundary(range.end),
            None => std::str::from_utf8(&bytes).is_ok(),
        };
        if !is_text {
            let name = self.rows.table.name(column);
            return Err(RejectReason::NotText(name.to_owned()));
        }
        Ok(Cell::Text(bytes))
    }
}
