//! NDJSON: bytes in, rows out. Holds some chunks, or one line of up to 16 MiB.

use std::io::Read;

use bytes::Bytes;

use crate::end_lines::{EndCheck, StreamPart};
use crate::error::RowsError;
use crate::line::{self, LineChange};
use crate::line_error::LineError;
use crate::row::{EXCERPT_LEN_MAX, InputRow, LINE_LEN_MAX, ReadRow, RejectReason, RejectedRow};
use crate::text_lines::{Line, TextLines};

/// Reads rows of NDJSON.
pub(crate) struct LineRows<R> {
    lines: TextLines<R>,
    end: EndCheck,
}

impl<R: Read> LineRows<R> {
    pub(crate) fn new(source: R) -> Self {
        Self {
            lines: TextLines::new(source, LINE_LEN_MAX),
            end: EndCheck::default(),
        }
    }

    /// Returns the line of the last row.
    pub(crate) const fn line(&self) -> u64 {
        self.lines.count()
    }

    /// Returns the next row, or `None` at the end. Blank lines and end lines of exports are not
    /// rows.
    pub(crate) fn next(&mut self) -> Result<Option<ReadRow>, RowsError> {
        loop {
            let range = match self.lines.next()? {
                None => return self.end.missing().map_or(Ok(None), RowsError::cut_off),
                Some(Line::TooLong(bytes)) => {
                    return Ok(Some(Err(self.reject(&bytes, RejectReason::TooLong))));
                }
                Some(Line::Whole(range)) => range,
            };
            let line = self.lines.chunk()[range].trim_ascii();
            if line.is_empty() {
                continue;
            }
            match self.end.take(self.lines.count(), line) {
                StreamPart::Row => {}
                StreamPart::End => continue,
                StreamPart::Incomplete(how) => return RowsError::cut_off(how),
            }
            let row = row(line, self.lines.chunk());
            return Ok(Some(row.map_err(|reason| self.reject(line, reason))));
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

fn row(line: &[u8], owner: &Bytes) -> Result<InputRow, RejectReason> {
    let parsed = line::parse(line, owner)?;
    if parsed.if_match.is_some() || parsed.if_none_match.is_some() {
        return Err(RejectReason::Condition);
    }
    match parsed.change {
        LineChange::Row(change) => Ok(InputRow {
            key: parsed.key,
            change,
        }),
        LineChange::Increment { .. } => Err(LineError::IncrementAmongRows.into()),
    }
}
