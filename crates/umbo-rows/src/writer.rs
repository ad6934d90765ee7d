//! Rows into NDJSON, CSV and Parquet, as an export writes them: columns named as the fields of NDJSON rows.

use std::io::{self, Write};

use umbo_api::batch::WriteLine;

use crate::error::RowsError;
use crate::export_columns::{COLUMNS, texts};
use crate::format::Coding;
use crate::line;
use crate::parquet_writer::ParquetWriter;

/// A format that rows are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableFormat {
    /// NDJSON.
    Lines,
    /// CSV (RFC 4180) with a header line.
    Csv,
    /// Parquet, its pages compressed with zstd.
    Parquet,
}

/// Writes rows.
pub struct TableWriter<W: Write + Send> {
    format: TableFormat,
    out: EncodedOutput<W>,
}

enum EncodedOutput<W: Write + Send> {
    Plain(W),
    Gzip(flate2::write::GzEncoder<W>),
    Zstd(zstd::stream::write::Encoder<'static, W>),
    Parquet(Box<ParquetWriter<W>>),
}

impl<W: Write + Send> std::fmt::Debug for TableWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableWriter").finish_non_exhaustive()
    }
}

impl<W: Write + Send> TableWriter<W> {
    /// Begins a file, or with `is_continued` another frame of it, which leaves out the header of CSV. Parquet compresses its
    /// pages itself, whatever the coding.
    pub fn new(
        format: TableFormat,
        coding: Coding,
        out: W,
        is_continued: bool,
    ) -> Result<Self, RowsError> {
        let out = match coding {
            _ if format == TableFormat::Parquet => {
                EncodedOutput::Parquet(Box::new(ParquetWriter::new(out)?))
            }
            Coding::Identity => EncodedOutput::Plain(out),
            Coding::Gzip => {
                let level = flate2::Compression::default();
                EncodedOutput::Gzip(flate2::write::GzEncoder::new(out, level))
            }
            Coding::Zstd => EncodedOutput::Zstd(zstd::stream::write::Encoder::new(out, 3)?),
        };
        let mut writer = Self { format, out };
        if format == TableFormat::Csv && !is_continued {
            let mut header = csv::Writer::from_writer(Vec::new());
            header.write_record(COLUMNS).map_err(csv_failure)?;
            writer.write_text(&text_of(header)?)?;
        }
        Ok(writer)
    }

    /// Writes rows, given as lines of NDJSON as ranges and scans have them. Returns their bytes before compression; for
    /// Parquet, the bytes of the lines. As NDJSON, the lines are written as they are.
    pub fn write_lines(&mut self, lines: &[u8]) -> Result<u64, RowsError> {
        let text = match (&mut self.out, self.format) {
            (EncodedOutput::Parquet(writer), _) => {
                for row in rows_of(lines) {
                    writer.write(&row?)?;
                }
                return Ok(lines.len() as u64);
            }
            (_, TableFormat::Csv) => {
                let mut writer = csv::Writer::from_writer(Vec::new());
                for row in rows_of(lines) {
                    write_csv(&mut writer, &row?)?;
                }
                &text_of(writer)?
            }
            _ => lines,
        };
        self.write_text(text)?;
        Ok(text.len() as u64)
    }

    fn write_text(&mut self, text: &[u8]) -> io::Result<()> {
        match &mut self.out {
            EncodedOutput::Plain(out) => out.write_all(text),
            EncodedOutput::Gzip(out) => out.write_all(text),
            EncodedOutput::Zstd(out) => out.write_all(text),
            EncodedOutput::Parquet(_) => Ok(()),
        }
    }

    /// Ends the file or frame, and returns the output.
    pub fn finish(self) -> Result<W, RowsError> {
        match self.out {
            EncodedOutput::Plain(out) => Ok(out),
            EncodedOutput::Gzip(encoder) => Ok(encoder.finish()?),
            EncodedOutput::Zstd(encoder) => Ok(encoder.finish()?),
            EncodedOutput::Parquet(writer) => writer.finish(),
        }
    }
}

/// Returns the rows of lines; blank ones do not count.
fn rows_of(lines: &[u8]) -> impl Iterator<Item = Result<WriteLine<'_>, RowsError>> {
    let lines = lines.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    lines.filter(|line| !line.is_empty()).map(|line| {
        line::read(line).map_err(|error| {
            let error = io::Error::new(io::ErrorKind::InvalidData, error);
            RowsError::Read(error)
        })
    })
}

fn text_of(writer: csv::Writer<Vec<u8>>) -> Result<Vec<u8>, RowsError> {
    let text = writer.into_inner();
    text.map_err(|error| RowsError::Read(error.into_error()))
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
