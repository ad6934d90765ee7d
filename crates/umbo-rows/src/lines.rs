//! NDJSON: bytes in, rows out. Holds some chunks, or one line of up to 16 MiB.

use std::io::{self, Read};

use bytes::Bytes;

use crate::end_lines::{EndCheck, StreamPart};
use crate::error::RowsError;
use crate::line::{self, LineChange};
use crate::line_error::LineError;
use crate::row::{EXCERPT_LEN_MAX, InputRow, LINE_LEN_MAX, ReadRow, RejectReason, RejectedRow};
use crate::source::{self, Text};
use crate::text_lines::{Line, TextLines};

/// Reads the lines of NDJSON without parsing them. Blank lines and white space around a line are left out.
pub struct RawLines(TextLines<Text>);

impl std::fmt::Debug for RawLines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawLines").finish_non_exhaustive()
    }
}

impl RawLines {
    /// Reads decoded text. A byte order mark at its beginning is left out, and text in UTF-16 is refused.
    pub fn new(source: Box<dyn Read + Send>) -> Result<Self, RowsError> {
        Ok(Self::of_text(source::without_mark(source)?))
    }

    fn of_text(text: Text) -> Self {
        Self(TextLines::new(text, LINE_LEN_MAX))
    }

    /// Returns the number of the last line, from 1. Blank lines count.
    pub const fn number(&self) -> u64 {
        self.0.count()
    }

    /// Returns the next line, or `None` at the end. Of a line that is too long for a row, returns the first bytes as an
    /// error. The line is a copy: a slice would keep the whole buffer in memory.
    pub fn next_line(&mut self) -> io::Result<Option<Result<Bytes, Bytes>>> {
        let slice = self.next_slice()?;
        Ok(slice.map(|line| line.map(|line| Bytes::copy_from_slice(&line))))
    }

    /// Like [`Self::next_line`], but a slice of the buffer.
    fn next_slice(&mut self) -> io::Result<Option<Result<Bytes, Bytes>>> {
        loop {
            let range = match self.0.next()? {
                None => return Ok(None),
                Some(Line::TooLong(bytes)) => return Ok(Some(Err(bytes))),
                Some(Line::Whole(range)) => range,
            };
            let chunk = self.0.chunk();
            let line = chunk[range].trim_ascii();
            if !line.is_empty() {
                return Ok(Some(Ok(chunk.slice_ref(line))));
            }
        }
    }
}

/// Reads rows of NDJSON.
pub(crate) struct LineRows {
    lines: RawLines,
    end: EndCheck,
}

impl LineRows {
    pub(crate) fn new(text: Text) -> Self {
        Self {
            lines: RawLines::of_text(text),
            end: EndCheck::default(),
        }
    }

    /// Returns the line of the last row.
    pub(crate) const fn line(&self) -> u64 {
        self.lines.number()
    }

    /// Returns the next row, or `None` at the end. Blank lines and end lines of exports are not
    /// rows.
    pub(crate) fn next(&mut self) -> Result<Option<ReadRow>, RowsError> {
        loop {
            let line = match self.lines.next_slice()? {
                None => return self.end.missing().map_or(Ok(None), RowsError::cut_off),
                Some(Err(bytes)) => {
                    return Ok(Some(Err(self.reject(&bytes, RejectReason::TooLong))));
                }
                Some(Ok(line)) => line,
            };
            match self.end.take(self.line(), &line) {
                StreamPart::Row => {}
                StreamPart::End => continue,
                StreamPart::Incomplete(how) => return RowsError::cut_off(how),
            }
            let row = row(&line);
            return Ok(Some(row.map_err(|reason| self.reject(&line, reason))));
        }
    }

    fn reject(&self, line: &[u8], reason: RejectReason) -> RejectedRow {
        let excerpt = &line[..line.len().min(EXCERPT_LEN_MAX)];
        RejectedRow {
            line: self.line(),
            reason,
            bytes: Bytes::copy_from_slice(excerpt),
        }
    }
}

fn row(line: &Bytes) -> Result<InputRow, RejectReason> {
    let parsed = line::parse(line, line)?;
    if parsed.if_match.is_some() || parsed.if_none_match.is_some() {
        return Err(RejectReason::Condition);
    }
    match parsed.change {
        LineChange::Row(change) => Ok(InputRow {
            key: parsed.key,
            change,
            version: parsed.version,
        }),
        LineChange::Increment { .. } => Err(LineError::IncrementAmongRows.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_keeps_nothing_else_in_memory() {
        let mut lines = RawLines::new(Box::new(&b"{}\n{}\n"[..])).unwrap();
        let line = lines.next_line().unwrap().unwrap().unwrap();
        assert!(line.is_unique() && line == "{}");
        assert!(!lines.next_slice().unwrap().unwrap().unwrap().is_unique());
    }
}
