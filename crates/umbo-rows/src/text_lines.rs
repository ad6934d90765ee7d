//! Text divided into lines. Holds some chunks, or one line of bounded length.

use std::io::{self, Read};
use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::row::EXCERPT_LEN_MAX;
use crate::source;

/// Reads lines.
pub(crate) struct TextLines<R> {
    source: R,
    /// Bytes that are not divided yet: the beginning of a line.
    rest: BytesMut,
    /// Whole lines, but for the last line of the source, which may have no end.
    chunk: Bytes,
    /// Position of the next line in the chunk.
    at: usize,
    is_at_end: bool,
    /// Lines so far.
    count: u64,
    /// Longest line, in bytes.
    len_max: usize,
    /// The byte that ends a line.
    end: u8,
}

/// A line, or the beginning of a line that is too long.
pub(crate) enum Line {
    /// Position of the line in the chunk, without the byte that ends it.
    Whole(Range<usize>),
    /// The first bytes of a line that is longer than the bound.
    TooLong(Bytes),
}

impl<R: Read> TextLines<R> {
    /// Divides a source into lines of at most `len_max` bytes.
    pub(crate) fn new(source: R, len_max: usize) -> Self {
        Self {
            source,
            rest: BytesMut::new(),
            chunk: Bytes::new(),
            at: 0,
            is_at_end: false,
            count: 0,
            len_max,
            end: b'\n',
        }
    }

    /// Takes carriage returns for the ends of lines if the first line ends in one, as in files of old Macs.
    pub(crate) fn detect_end(&mut self) -> io::Result<()> {
        loop {
            let first = memchr::memchr2(b'\r', b'\n', &self.rest);
            match first.and_then(|at| self.rest.get(at..at + 2)) {
                Some([b'\r', next]) if *next != b'\n' => self.end = b'\r',
                None if !self.is_at_end && self.rest.len() <= self.len_max => {
                    self.read_some()?;
                    continue;
                }
                _ => {}
            }
            return Ok(());
        }
    }

    /// Returns the byte that ends lines.
    pub(crate) const fn end(&self) -> u8 {
        self.end
    }

    /// Returns the number of lines so far.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the bytes that hold the last line.
    pub(crate) const fn chunk(&self) -> &Bytes {
        &self.chunk
    }

    /// Returns the next line, or `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<Line>> {
        if self.at >= self.chunk.len() {
            if let Some(excerpt) = self.fill()? {
                self.count += 1;
                return Ok(Some(Line::TooLong(excerpt)));
            }
            if self.chunk.is_empty() {
                return Ok(None);
            }
        }
        self.count += 1;
        let start = self.at;
        let found = memchr::memchr(self.end, &self.chunk[start..]);
        let end = found.map_or(self.chunk.len(), |at| start + at);
        self.at = end + 1;
        if end - start > self.len_max {
            let excerpt = Bytes::copy_from_slice(&self.chunk[start..start + EXCERPT_LEN_MAX]);
            return Ok(Some(Line::TooLong(excerpt)));
        }
        Ok(Some(Line::Whole(start..end)))
    }

    fn read_some(&mut self) -> io::Result<()> {
        self.is_at_end = source::read_some(&mut self.source, &mut self.rest)? == 0;
        Ok(())
    }

    /// Makes a chunk of whole lines, empty at the end. Skips a line that is too long and returns its beginning.
    fn fill(&mut self) -> io::Result<Option<Bytes>> {
        (self.chunk, self.at) = (Bytes::new(), 0);
        let mut searched = 0;
        loop {
            if let Some(at) = memchr::memrchr(self.end, &self.rest[searched..]) {
                self.chunk = self.rest.split_to(searched + at + 1).freeze();
                return Ok(None);
            }
            if self.is_at_end {
                self.chunk = self.rest.split().freeze();
                return Ok(None);
            }
            if self.rest.len() > self.len_max {
                let excerpt = Bytes::copy_from_slice(&self.rest[..EXCERPT_LEN_MAX]);
                self.skip_line()?;
                return Ok(Some(excerpt));
            }
            searched = self.rest.len();
            self.read_some()?;
        }
    }

    /// Drops bytes up to the end of the line.
    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            self.rest.clear();
            self.read_some()?;
            if let Some(at) = memchr::memchr(self.end, &self.rest) {
                let _ = self.rest.split_to(at + 1);
                return Ok(());
            }
            if self.is_at_end {
                return Ok(());
            }
        }
    }
}
