//! Rows into CSV and Parquet, as an export writes them: columns named as the fields of NDJSON rows.

use std::io::{self, Write};

use umbo_api::batch::WriteLine;

use crate::error::RowsError;
use crate::export_columns::{COLUMNS, texts};
use crate::line;
use crate::parquet_writer::ParquetWriter;

/// A format that rows are written in, besides NDJSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableFormat {
    /// CSV (RFC 4180) with a header line.
    Csv,
    /// Parquet, its pages compressed with zstd.
    Parquet,
}

/// Writes rows.
pub struct TableWriter<W: Write + Send> {
    table: TableEncoder<W>,
}

enum TableEncoder<W: Write + Send> {
    Csv(Box<csv::Writer<W>>),
    Parquet(Box<ParquetWriter<W>>),
}

impl<W: Write + Send> std::fmt::Debug for TableWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableWriter").finish_non_exhaustive()
    }
}

impl<W: Write + Send> TableWriter<W> {
    /// Begins a file; `is_continued` leaves out the header of CSV, for rows that follow others.
    pub fn new(format: TableFormat, out: W, is_continued: bool) -> Result<Self, RowsError> {
        let table = match format {
            TableFormat::Csv => {
                let mut writer = csv::Writer::from_writer(out);
                if !is_continued {
                    writer.write_record(COLUMNS).map_err(csv_failure)?;
                }
                TableEncoder::Csv(Box::new(writer))
            }
            TableFormat::Parquet => TableEncoder::Parquet(Box::new(ParquetWriter::new(out)?)),
        };
        Ok(Self { table })
    }

    /// Writes a row, given as a line of NDJSON as ranges and scans have them.
    pub fn write_line(&mut self, line: &[u8]) -> Result<(), RowsError> {
        let row = line::read(line).map_err(|error| {
            let error = io::Error::new(io::ErrorKind::InvalidData, error);
            RowsError::Read(error)
        })?;
        match &mut self.table {
            TableEncoder::Csv(writer) => write_csv(writer, &row),
            TableEncoder::Parquet(writer) => writer.write(&row),
        }
    }

    /// Ends the file, and returns the output.
    pub fn finish(self) -> Result<W, RowsError> {
        match self.table {
            TableEncoder::Csv(writer) => {
                let out = writer.into_inner();
                out.map_err(|error| RowsError::Read(error.into_error()))
            }
            TableEncoder::Parquet(writer) => writer.finish(),
        }
    }
}

fn write_csv<W: Write>(writer: &mut csv::Writer<W>, row: &WriteLine<'_>) -> Result<(), RowsError> {
    let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
    let (version, expires_at) = (number(row.version), number(row.expires_at));
    let cells = texts(row).map(Option::unwrap_or_default);
    let [pk, sk, v, content_type, content_encoding, pk64, sk64, v64] = cells;
    let record = [
        pk,
        sk,
        v,
        &version,
        &expires_at,
        content_type,
        content_encoding,
        pk64,
        sk64,
        v64,
    ];
    writer.write_record(record).map_err(csv_failure)
}

fn csv_failure(error: csv::Error) -> RowsError {
    RowsError::Read(io::Error::from(error))
}
