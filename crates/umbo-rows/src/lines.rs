//! NDJSON: bytes in, rows out. Holds some chunks, or one line of up to 16 MiB.

use std::io::{self, Read};
use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::error::RowsError;
use crate::line::{self, LineChange};
use crate::line_error::LineError;
use crate::row::{EXCERPT_LEN_MAX, LINE_LEN_MAX, LoadRow, ReadRow, RejectReason, RejectedRow};
use crate::source;

/// Reads rows of NDJSON.
pub(crate) struct LineRows<R> {
    source: R,
    /// What was read and is not divided yet: the beginning of a line.
    rest: BytesMut,
    /// Whole lines, but for the last line of the source, which may have no newline.
    chunk: Bytes,
    /// Where the next line begins in it.
    at: usize,
    is_at_end: bool,
    /// Lines so far.
    line: u64,
}

/// A line, or the beginning of one that is too long.
enum Line {
    Whole(Range<usize>),
    TooLong(Bytes),
}

impl<R: Read> LineRows<R> {
    pub(crate) fn new(source: R) -> Self {
        Self {
            source,
            rest: BytesMut::new(),
            chunk: Bytes::new(),
            at: 0,
            is_at_end: false,
            line: 0,
        }
    }

    /// Returns the line of the last row.
    pub(crate) const fn line(&self) -> u64 {
        self.line
    }

    /// Returns the next row, none at the end. Blank lines and end lines of exports are no rows.
    pub(crate) fn next(&mut self) -> Result<Option<ReadRow>, RowsError> {
        loop {
            let range = match self.next_line()? {
                None => return Ok(None),
                Some(Line::TooLong(bytes)) => {
                    let (line, reason) = (self.line, RejectReason::TooLong);
                    return Ok(Some(Err(RejectedRow {
                        line,
                        reason,
                        bytes,
                    })));
                }
                Some(Line::Whole(range)) => range,
            };
            let line = self.chunk[range].trim_ascii();
            if line.len() > LINE_LEN_MAX {
                return Ok(Some(Err(self.reject(line, RejectReason::TooLong))));
            }
            if line.is_empty() || starts_with_member(line, b"end") {
                continue;
            }
            let row = row(line, &self.chunk);
            return Ok(Some(row.map_err(|reason| self.reject(line, reason))));
        }
    }

    fn reject(&self, line: &[u8], reason: RejectReason) -> RejectedRow {
        let excerpt = &line[..line.len().min(EXCERPT_LEN_MAX)];
        RejectedRow {
            line: self.line,
            reason,
            bytes: Bytes::copy_from_slice(excerpt),
        }
    }

    fn next_line(&mut self) -> io::Result<Option<Line>> {
        if self.at >= self.chunk.len() {
            if let Some(excerpt) = self.fill()? {
                self.line += 1;
                return Ok(Some(Line::TooLong(excerpt)));
            }
            if self.chunk.is_empty() {
                return Ok(None);
            }
        }
        self.line += 1;
        let start = self.at;
        let newline = memchr::memchr(b'\n', &self.chunk[start..]);
        let end = newline.map_or(self.chunk.len(), |at| start + at);
        self.at = end + 1;
        Ok(Some(Line::Whole(start..end)))
    }

    /// Makes a chunk of whole lines, empty at the end. Skips a line that is too long and returns its beginning.
    fn fill(&mut self) -> io::Result<Option<Bytes>> {
        (self.chunk, self.at) = (Bytes::new(), 0);
        loop {
            let searched = self.rest.len();
            if !self.is_at_end {
                self.is_at_end = source::read_some(&mut self.source, &mut self.rest)? == 0;
            }
            let newline = memchr::memrchr(b'\n', &self.rest[searched..]);
            if let Some(at) = newline {
                self.chunk = self.rest.split_to(searched + at + 1).freeze();
                return Ok(None);
            }
            if self.is_at_end {
                self.chunk = self.rest.split().freeze();
                return Ok(None);
            }
            if self.rest.len() > LINE_LEN_MAX {
                let excerpt = Bytes::copy_from_slice(&self.rest[..EXCERPT_LEN_MAX]);
                self.skip_line()?;
                return Ok(Some(excerpt));
            }
        }
    }

    /// Drops what is read up to the next newline.
    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            self.rest.clear();
            self.is_at_end = source::read_some(&mut self.source, &mut self.rest)? == 0;
            if let Some(at) = memchr::memchr(b'\n', &self.rest) {
                let _ = self.rest.split_to(at + 1);
                return Ok(());
            }
            if self.is_at_end {
                return Ok(());
            }
        }
    }
}

fn row(line: &[u8], owner: &Bytes) -> Result<LoadRow, RejectReason> {
    if starts_with_member(line, b"error") {
        return Err(RejectReason::StreamError);
    }
    let parsed = line::parse(line, owner)?;
    if parsed.if_match.is_some() || parsed.if_none_match.is_some() {
        return Err(RejectReason::Condition);
    }
    match parsed.change {
        LineChange::Row(change) => Ok(LoadRow {
            key: parsed.key,
            change,
        }),
        LineChange::Increment { .. } => Err(LineError::IncrementAmongRows.into()),
    }
}

fn starts_with_member(line: &[u8], name: &[u8]) -> bool {
    // Most rows begin with "pk".
    let inside = line.strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
    let rest = inside.and_then(|inside| inside.strip_prefix(b"\""));
    rest.and_then(|rest| rest.strip_prefix(name))
        .is_some_and(|rest| rest.starts_with(b"\""))
}
