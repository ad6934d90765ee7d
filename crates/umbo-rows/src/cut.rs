//! Cuts NDJSON and CSV into parts that can be read by themselves. It cuts between rows. Each part of CSV has the
//! header, and each part of an export has an end line.

use std::io::Read;

use bytes::{Bytes, BytesMut};

use crate::end_lines::{EndCheck, StreamPart};
use crate::error::RowsError;
use crate::format::RowFormat;
use crate::records::RecordPlace;
use crate::row::LINE_LEN_MAX;
use crate::source::{self, Text};
use crate::text_lines::{Line, TextLines};

/// Longest line that is cut, in bytes. If a line is too long for a row, the server rejects it.
const CUT_LINE_LEN_MAX: usize = 2 * LINE_LEN_MAX;

/// Cuts a stream. Holds one part.
pub struct PartCutter {
    lines: TextLines<Text>,
    /// The first line of each part, with its end.
    header: Bytes,
    /// The delimiter of CSV; `None` for NDJSON.
    delimiter: Option<u8>,
    end: EndCheck,
    /// Whether an export without its end line is accepted.
    is_fragment: bool,
    /// Whether a line of NDJSON was read that is not blank.
    has_begun: bool,
}

impl std::fmt::Debug for PartCutter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartCutter").finish_non_exhaustive()
    }
}

impl PartCutter {
    /// Begins to cut decoded text; Parquet is refused. A byte order mark at its beginning is left out.
    pub fn new(format: &RowFormat, source: Box<dyn Read + Send>) -> Result<Self, RowsError> {
        let mut cutter = Self {
            lines: TextLines::new(source::without_mark(source)?, CUT_LINE_LEN_MAX),
            header: Bytes::new(),
            delimiter: None,
            end: EndCheck::default(),
            is_fragment: false,
            has_begun: false,
        };
        match format {
            RowFormat::Lines => {}
            RowFormat::Csv(csv) => {
                cutter.delimiter = Some(csv.dialect.delimiter);
                cutter.lines.detect_end()?;
                if csv.dialect.columns.is_none() {
                    let mut header = Bytes::new();
                    while header.is_empty() {
                        let record = cutter.next_part(1)?.ok_or(RowsError::NoHeader)?;
                        let is_end = |byte: &u8| !matches!(byte, b'\r' | b'\n');
                        let len = record.iter().rposition(is_end).map_or(0, |last| last + 1);
                        header = record.slice(..len);
                    }
                    cutter.header = [&header[..], &[cutter.lines.end()]].concat().into();
                }
            }
            RowFormat::Parquet(_) => return Err(RowsError::NeedsSeek),
        }
        Ok(cutter)
    }

    /// Accepts an export without its end line too, as a fragment.
    #[must_use]
    pub const fn without_end(mut self) -> Self {
        self.is_fragment = true;
        self
    }

    /// Returns whether each part begins with the header of CSV.
    pub fn has_header(&self) -> bool {
        !self.header.is_empty()
    }

    /// Returns the number of lines that were read.
    pub const fn line(&self) -> u64 {
        self.lines.count()
    }

    /// Returns the next part, or `None` at the end. A part ends with the first row that reaches `len` bytes. Fails
    /// at the end of an export that was cut off.
    pub fn next_part(&mut self, len: usize) -> Result<Option<Bytes>, RowsError> {
        // The whole capacity at once: a buffer that grows takes twice its size.
        let mut part = BytesMut::with_capacity(self.header.len() + len + source::BUFFER_LEN);
        part.extend_from_slice(&self.header);
        let (mut place, mut first, mut rows) = (RecordPlace::CellStart, 0, EndCheck::default());
        while place == RecordPlace::Quoted || part.len() < self.header.len() + len {
            let range = match self.lines.next()? {
                Some(Line::Whole(range)) => range,
                Some(Line::TooLong(_)) => return Err(RowsError::LineTooLong),
                None if place == RecordPlace::Quoted => {
                    return Err(RowsError::UnclosedQuote { line: first });
                }
                None => match self.end.missing() {
                    Some(how) if !self.is_fragment => return RowsError::cut_off(how),
                    _ => break,
                },
            };
            let (number, chunk) = (self.lines.count(), self.lines.chunk());
            let line = &chunk[range.clone()];
            if place == RecordPlace::CellStart {
                first = number;
            }
            if let Some(delimiter) = self.delimiter {
                place = place.after_line(line, delimiter);
            } else if !line.trim_ascii().is_empty() {
                let line = line.trim_ascii();
                if !std::mem::replace(&mut self.has_begun, true) && line[0] != b'{' {
                    return Err(RowsError::not_rows(number, line));
                }
                match self.end.take(number, line) {
                    StreamPart::Row => drop(rows.take(number, line)),
                    // The part gets another end line, and keeps its number of lines.
                    StreamPart::End => {
                        part.extend_from_slice(b"\n");
                        continue;
                    }
                    StreamPart::Incomplete(how) => return RowsError::cut_off(how),
                }
            }
            part.extend_from_slice(&chunk[range.start..chunk.len().min(range.end + 1)]);
        }
        let end = rows.end_line();
        if !end.is_empty() && !part.ends_with(b"\n") {
            part.extend_from_slice(b"\n");
        }
        part.extend_from_slice(end.as_bytes());
        Ok((part.len() > self.header.len()).then(|| part.freeze()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Csv;
    use crate::lines::LineRows;
    use crate::records::Records;
    use crate::source;
    use proptest::prelude::*;
    use std::io;

    fn csv() -> RowFormat {
        RowFormat::Csv(Csv::default())
    }

    fn parts(format: &RowFormat, text: &str, len: usize) -> Vec<Bytes> {
        let source = Box::new(io::Cursor::new(text.as_bytes().to_vec()));
        let mut cutter = PartCutter::new(format, source).unwrap();
        std::iter::from_fn(|| cutter.next_part(len).unwrap()).collect()
    }

    #[test]
    fn csv_is_cut_between_records_and_each_part_has_the_header() {
        let text = "pk,v\r\na,\"1\n2\"\r\nb,\"x\"\"\n\"\r\nc,3";
        let parts = parts(&csv(), text, 1);
        let expected = [
            "pk,v\na,\"1\n2\"\r\n",
            "pk,v\nb,\"x\"\"\n\"\r\n",
            "pk,v\nc,3",
        ];
        assert_eq!(parts, expected);
    }

    #[test]
    fn what_has_no_header_is_refused_and_what_has_no_rows_has_no_part() {
        let empty = Box::new(io::Cursor::new(Vec::new()));
        assert!(matches!(
            PartCutter::new(&csv(), empty),
            Err(RowsError::NoHeader)
        ));
        assert!(parts(&csv(), "pk,v\n", 9).is_empty());
        assert!(parts(&RowFormat::Lines, "", 9).is_empty());
    }

    proptest! {
        #[test]
        fn lines_are_all_there_and_whole(text in "(\\{[ab\n]{0,40})?", len in 1_usize..12) {
            let parts = parts(&RowFormat::Lines, &text, len);
            prop_assert_eq!(parts.concat(), text.as_bytes());
            for part in parts.iter().rev().skip(1) {
                prop_assert!(part.ends_with(b"\n") && part.len() >= len);
            }
        }

        #[test]
        fn records_are_all_there_and_whole(text in "[ab,\n\r\"]{0,40}", len in 1_usize..12) {
            let text = format!("h\n{text}");
            let records = |text: &[u8]| {
                let mut records = Records::new(text, b',')?;
                let mut all = Vec::new();
                while records.read()? {
                    let record = &records.record;
                    let cells = record.cells.iter().map(|cell| record.bytes.slice(cell.range.clone()));
                    all.push((cells.collect::<Vec<_>>(), record.fault.clone()));
                }
                Ok::<_, RowsError>(all)
            };
            let whole = records(text.as_bytes());
            let source = Box::new(io::Cursor::new(text.clone().into_bytes()));
            let mut cutter = PartCutter::new(&csv(), source).unwrap();
            let parts: Result<Vec<_>, _> =
                std::iter::from_fn(|| cutter.next_part(len).transpose()).collect();
            prop_assert_eq!(parts.is_err(), whole.is_err());
            let (Ok(parts), Ok(whole)) = (parts, whole) else {
                return Ok(());
            };
            let cut = parts.iter().flat_map(|part| records(part).unwrap().split_off(1));
            prop_assert_eq!(cut.collect::<Vec<_>>(), whole[1..].to_vec());
        }
    }

    #[test]
    fn each_part_of_an_export_has_an_end_line_and_as_many_lines_as_the_file() {
        let row = "{\"pk\":\"a\",\"v\":\"1\",\"version\":7}\n";
        let end = |rows: u8| format!("{{\"end\":{{\"rows\":{rows}}}}}\n");
        let text = [&row.repeat(3), &end(3), row, end(1).trim_ascii()].concat();
        let cut = parts(&RowFormat::Lines, &text, row.len() + 1);
        let expected = [
            [&row.repeat(2), &end(2)[..]].concat(),
            [row, "\n", &end(1)].concat(),
            [row, "\n", &end(1)].concat(),
        ];
        assert_eq!(cut, expected);
        for part in cut {
            assert!(all(&part).is_ok(), "{part:?}");
        }
        for (text, says) in [
            (row.repeat(2), "no end line"),
            ([row, &end(2)].concat(), "counts 2 rows, and 1 precede"),
        ] {
            let source = Box::new(io::Cursor::new(text.clone().into_bytes()));
            let mut cutter = PartCutter::new(&RowFormat::Lines, source).unwrap();
            let error = cutter.next_part(9_999).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
            let error = all(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    fn all(text: &[u8]) -> Result<(), RowsError> {
        let text = Box::new(io::Cursor::new(text.to_vec()));
        let mut rows = LineRows::new(source::without_mark(text)?);
        while let Some(row) = rows.next()? {
            row.unwrap();
        }
        Ok(())
    }
}
