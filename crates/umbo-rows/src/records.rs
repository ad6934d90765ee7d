//! CSV divided into records and cells, as RFC 4180 has them and no other way.
//!
//! The invariant: a record that is not written by these rules has a fault; none of its cells is guessed.

use std::io::Read;
use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::error::RowsError;
use crate::row::{EXCERPT_LEN_MAX, LINE_LEN_MAX, RejectReason};
use crate::text_lines::{Line, TextLines};

/// Where in a record the next byte stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// At the first byte of a cell.
    CellStart,
    /// In a cell without quotes, or behind a fault.
    Plain,
    /// Between the quotes of a cell.
    Quoted,
    /// After a quote in a quoted cell: it closes the cell, or is the first of two.
    AfterQuote,
}

impl Place {
    const fn after(self, byte: u8, delimiter: u8) -> Self {
        match (self, byte) {
            (Self::Quoted, b'"') => Self::AfterQuote,
            (Self::Quoted, _) | (Self::CellStart | Self::AfterQuote, b'"') => Self::Quoted,
            (_, byte) if byte == delimiter => Self::CellStart,
            _ => Self::Plain,
        }
    }

    /// Returns the place behind a line, without the byte that ends it.
    pub(crate) fn after_line(self, line: &[u8], delimiter: u8) -> Self {
        if self == Self::CellStart && memchr::memchr(b'"', line).is_none() {
            return self;
        }
        let place = line
            .iter()
            .fold(self, |place, &byte| place.after(byte, delimiter));
        // A record that ends here leaves nothing for the next one.
        if place == Self::Quoted {
            place
        } else {
            Self::CellStart
        }
    }
}

/// Reads records.
pub(crate) struct Records<R> {
    lines: TextLines<R>,
    delimiter: u8,
    /// First line of the last record.
    line: u64,
    /// Bytes in which the cells of the last record lie.
    bytes: Bytes,
    cells: Vec<Range<usize>>,
    /// Whether each cell is quoted; empty if none is.
    quoted: Vec<bool>,
    fault: Option<RejectReason>,
    excerpt: Bytes,
}

impl<R: Read> Records<R> {
    pub(crate) fn new(source: R, delimiter: u8) -> Result<Self, RowsError> {
        let mut lines = TextLines::new(source, LINE_LEN_MAX);
        lines.detect_end()?;
        Ok(Self {
            lines,
            delimiter,
            line: 0,
            bytes: Bytes::new(),
            cells: Vec::new(),
            quoted: Vec::new(),
            fault: None,
            excerpt: Bytes::new(),
        })
    }

    /// Reads the next record; false at the end. Blank lines are no records.
    pub(crate) fn read(&mut self) -> Result<bool, RowsError> {
        (self.fault, self.excerpt) = (None, Bytes::new());
        self.cells.clear();
        self.quoted.clear();
        loop {
            let Some(range) = self.next_line()? else {
                return Ok(false);
            };
            self.line = self.lines.count();
            let line = &self.lines.chunk()[range.clone()];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            if memchr::memchr3(b'"', b'\r', b'\n', line).is_some() {
                self.careful(range)?;
                return Ok(true);
            }
            self.bytes = self.lines.chunk().slice_ref(line);
            let mut start = 0;
            for end in memchr::memchr_iter(self.delimiter, line) {
                self.cells.push(start..end);
                start = end + 1;
            }
            self.cells.push(start..line.len());
            return Ok(true);
        }
    }

    fn next_line(&mut self) -> Result<Option<Range<usize>>, RowsError> {
        match self.lines.next()? {
            None => Ok(None),
            Some(Line::Whole(range)) => Ok(Some(range)),
            Some(Line::TooLong(_)) => Err(RowsError::RecordTooLong {
                line: self.line.max(self.lines.count()),
            }),
        }
    }

    /// Reads a record that has quotes, byte by byte, with the lines that its quotes enclose.
    fn careful(&mut self, first: Range<usize>) -> Result<(), RowsError> {
        let mut cells = CellWriter {
            bytes: BytesMut::with_capacity(first.len()),
            start: 0,
            place: Place::CellStart,
            is_quoted: false,
        };
        let mut excerpt = BytesMut::new();
        let mut range = first;
        loop {
            let chunk = self.lines.chunk().clone();
            let line = &chunk[range];
            if excerpt.len() < EXCERPT_LEN_MAX {
                let kept = &line[..line.len().min(EXCERPT_LEN_MAX)];
                excerpt.extend_from_slice(kept);
                excerpt.extend_from_slice(&[self.lines.end()]);
            }
            cells.line(line, self);
            if cells.place != Place::Quoted {
                break;
            }
            cells.bytes.extend_from_slice(&[self.lines.end()]);
            let line = self.line;
            if cells.bytes.len() > LINE_LEN_MAX {
                return Err(RowsError::RecordTooLong { line });
            }
            let next = match self.next_line() {
                Err(RowsError::RecordTooLong { .. }) => {
                    return Err(RowsError::RecordTooLong { line });
                }
                next => next?,
            };
            range = next.ok_or(RowsError::UnclosedQuote { line })?;
        }
        cells.end(self);
        self.bytes = cells.bytes.freeze();
        excerpt.truncate(excerpt.trim_ascii_end().len().min(EXCERPT_LEN_MAX));
        self.excerpt = excerpt.freeze();
        Ok(())
    }

    /// Returns the first line of the last record.
    pub(crate) const fn line(&self) -> u64 {
        self.line
    }

    /// Returns the cells of the last record, or why it is not CSV.
    pub(crate) fn cells(&self) -> Result<&[Range<usize>], RejectReason> {
        self.fault.clone().map_or(Ok(&self.cells), Err)
    }

    /// Returns the bytes that the cells are ranges of.
    pub(crate) const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns whether a cell has quotes around it.
    pub(crate) fn is_quoted(&self, cell: usize) -> bool {
        self.quoted.get(cell).copied().unwrap_or_default()
    }

    /// Returns the first bytes of the record as the file has them.
    pub(crate) fn excerpt(&self) -> Bytes {
        if self.excerpt.is_empty() {
            return Bytes::copy_from_slice(&self.bytes[..self.bytes.len().min(EXCERPT_LEN_MAX)]);
        }
        self.excerpt.clone()
    }
}

/// Collects the cells of a record with quotes.
struct CellWriter {
    bytes: BytesMut,
    /// Where the present cell begins in the bytes.
    start: usize,
    place: Place,
    is_quoted: bool,
}

impl CellWriter {
    fn line<R: Read>(&mut self, line: &[u8], records: &mut Records<R>) {
        let (end, delimiter) = (records.lines.end(), records.delimiter);
        let other_end = if end == b'\n' { b'\r' } else { b'\n' };
        let mut at = 0;
        while at < line.len() {
            let rest = &line[at..];
            let special = match self.place {
                Place::Quoted => memchr::memchr(b'"', rest),
                Place::CellStart | Place::Plain => {
                    memchr::memchr3(delimiter, b'"', other_end, rest)
                }
                Place::AfterQuote => Some(0),
            };
            let len = special.unwrap_or(rest.len());
            if len > 0 {
                self.bytes.extend_from_slice(&rest[..len]);
                at += len;
                self.place = self.place.after(rest[0], delimiter);
                continue;
            }
            at += 1;
            if rest == b"\r" {
                return;
            }
            let before = self.place;
            self.place = before.after(rest[0], delimiter);
            let fault = match (before, self.place, rest[0]) {
                (_, Place::CellStart, _) => {
                    self.end(records);
                    continue;
                }
                (Place::CellStart, Place::Quoted, _) => {
                    self.is_quoted = true;
                    continue;
                }
                (Place::Quoted, _, _) => continue,
                (Place::AfterQuote, Place::Quoted, _) => None,
                (Place::AfterQuote, _, _) => Some("something follows its closing quote"),
                (_, _, b'"') => Some("it has a quote within, and does not begin with one"),
                _ => Some("it has a line end outside of quotes"),
            };
            if let (Some(what), None) = (fault, &records.fault) {
                let cell = records.cells.len() + 1;
                records.fault = Some(RejectReason::Quotes { cell, what });
            }
            self.bytes.extend_from_slice(&rest[..1]);
        }
    }

    /// Ends the present cell.
    fn end<R>(&mut self, records: &mut Records<R>) {
        records.cells.push(self.start..self.bytes.len());
        records.quoted.push(std::mem::take(&mut self.is_quoted));
        self.start = self.bytes.len();
    }
}
