//! Rows out of a file or stream, in any format.

use std::io::{Read, SeekFrom};

use crate::csv_rows::CsvRows;
use crate::error::RowsError;
use crate::format::{Coding, RowFormat};
use crate::lines::LineRows;
use crate::parquet_rows::ParquetRows;
use crate::row::ReadRow;
use crate::source::{self, ReadSeek, Text};

/// Reads rows in their order. Holds some hundred kilobytes, or one line of up to 16 MiB. For Parquet it holds a page
/// of each column that is read. After an error there are no more rows.
pub struct RowReader {
    rows: FormatRows,
    has_ended: bool,
}

enum FormatRows {
    Lines(LineRows),
    Csv(Box<CsvRows<Text>>),
    Parquet(Box<ParquetRows>),
}

impl std::fmt::Debug for RowReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowReader")
            .field("has_ended", &self.has_ended)
            .finish_non_exhaustive()
    }
}

impl RowReader {
    /// Reads a file from its beginning. Refuses CSV and Parquet without the requested columns.
    pub fn open(
        format: &RowFormat,
        coding: Coding,
        mut source: Box<dyn ReadSeek + Send>,
    ) -> Result<Self, RowsError> {
        match format {
            RowFormat::Parquet(columns) if coding == Coding::Identity => {
                let rows = FormatRows::Parquet(Box::new(ParquetRows::new(source, columns)?));
                let has_ended = false;
                Ok(Self { rows, has_ended })
            }
            _ => {
                source.seek(SeekFrom::Start(0))?;
                Self::stream(format, coding, Box::new(source))
            }
        }
    }

    /// Reads a stream; Parquet is refused.
    pub fn stream(
        format: &RowFormat,
        coding: Coding,
        source: Box<dyn Read + Send>,
    ) -> Result<Self, RowsError> {
        if matches!(format, RowFormat::Parquet(_)) {
            return Err(match coding {
                Coding::Identity => RowsError::NeedsSeek,
                coding => RowsError::CodedParquet(coding),
            });
        }
        Self::decoded(format, source::decoded(coding, source)?)
    }

    /// Reads a stream that is decoded already; Parquet is refused.
    pub fn decoded(format: &RowFormat, source: Box<dyn Read + Send>) -> Result<Self, RowsError> {
        let source = source::without_mark(source)?;
        let rows = match format {
            RowFormat::Lines => FormatRows::Lines(LineRows::new(source)),
            RowFormat::Csv(csv) => FormatRows::Csv(Box::new(CsvRows::new(source, csv)?)),
            RowFormat::Parquet(_) => return Err(RowsError::NeedsSeek),
        };
        let has_ended = false;
        Ok(Self { rows, has_ended })
    }
}

impl RowReader {
    /// Returns the line of the last row, from 1; for Parquet its row number, from 1. It never goes back. 0 before
    /// the first.
    pub fn line(&self) -> u64 {
        match &self.rows {
            FormatRows::Lines(rows) => rows.line(),
            FormatRows::Csv(rows) => rows.line(),
            FormatRows::Parquet(rows) => rows.row(),
        }
    }
}

impl Iterator for RowReader {
    type Item = Result<ReadRow, RowsError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let next = match &mut self.rows {
            FormatRows::Lines(rows) => rows.next(),
            FormatRows::Csv(rows) => rows.next(),
            FormatRows::Parquet(rows) => rows.next(),
        };
        self.has_ended = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}
