//! Cuts NDJSON and CSV into parts that can be read by themselves: between rows, and of CSV each with the header.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use csv::ByteRecord;

use crate::csv_rows::{TooLongError, failure};
use crate::error::RowsError;
use crate::row::LINE_LEN_MAX;
use crate::source;

/// How the text is divided into rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutFormat {
    /// At newlines.
    Lines,
    /// At the ends of records, which may have newlines within quotes.
    Csv,
}

/// Bytes that may be read beyond the end of a part.
const READ_AHEAD: usize = 2 * source::BUFFER_LEN;

/// Cuts a stream. Holds one part.
pub struct PartCutter {
    cutter: Cutter,
}

enum Cutter {
    Lines {
        source: Box<dyn Read + Send>,
        buffer: BytesMut,
        is_at_end: bool,
    },
    Csv(Box<CsvCutter>),
}

impl std::fmt::Debug for PartCutter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartCutter").finish_non_exhaustive()
    }
}

impl PartCutter {
    /// Begins to cut decoded text. A byte order mark at its beginning is left out.
    pub fn new(format: CutFormat, source: Box<dyn Read + Send>) -> Result<Self, RowsError> {
        let source: Box<dyn Read + Send> = Box::new(source::without_mark(source)?);
        let cutter = match format {
            CutFormat::Lines => Cutter::Lines {
                source,
                buffer: BytesMut::new(),
                is_at_end: false,
            },
            CutFormat::Csv => Cutter::Csv(Box::new(CsvCutter::new(source)?)),
        };
        Ok(Self { cutter })
    }

    /// Returns the next part, none at the end. It ends with the first row that reaches `len` bytes.
    pub fn next_part(&mut self, len: usize) -> Result<Option<Bytes>, RowsError> {
        match &mut self.cutter {
            Cutter::Lines {
                source,
                buffer,
                is_at_end,
            } => next_lines(source, buffer, is_at_end, len),
            Cutter::Csv(cutter) => cutter.next_part(len),
        }
    }
}

fn next_lines(
    source: &mut dyn Read,
    buffer: &mut BytesMut,
    is_at_end: &mut bool,
    len: usize,
) -> Result<Option<Bytes>, RowsError> {
    // All of a part at once: a buffer that grows takes twice its room.
    buffer.reserve((len + READ_AHEAD).saturating_sub(buffer.len()));
    // The part ends at the first newline from here on.
    let mut searched = len.saturating_sub(1);
    loop {
        if let Some(rest) = buffer.get(searched..) {
            if let Some(at) = memchr::memchr(b'\n', rest) {
                return Ok(Some(buffer.split_to(searched + at + 1).freeze()));
            }
            searched = buffer.len();
        }
        if *is_at_end {
            return Ok((!buffer.is_empty()).then(|| buffer.split().freeze()));
        }
        // A line that is too long is the server's to reject, as far as it fits into a part at all.
        if buffer.len() > len + 2 * LINE_LEN_MAX {
            return Err(RowsError::LineTooLong);
        }
        *is_at_end = source::read_some(source, buffer)? == 0;
    }
}

/// Cuts CSV where the parser ends records.
struct CsvCutter {
    reader: csv::Reader<Tee>,
    record: ByteRecord,
    /// Bytes that were read and are in no part yet.
    read: Arc<Mutex<BytesMut>>,
    /// Place in the stream of the first of them.
    start: u64,
    header: Bytes,
    has_more: bool,
    /// Whether the last record that was taken ended in `\r`, after which its line feed is left.
    is_feed_left: bool,
}

impl CsvCutter {
    fn new(source: Box<dyn Read + Send>) -> Result<Self, RowsError> {
        let read = Arc::new(Mutex::new(BytesMut::new()));
        let tee = Tee {
            inner: source,
            read: Arc::clone(&read),
        };
        let reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .from_reader(tee);
        let mut cutter = Self {
            reader,
            record: ByteRecord::new(),
            read,
            start: 0,
            header: Bytes::new(),
            has_more: true,
            is_feed_left: false,
        };
        if !cutter.next_record()? {
            return Err(RowsError::NoHeader);
        }
        let header = cutter.taken();
        let header = header.trim_ascii();
        cutter.header = [header, b"\n"].concat().into();
        Ok(cutter)
    }

    fn next_part(&mut self, len: usize) -> Result<Option<Bytes>, RowsError> {
        let mut rows = 0_u64;
        while self.has_more && self.reader.position().byte() - self.start < len as u64 {
            self.has_more = self.next_record()?;
            rows += u64::from(self.has_more);
        }
        if rows == 0 {
            return Ok(None);
        }
        let mut part = BytesMut::with_capacity(self.header.len() + len);
        part.extend_from_slice(&self.header);
        part.extend_from_slice(&self.taken());
        Ok(Some(part.freeze()))
    }

    fn next_record(&mut self) -> Result<bool, RowsError> {
        let line = self.reader.position().line();
        let has_record = self.reader.read_byte_record(&mut self.record);
        has_record.map_err(|error| failure(error, line))
    }

    /// Takes the bytes of the records that were read.
    fn taken(&mut self) -> Bytes {
        let end = self.reader.position().byte();
        let len = usize::try_from(end - self.start).unwrap_or(usize::MAX);
        self.start = end;
        let mut read = lock(&self.read);
        let len = len.min(read.len());
        let mut taken = read.split_to(len).freeze();
        // Each part has as many lines as it has of the file, and the header.
        if self.is_feed_left && taken.starts_with(b"\n") {
            drop(taken.split_to(1));
        }
        self.is_feed_left = taken.ends_with(b"\r");
        taken
    }
}

/// Keeps a copy of what is read.
struct Tee {
    inner: Box<dyn Read + Send>,
    read: Arc<Mutex<BytesMut>>,
}

/// Longest part, with a record that goes beyond it.
const KEPT_LEN_MAX: usize = (256 << 20) + LINE_LEN_MAX;

impl Read for Tee {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut read = lock(&self.read);
        if read.len() > KEPT_LEN_MAX {
            return Err(io::Error::other(TooLongError));
        }
        let len = self.inner.read(buffer)?;
        read.extend_from_slice(&buffer[..len]);
        Ok(len)
    }
}

fn lock(read: &Mutex<BytesMut>) -> MutexGuard<'_, BytesMut> {
    read.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(format: CutFormat, text: &str, len: usize) -> Vec<Bytes> {
        let source = Box::new(io::Cursor::new(text.as_bytes().to_vec()));
        let mut cutter = PartCutter::new(format, source).unwrap();
        std::iter::from_fn(|| cutter.next_part(len).unwrap()).collect()
    }

    #[test]
    fn csv_is_cut_between_records_and_each_part_has_the_header() {
        let text = "pk,v\r\na,\"1\n2\"\r\nb,\"x\"\"\n\"\r\nc,3";
        let parts = parts(CutFormat::Csv, text, 1);
        let expected = ["pk,v\na,\"1\n2\"\r", "pk,v\nb,\"x\"\"\n\"\r", "pk,v\nc,3"];
        assert_eq!(parts, expected);
    }

    #[test]
    fn what_has_no_header_is_refused_and_what_has_no_rows_has_no_part() {
        let empty = Box::new(io::Cursor::new(Vec::new()));
        assert!(matches!(
            PartCutter::new(CutFormat::Csv, empty),
            Err(RowsError::NoHeader)
        ));
        assert!(parts(CutFormat::Csv, "pk,v\n", 9).is_empty());
        assert!(parts(CutFormat::Lines, "", 9).is_empty());
    }

    proptest! {
        #[test]
        fn lines_are_all_there_and_whole(text in "[ab\n]{0,40}", len in 1_usize..12) {
            let parts = parts(CutFormat::Lines, &text, len);
            prop_assert_eq!(parts.concat(), text.as_bytes());
            for part in parts.iter().rev().skip(1) {
                prop_assert!(part.ends_with(b"\n") && part.len() >= len);
            }
        }

        #[test]
        fn records_are_all_there_and_whole(text in "[ab,\n\r\"]{0,40}", len in 1_usize..12) {
            let text = format!("h\n{text}");
            let records = |text: &[u8]| {
                let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text);
                let records: Vec<ByteRecord> = reader.byte_records().map(Result::unwrap).collect();
                records
            };
            let cut: Vec<ByteRecord> = parts(CutFormat::Csv, &text, len)
                .iter().flat_map(|part| records(part)).collect();
            prop_assert_eq!(cut, records(text.as_bytes()));
        }
    }
}
