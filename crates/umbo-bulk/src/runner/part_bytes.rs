//! The bytes of a part as a file, for readers of rows.
//!
//! Holds one stored row of the part at a time and asks for the next one. Knows no store: another task gives the bytes.

use std::io::{self, Read, Seek, SeekFrom};

use bytes::Bytes;
use umbo_rows::source::decoded;
use umbo_rows::{Coding, RowFormat, RowReader, RowsError};

/// Returns the bytes of a part from an offset on, at least one byte, or `None` if no more will come.
pub(crate) type BytesAt = Box<dyn FnMut(u64) -> Option<Bytes> + Send>;

/// A part as a file.
pub(crate) struct PartBytes {
    ask: BytesAt,
    len: u64,
    position: u64,
    /// Bytes from `position` on.
    held: Bytes,
}

impl PartBytes {
    /// Opens a part of this length, in bytes.
    pub(crate) fn new(len: u64, ask: BytesAt) -> Self {
        Self {
            ask,
            len,
            position: 0,
            held: Bytes::new(),
        }
    }
}

impl Read for PartBytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.position >= self.len || buffer.is_empty() {
            return Ok(0);
        }
        if self.held.is_empty() {
            let given = (self.ask)(self.position).filter(|piece| !piece.is_empty());
            self.held = given.ok_or(io::ErrorKind::BrokenPipe)?;
            let left = usize::try_from(self.len - self.position).unwrap_or(usize::MAX);
            self.held.truncate(left);
        }
        let len = buffer.len().min(self.held.len());
        buffer[..len].copy_from_slice(&self.held.split_to(len));
        self.position += len as u64;
        Ok(len)
    }
}

/// Inflated bytes that are charged together: some milliseconds of work.
const INFLATED_TOGETHER: u64 = 1 << 20;

/// The bytes that a compressed part inflates to. Their number is told while they are read: a part without a row may
/// have a thousand times the bytes that were sent.
struct InflatedBytes {
    bytes: Box<dyn Read + Send>,
    tell: Box<dyn FnMut(u64) -> Option<()> + Send>,
    len: u64,
    told: u64,
}

/// Opens the rows of a part. `tell` is called with the number of bytes that the part has inflated to so far. It returns
/// `None` if reading has to stop.
pub(crate) fn open_rows(
    format: &RowFormat,
    coding: Coding,
    bytes: PartBytes,
    tell: Box<dyn FnMut(u64) -> Option<()> + Send>,
) -> Result<RowReader, RowsError> {
    if coding == Coding::Identity || matches!(format, RowFormat::Parquet(_)) {
        return RowReader::open(format, coding, Box::new(bytes));
    }
    let inflated = InflatedBytes {
        bytes: decoded(coding, bytes)?,
        tell,
        len: 0,
        told: 0,
    };
    RowReader::decoded(format, Box::new(inflated))
}

impl Read for InflatedBytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.read(buffer)?;
        self.len += read as u64;
        let untold = self.len - self.told;
        if untold >= INFLATED_TOGETHER || read == 0 && untold > 0 {
            (self.tell)(self.len).ok_or(io::ErrorKind::BrokenPipe)?;
            self.told = self.len;
        }
        Ok(read)
    }
}

impl Seek for PartBytes {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.len.checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let position = position.ok_or_else(invalid)?;
        match position.checked_sub(self.position) {
            Some(ahead) if ahead <= self.held.len() as u64 => {
                let ahead = usize::try_from(ahead).unwrap_or(usize::MAX);
                drop(self.held.split_to(ahead));
            }
            _ => self.held.clear(),
        }
        self.position = position;
        Ok(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_read_from_any_place_and_ends_at_its_length() {
        let bytes: Vec<u8> = (0..=255).collect();
        let given = bytes.clone();
        // Pieces of ten bytes, the last of which goes beyond the part.
        let ask = move |at: u64| {
            let from = at as usize;
            let end = (from / 10 + 1) * 10;
            Some(Bytes::copy_from_slice(&given[from..end.min(256)]))
        };
        let mut part = PartBytes::new(205, Box::new(ask));
        let mut all = Vec::new();
        part.read_to_end(&mut all).unwrap();
        assert_eq!(all, bytes[..205]);
        for (to, at) in [
            (SeekFrom::Start(17), 17),
            (SeekFrom::Current(-1), 18),
            (SeekFrom::End(-5), 200),
        ] {
            part.seek(to).unwrap();
            let mut two = [0; 2];
            part.read_exact(&mut two).unwrap();
            assert_eq!(two, [at, at + 1]);
        }
        part.seek(SeekFrom::Start(300)).unwrap();
        assert_eq!(part.read(&mut [0; 9]).unwrap(), 0);
        assert!(part.seek(SeekFrom::Current(-301)).is_err());
    }

    #[test]
    fn bytes_that_do_not_come_are_an_error_and_no_end() {
        let mut part = PartBytes::new(9, Box::new(|_| None));
        assert!(part.read(&mut [0; 9]).is_err());
        let mut part = PartBytes::new(9, Box::new(|_| Some(Bytes::new())));
        assert!(part.read(&mut [0; 9]).is_err());
    }
}
