//! Cuts the bytes of a streamed answer into blocks of whole lines, and tells rows from the line
//! that ends the stream. Pure: bytes in, blocks out.

use bytes::{Buf as _, Bytes, BytesMut};
use umbo_api::Problem;
use umbo_api::stream::{End, EndLine, ErrorLine};

use crate::error::Error;

/// Longest line that is taken: a value of 1 MiB whose every byte is escaped, and its keys.
const LINE_LEN_MAX: usize = 16 << 20;

/// Lines on their way in.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    buffer: BytesMut,
    searched: usize,
}

impl Lines {
    /// Adds bytes as they came.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<(), Error> {
        if self.buffer.len() + chunk.len() > 2 * LINE_LEN_MAX {
            return Err(Error::Malformed(format!(
                "a line has more than {LINE_LEN_MAX} bytes"
            )));
        }
        self.buffer.extend_from_slice(chunk);
        Ok(())
    }

    /// Takes all whole lines that are there, with their newlines.
    pub(crate) fn take(&mut self) -> Option<Bytes> {
        let Some(at) = memchr::memrchr(b'\n', &self.buffer[self.searched..]) else {
            self.searched = self.buffer.len();
            return None;
        };
        let lines = self.buffer.split_to(self.searched + at + 1);
        self.searched = self.buffer.len();
        Some(lines.freeze())
    }

    /// Returns whether an unfinished line remains.
    pub(crate) fn has_rest(&self) -> bool {
        self.buffer.has_remaining()
    }
}

/// The last line of a stream.
#[derive(Debug)]
pub(crate) enum LastLine {
    End(End),
    /// The problem, and where to continue after it.
    Error(Box<Problem>, Option<String>),
}

/// Divides a block into its rows and the last line of the stream, if the block has it. Returns the
/// rows, their number, and the last line.
pub(crate) fn divide(mut block: Bytes) -> Result<(Bytes, u64, Option<LastLine>), Error> {
    let (mut rows, mut start) = (0, 0);
    while start < block.len() {
        let end = memchr::memchr(b'\n', &block[start..]).map_or(block.len(), |at| start + at + 1);
        let line = &block[start..end];
        if is_last(line) {
            if !block[end..].trim_ascii().is_empty() {
                return Err(Error::Malformed("bytes follow its last line".to_owned()));
            }
            let last = parse_last(line)?;
            block.truncate(start);
            return Ok((block, rows, Some(last)));
        }
        rows += u64::from(!line.trim_ascii().is_empty());
        start = end;
    }
    Ok((block, rows, None))
}

/// Returns whether a line is the last: its first member is `end` or `error`; no row has these
/// members.
pub(crate) fn is_last(line: &[u8]) -> bool {
    let Some(inside) = line.trim_ascii_start().strip_prefix(b"{") else {
        return false;
    };
    let inside = inside.trim_ascii_start();
    inside.starts_with(b"\"end\"") || inside.starts_with(b"\"error\"")
}

fn parse_last(line: &[u8]) -> Result<LastLine, Error> {
    if let Ok(EndLine { end }) = serde_json::from_slice(line) {
        return Ok(LastLine::End(end));
    }
    let ErrorLine { error, cursor, .. } =
        serde_json::from_slice(line).map_err(|error| Error::json(&error))?;
    Ok(LastLine::Error(Box::new(error), cursor))
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: &str = r#"{"end":{"more":false,"why":"done","rows":2,"bytes":9}}"#;

    #[test]
    fn lines_come_out_whole_however_they_came_in() {
        let text = b"{\"sk\":\"a\"}\n{\"sk\":\"b\"}\nrest";
        for size in 1..=text.len() {
            let (mut lines, mut out) = (Lines::default(), Vec::new());
            for chunk in text.chunks(size) {
                lines.push(chunk).unwrap();
                if let Some(block) = lines.take() {
                    assert_eq!(block.last(), Some(&b'\n'));
                    out.extend_from_slice(&block);
                }
            }
            assert_eq!(out, &text[..22], "{size}");
            assert!(lines.has_rest());
        }
    }

    #[test]
    fn the_end_is_told_from_rows_that_mention_it() {
        let rows = "{\"sk\":\"end\",\"v\":\"{\\\"end\\\":1}\"}\n{\"sk\":\"error\"}\n";
        let (block, count, last) = divide(Bytes::from(format!("{rows}{END}\n"))).unwrap();
        assert_eq!((&*block, count), (rows.as_bytes(), 2));
        assert!(matches!(last, Some(LastLine::End(End { rows: 2, .. }))));
        let (block, count, last) = divide(Bytes::from(rows)).unwrap();
        assert_eq!((&*block, count), (rows.as_bytes(), 2));
        assert!(last.is_none());
    }

    #[test]
    fn nothing_may_follow_the_end() {
        assert!(divide(Bytes::from(format!("{END}\n{{\"sk\":\"a\"}}\n"))).is_err());
        assert!(divide(Bytes::from("{\"end\":7}\n")).is_err());
    }

    #[test]
    fn a_line_without_end_is_refused_before_memory_is_full() {
        let mut lines = Lines::default();
        let chunk = vec![b'x'; 1 << 20];
        let refused = (0..64).find(|_| lines.push(&chunk).is_err());
        assert_eq!(refused, Some(32));
    }
}
