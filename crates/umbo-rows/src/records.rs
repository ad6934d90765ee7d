//! CSV divided into records and cells, by the rules of RFC 4180.
//!
//! The invariant: a record that breaks these rules has a fault, and its cells are not guessed.

use std::io::Read;
use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::error::RowsError;
use crate::row::{EXCERPT_LEN_MAX, LINE_LEN_MAX, RejectReason};
use crate::text_lines::{Line, TextLines};

/// Position of the next byte in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordPlace {
    /// At the first byte of a cell.
    CellStart,
    /// In a cell without quotes, or behind a fault.
    Plain,
    /// Between the quotes of a cell.
    Quoted,
    /// After a quote in a quoted cell: it closes the cell, or is the first of two.
    AfterQuote,
}

impl RecordPlace {
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

/// A record.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// First line of the record.
    pub(crate) line: u64,
    /// The bytes that hold the cells.
    pub(crate) bytes: Bytes,
    pub(crate) cells: Vec<CellPlace>,
    /// Why the record is not CSV.
    pub(crate) fault: Option<RejectReason>,
    /// First bytes of the record as the file has them; empty if they are `bytes`.
    excerpt: BytesMut,
}

/// Position of a cell.
#[derive(Debug, Clone)]
pub(crate) struct CellPlace {
    pub(crate) range: Range<usize>,
    pub(crate) is_quoted: bool,
}

impl Record {
    /// Returns the first bytes of the record as the file has them.
    pub(crate) fn excerpt(&self) -> Bytes {
        let bytes = match &self.excerpt[..] {
            [] => &self.bytes[..],
            excerpt => excerpt.trim_ascii_end(),
        };
        Bytes::copy_from_slice(&bytes[..bytes.len().min(EXCERPT_LEN_MAX)])
    }
}

/// Reads records.
pub(crate) struct Records<R> {
    lines: TextLines<R>,
    delimiter: u8,
    /// The last record.
    pub(crate) record: Record,
}

impl<R: Read> Records<R> {
    pub(crate) fn new(source: R, delimiter: u8) -> Result<Self, RowsError> {
        let mut lines = TextLines::new(source, LINE_LEN_MAX);
        lines.detect_end()?;
        Ok(Self {
            lines,
            delimiter,
            record: Record::default(),
        })
    }

    /// Reads the next record; false at the end. Blank lines are no records.
    pub(crate) fn read(&mut self) -> Result<bool, RowsError> {
        self.record.fault = None;
        self.record.excerpt.clear();
        self.record.cells.clear();
        loop {
            let Some(range) = self.next_line(self.lines.count() + 1)? else {
                return Ok(false);
            };
            self.record.line = self.lines.count();
            let line = &self.lines.chunk()[range.clone()];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            if memchr::memchr3(b'"', b'\r', b'\n', line).is_some() {
                self.careful(range)?;
                return Ok(true);
            }
            self.record.bytes = self.lines.chunk().slice_ref(line);
            let mut start = 0;
            let ends = memchr::memchr_iter(self.delimiter, line).chain([line.len()]);
            self.record.cells.extend(ends.map(|end| CellPlace {
                range: std::mem::replace(&mut start, end + 1)..end,
                is_quoted: false,
            }));
            return Ok(true);
        }
    }

    /// Returns the next line of the record that begins in line `first`.
    fn next_line(&mut self, first: u64) -> Result<Option<Range<usize>>, RowsError> {
        match self.lines.next()? {
            None => Ok(None),
            Some(Line::Whole(range)) => Ok(Some(range)),
            Some(Line::TooLong(_)) => Err(RowsError::RecordTooLong { line: first }),
        }
    }

    /// Reads a record that has quotes, with the lines that its quotes enclose.
    fn careful(&mut self, mut range: Range<usize>) -> Result<(), RowsError> {
        let mut cells = CellWriter {
            bytes: BytesMut::with_capacity(range.len()),
            start: 0,
            place: RecordPlace::CellStart,
            is_quoted: false,
            delimiter: self.delimiter,
            other_end: if self.lines.end() == b'\n' {
                b'\r'
            } else {
                b'\n'
            },
        };
        loop {
            let line = &self.lines.chunk()[range];
            if self.record.excerpt.len() < EXCERPT_LEN_MAX {
                let kept = &line[..line.len().min(EXCERPT_LEN_MAX)];
                self.record.excerpt.extend_from_slice(kept);
                self.record.excerpt.extend_from_slice(&[self.lines.end()]);
            }
            cells.line(line, &mut self.record);
            if cells.place != RecordPlace::Quoted {
                break;
            }
            cells.bytes.extend_from_slice(&[self.lines.end()]);
            let line = self.record.line;
            if cells.bytes.len() > LINE_LEN_MAX {
                return Err(RowsError::RecordTooLong { line });
            }
            let next = self.next_line(line)?;
            range = next.ok_or(RowsError::UnclosedQuote { line })?;
        }
        cells.end(&mut self.record);
        self.record.bytes = cells.bytes.freeze();
        Ok(())
    }
}

/// Collects the cells of a record with quotes.
struct CellWriter {
    bytes: BytesMut,
    /// Position of the present cell in the bytes.
    start: usize,
    place: RecordPlace,
    is_quoted: bool,
    delimiter: u8,
    /// The line end that this file does not use.
    other_end: u8,
}

impl CellWriter {
    fn line(&mut self, line: &[u8], record: &mut Record) {
        let (delimiter, other_end) = (self.delimiter, self.other_end);
        let mut at = 0;
        while at < line.len() {
            let rest = &line[at..];
            let special = match self.place {
                RecordPlace::Quoted => memchr::memchr(b'"', rest),
                RecordPlace::CellStart | RecordPlace::Plain => {
                    memchr::memchr3(delimiter, b'"', other_end, rest)
                }
                RecordPlace::AfterQuote => Some(0),
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
                (_, RecordPlace::CellStart, _) => {
                    self.end(record);
                    continue;
                }
                (RecordPlace::CellStart, RecordPlace::Quoted, _) => {
                    self.is_quoted = true;
                    continue;
                }
                (RecordPlace::Quoted, _, _) => continue,
                (RecordPlace::AfterQuote, RecordPlace::Quoted, _) => None,
                (RecordPlace::AfterQuote, _, _) => Some("something follows its closing quote"),
                (_, _, b'"') => Some("it has a quote within, and does not begin with one"),
                _ => Some("it has a line end outside of quotes"),
            };
            if let (Some(what), None) = (fault, &record.fault) {
                let cell = record.cells.len() + 1;
                record.fault = Some(RejectReason::Quotes { cell, what });
            }
            self.bytes.extend_from_slice(&rest[..1]);
        }
    }

    /// Ends the present cell.
    fn end(&mut self, record: &mut Record) {
        record.cells.push(CellPlace {
            range: self.start..self.bytes.len(),
            is_quoted: std::mem::take(&mut self.is_quoted),
        });
        self.start = self.bytes.len();
    }
}
