//! A request body as lines (NDJSON), in bounded memory.
//!
//! A line that lies within one piece of the body is returned as a slice of it; only a line that
//! crosses pieces is copied, and no more of it than the longest line allowed.

use bytes::{Bytes, BytesMut};
use http_body::Body;

use super::{BodyError, BodyLimits, next_piece};

/// One line of a body, without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its number, from 1; empty lines count but are not returned.
    pub number: u64,
    /// Its bytes, without `\n` or `\r\n`.
    pub bytes: Bytes,
}

/// Reads a body line by line.
#[derive(Debug)]
pub struct Lines<B> {
    body: B,
    limits: BodyLimits,
    line_len_max: usize,
    piece: Bytes,
    carried: BytesMut,
    is_skipping: bool,
    has_ended: bool,
    len: u64,
    number: u64,
}

impl<B> Lines<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    /// Reads lines of at most `line_len_max` bytes. Refuses a body that announces more than the
    /// limit before it is polled.
    pub fn new(body: B, limits: BodyLimits, line_len_max: usize) -> Result<Self, BodyError> {
        let len_max = limits.len_max;
        if body.size_hint().lower() > len_max {
            return Err(BodyError::TooLarge { len_max });
        }
        Ok(Self {
            body,
            limits,
            line_len_max,
            piece: Bytes::new(),
            carried: BytesMut::new(),
            is_skipping: false,
            has_ended: false,
            len: 0,
            number: 0,
        })
    }

    /// Returns the next line that is not empty, or none at the end of the body.
    ///
    /// After [`BodyError::LineTooLong`] the rest of that line is skipped and reading may go on;
    /// after any other error the body has ended. Cancelling loses nothing.
    pub async fn next(&mut self) -> Result<Option<Line>, BodyError> {
        loop {
            while let Some(end) = memchr::memchr(b'\n', &self.piece) {
                let tail = self.piece.split_to(end + 1).slice(..end);
                if let Some(line) = self.end_line(tail)? {
                    return Ok(Some(line));
                }
            }
            if !self.piece.is_empty() {
                self.carry()?;
            }
            if self.has_ended {
                if self.carried.is_empty() && !self.is_skipping {
                    return Ok(None);
                }
                return self.end_line(Bytes::new());
            }
            match next_piece(&mut self.body, self.limits.idle_timeout).await {
                Ok(Some(piece)) => self.take_piece(piece)?,
                Ok(None) => self.has_ended = true,
                Err(error) => return Err(self.fail(error)),
            }
        }
    }

    fn take_piece(&mut self, piece: Bytes) -> Result<(), BodyError> {
        self.len += piece.len() as u64;
        if self.len > self.limits.len_max {
            let len_max = self.limits.len_max;
            return Err(self.fail(BodyError::TooLarge { len_max }));
        }
        self.piece = piece;
        Ok(())
    }

    fn fail(&mut self, error: BodyError) -> BodyError {
        self.has_ended = true;
        self.is_skipping = false;
        self.piece.clear();
        self.carried.clear();
        error
    }

    /// Keeps the begin of a line whose end is in a later piece.
    fn carry(&mut self) -> Result<(), BodyError> {
        let piece = std::mem::take(&mut self.piece);
        if self.is_skipping {
            return Ok(());
        }
        // One byte more may be the `\r` of the line's end.
        if self.carried.len() + piece.len() > self.line_len_max + 1 {
            self.carried = BytesMut::new();
            self.is_skipping = true;
            return Err(self.too_long(self.number + 1));
        }
        self.carried.extend_from_slice(&piece);
        Ok(())
    }

    /// Ends a line of which `tail` is what lies in the current piece. None where it is empty, or
    /// the rest of a line that was too long.
    fn end_line(&mut self, tail: Bytes) -> Result<Option<Line>, BodyError> {
        self.number += 1;
        if std::mem::take(&mut self.is_skipping) {
            return Ok(None);
        }
        let mut bytes = if self.carried.is_empty() {
            tail
        } else {
            if self.carried.len() + tail.len() > self.line_len_max + 1 {
                self.carried = BytesMut::new();
                return Err(self.too_long(self.number));
            }
            self.carried.extend_from_slice(&tail);
            self.carried.split().freeze()
        };
        if bytes.ends_with(b"\r") {
            bytes.truncate(bytes.len() - 1);
        }
        if bytes.len() > self.line_len_max {
            return Err(self.too_long(self.number));
        }
        Ok((!bytes.is_empty()).then_some(Line {
            number: self.number,
            bytes,
        }))
    }

    fn too_long(&self, line: u64) -> BodyError {
        BodyError::LineTooLong {
            line,
            len_max: self.line_len_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use http_body::Frame;
    use http_body_util::StreamBody;
    use proptest::prelude::*;

    use super::*;

    /// Reads all lines of a body that arrives in these pieces; a line too long is its number.
    fn read(pieces: Vec<Vec<u8>>, line_len_max: usize) -> Vec<Result<(u64, Vec<u8>), u64>> {
        let frames = pieces
            .into_iter()
            .map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::from(piece))));
        let limits = BodyLimits {
            len_max: u64::MAX,
            idle_timeout: Duration::from_secs(1),
        };
        let body = StreamBody::new(futures_util::stream::iter(frames));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async move {
            let mut lines = Lines::new(body, limits, line_len_max).unwrap();
            let mut all = Vec::new();
            loop {
                match lines.next().await {
                    Ok(Some(line)) => all.push(Ok((line.number, line.bytes.to_vec()))),
                    Ok(None) => return all,
                    Err(BodyError::LineTooLong { line, .. }) => all.push(Err(line)),
                    Err(error) => panic!("{error}"),
                }
            }
        })
    }

    #[test]
    fn lines_keep_their_numbers_through_empty_and_overlong_ones() {
        let body = b"one\n\ntwo\r\nthis one is far too long\nthree".to_vec();
        let expected = vec![
            Ok((1, b"one".to_vec())),
            Ok((3, b"two".to_vec())),
            Err(4),
            Ok((5, b"three".to_vec())),
        ];
        assert_eq!(read(vec![body.clone()], 5), expected);
        let bytes = body.iter().map(|&byte| vec![byte]).collect();
        assert_eq!(read(bytes, 5), expected);
    }

    #[test]
    fn an_overlong_last_line_is_told_once() {
        assert_eq!(read(vec![b"123456".to_vec()], 5), vec![Err(1)]);
        assert_eq!(
            read(vec![b"123".to_vec(), b"4567".to_vec()], 5),
            vec![Err(1)]
        );
        assert_eq!(
            read(vec![b"12345\r".to_vec()], 5),
            vec![Ok((1, b"12345".to_vec()))]
        );
    }

    proptest! {
        #[test]
        fn however_it_is_cut_it_reads_as_split_would(
            body in prop::collection::vec(prop::sample::select(b"ab\r\n".to_vec()), 0..60),
            cuts in prop::collection::vec(1_usize..6, 0..60),
        ) {
            let mut expected = Vec::new();
            for (index, line) in body.split(|&byte| byte == b'\n').enumerate() {
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                let number = index as u64 + 1;
                if line.len() > 4 {
                    expected.push(Err(number));
                } else if !line.is_empty() {
                    expected.push(Ok((number, line.to_vec())));
                }
            }
            let mut rest = body.as_slice();
            let mut pieces = Vec::new();
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece.to_vec());
                rest = after;
            }
            pieces.push(rest.to_vec());
            prop_assert_eq!(read(pieces, 4), expected);
        }
    }
}
