//! CSV: bytes in, rows out. The first line names the columns. Holds one record of up to 16 MiB.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use csv::ByteRecord;

use crate::error::RowsError;
use crate::format::Columns;
use crate::row::{EXCERPT_LEN_MAX, LINE_LEN_MAX, ReadRow, RejectReason, RejectedRow};
use crate::table::{Cell, Cells, Table};

/// Bytes of one read of the parser.
const BUFFER_LEN: usize = 64 << 10;
/// A record that is put behind the last one. A quote that is not closed swallows it, and so is noticed.
const TAIL: &[u8] = b"\n.\n";
/// The only cell of the record [`TAIL`].
const TAIL_CELL: &[u8] = b".";
/// Bytes of records that share one allocation.
const ARENA_LEN: usize = 256 << 10;

/// Reads rows of CSV.
pub(crate) struct CsvRows {
    reader: csv::Reader<Bounded>,
    table: Table,
    record: ByteRecord,
    /// Bytes read since the last record began.
    taken: Arc<AtomicUsize>,
    /// Bytes of the source, once all were read; the greatest number before.
    len: Arc<AtomicU64>,
    arena: BytesMut,
}

impl CsvRows {
    /// Reads the header.
    pub(crate) fn new(
        source: impl Read + Send + 'static,
        columns: &Columns,
    ) -> Result<Self, RowsError> {
        let taken = Arc::new(AtomicUsize::new(0));
        let len = Arc::new(AtomicU64::new(u64::MAX));
        let bounded = Bounded {
            inner: Box::new(source),
            taken: Arc::clone(&taken),
            read: 0,
            len: Arc::clone(&len),
            tail: TAIL,
            piece: Vec::new(),
        };
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .buffer_capacity(BUFFER_LEN)
            .from_reader(bounded);
        let mut record = ByteRecord::new();
        if !read(&mut reader, &mut record, &len)? {
            return Err(RowsError::NoHeader);
        }
        Ok(Self {
            table: Table::new(record.iter(), columns)?,
            reader,
            record,
            taken,
            len,
            arena: BytesMut::new(),
        })
    }

    /// Returns the first line of the last record.
    pub(crate) fn line(&self) -> u64 {
        first_line(&self.reader, &self.record)
    }

    /// Returns the next row, none at the end.
    pub(crate) fn next(&mut self) -> Result<Option<ReadRow>, RowsError> {
        self.taken.store(0, Ordering::Relaxed);
        if !read(&mut self.reader, &mut self.record, &self.len)? {
            return Ok(None);
        }
        let row = self.row();
        Ok(Some(row.map_err(|reason| RejectedRow {
            line: self.line(),
            reason,
            bytes: excerpt(self.record.iter()),
        })))
    }

    fn row(&mut self) -> Result<crate::row::LoadRow, RejectReason> {
        if self.record.len() != self.table.len() {
            return Err(RejectReason::Ragged {
                expected: self.table.len(),
                found: self.record.len(),
            });
        }
        let bytes = self.record.as_slice();
        if self.arena.capacity() < bytes.len() {
            self.arena = BytesMut::with_capacity(ARENA_LEN.max(bytes.len()));
        }
        self.arena.extend_from_slice(bytes);
        let bytes = self.arena.split().freeze();
        self.table.row(&Record {
            text: std::str::from_utf8(self.record.as_slice()).ok(),
            bytes,
            cells: &self.record,
            table: &self.table,
        })
    }
}

/// Reads the next record; false at the end.
fn read(
    reader: &mut csv::Reader<Bounded>,
    record: &mut ByteRecord,
    len: &AtomicU64,
) -> Result<bool, RowsError> {
    // Of a record that cannot be read it is only known where the one before it has ended.
    let line = reader.position().line() + u64::from(reader.get_ref().has_taken(b'\r', reader));
    let has_record = reader.read_byte_record(record);
    if !has_record.map_err(|error| failure(error, line))? {
        return Ok(false);
    }
    let end = len.load(Ordering::Relaxed);
    if reader.position().byte() < end.saturating_add(TAIL.len() as u64) {
        return Ok(true);
    }
    if record.len() == 1 && &record[0] == TAIL_CELL {
        return Ok(false);
    }
    // The end of the bytes has ended it, which is no line.
    let line = reader.position().line().saturating_sub(lines_in(record));
    Err(RowsError::UnclosedQuote { line })
}

/// Returns the line in which the last record begins. The parser says only where the record before it has ended: before
/// the line feed of a `\r\n`, and before lines that are empty.
fn first_line(reader: &csv::Reader<Bounded>, record: &ByteRecord) -> u64 {
    let ended = u64::from(reader.get_ref().has_taken(b'\n', reader));
    let line = reader.position().line();
    line.saturating_sub(lines_in(record) + ended)
}

/// Returns the line feeds within the cells of a record.
fn lines_in(record: &ByteRecord) -> u64 {
    memchr::memchr_iter(b'\n', record.as_slice()).count() as u64
}

/// A record, its bytes shared.
struct Record<'a> {
    bytes: Bytes,
    /// The same as text, where all of it is UTF-8.
    text: Option<&'a str>,
    cells: &'a ByteRecord,
    table: &'a Table,
}

impl Cells for Record<'_> {
    fn cell(&self, column: usize) -> Result<Cell, RejectReason> {
        let Some(range) = self.cells.range(column) else {
            return Ok(Cell::Null);
        };
        // Text that is divided within a character is none.
        let is_text = match self.text {
            Some(text) => text.is_char_boundary(range.start) && text.is_char_boundary(range.end),
            None => std::str::from_utf8(&self.bytes[range.clone()]).is_ok(),
        };
        if !is_text {
            return Err(RejectReason::NotText(self.table.name(column).to_owned()));
        }
        Ok(Cell::Text(self.bytes.slice(range)))
    }
}

/// Returns cells as CSV, cut to the bytes that are kept of a rejected row.
pub(crate) fn excerpt<'a>(cells: impl Iterator<Item = &'a [u8]>) -> Bytes {
    let mut left = EXCERPT_LEN_MAX;
    let kept = cells.map_while(|cell| {
        let kept = &cell[..cell.len().min(left)];
        let is_left = left > 0;
        left = left.saturating_sub(cell.len() + 1);
        is_left.then_some(kept)
    });
    let mut writer = csv::WriterBuilder::new().from_writer(Vec::new());
    // A vector takes every write.
    let _ = writer.write_record(kept);
    let mut bytes = writer.into_inner().unwrap_or_default();
    bytes.truncate(bytes.trim_ascii_end().len().min(EXCERPT_LEN_MAX));
    bytes.into()
}

/// Refuses to read on in a record that is too long, and ends with [`TAIL`].
struct Bounded {
    inner: Box<dyn Read + Send>,
    taken: Arc<AtomicUsize>,
    /// Bytes read.
    read: u64,
    /// The same, once all were read.
    len: Arc<AtomicU64>,
    /// What is left of the tail.
    tail: &'static [u8],
    /// The bytes of the last read.
    piece: Vec<u8>,
}

impl Bounded {
    /// Returns whether this is the byte that the parser has taken last: always one of the last read.
    fn has_taken(&self, byte: u8, reader: &csv::Reader<Self>) -> bool {
        let ahead = (self.read + (TAIL.len() - self.tail.len()) as u64)
            .saturating_sub(reader.position().byte());
        let taken = usize::try_from(ahead).ok();
        let taken = taken.and_then(|ahead| self.piece.len().checked_sub(ahead + 1));
        taken.is_some_and(|at| self.piece[at] == byte)
    }
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken.load(Ordering::Relaxed) > LINE_LEN_MAX {
            return Err(io::Error::other(TooLongError));
        }
        let mut len = self.inner.read(buffer)?;
        if len == 0 && !buffer.is_empty() {
            self.len.store(self.read, Ordering::Relaxed);
            len = self.tail.read(buffer)?;
        } else {
            self.read += len as u64;
            self.taken.fetch_add(len, Ordering::Relaxed);
        }
        if len > 0 {
            self.piece.clear();
            self.piece.extend_from_slice(&buffer[..len]);
        }
        Ok(len)
    }
}

/// Refused to read on.
#[derive(Debug, thiserror::Error)]
#[error("the record is too long")]
pub(crate) struct TooLongError;

/// Makes the error of a record that begins in a line.
pub(crate) fn failure(error: csv::Error, line: u64) -> RowsError {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => match error.downcast::<TooLongError>() {
            Ok(TooLongError) => RowsError::RecordTooLong { line },
            Err(error) => error.into(),
        },
        other => RowsError::Read(io::Error::other(format!("{other:?}"))),
    }
}
