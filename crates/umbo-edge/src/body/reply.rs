//! Reply bodies: nothing, one piece, or pieces made when the connection asks for them.
//!
//! A piece of a stream is made when there is room for it, so a slow client holds one piece and no
//! more. A stream that fails cuts HTTP/1.1 without a final chunk and resets the stream of HTTP/2;
//! no reader can take half an answer for a whole one.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Body, Frame, SizeHint};

use super::held::HeldBytes;

/// A stream failed half-way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the answer was aborted")]
pub struct ReplyAborted;

/// Body of an answer.
#[derive(Debug, Default)]
pub enum ReplyBody {
    /// No bytes.
    #[default]
    Empty,
    /// One piece.
    Full(Bytes),
    /// One piece, with a hold until the connection has taken it.
    Held(HeldBytes),
    /// Pieces made when the connection asks for them.
    Stream(ReplyPieces),
}

/// Pieces made when the connection asks for them; an error cuts the answer off.
pub struct ReplyPieces(Pin<Box<dyn Stream<Item = Result<Bytes, ReplyAborted>> + Send>>);

impl std::fmt::Debug for ReplyPieces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pieces")
    }
}

impl ReplyBody {
    /// Makes a body of a stream of pieces.
    pub fn stream(
        pieces: impl Stream<Item = Result<Bytes, ReplyAborted>> + Send + 'static,
    ) -> Self {
        Self::Stream(ReplyPieces(Box::pin(pieces)))
    }
}

impl From<Bytes> for ReplyBody {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() {
            Self::Empty
        } else {
            Self::Full(bytes)
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = ReplyAborted;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReplyAborted>>> {
        let this = self.get_mut();
        match this {
            Self::Empty => Poll::Ready(None),
            Self::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                *this = Self::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Self::Held(held) => {
                let held = std::mem::take(held);
                *this = Self::Empty;
                let bytes = if held.is_large() {
                    held.into_bytes()
                } else {
                    held.into_unheld()
                };
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Self::Stream(pieces) => {
                let piece = pieces.0.as_mut().poll_next(cx);
                piece.map(|piece| piece.map(|piece| piece.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Empty)
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Held(held) => SizeHint::with_exact(held.bytes.len() as u64),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::BodyExt as _;

    use super::*;

    fn piece(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[tokio::test]
    async fn a_stream_is_whole() {
        let pieces = stream::iter([Ok(piece("one ")), Ok(piece("two"))]);
        let body = ReplyBody::stream(pieces);
        assert_eq!(body.collect().await.unwrap().to_bytes(), "one two");
    }

    #[tokio::test]
    async fn a_stream_that_fails_says_so_after_what_was_sent() {
        let mut body = ReplyBody::stream(stream::iter([Ok(piece("half")), Err(ReplyAborted)]));
        assert!(!body.is_end_stream());
        assert!(body.frame().await.unwrap().is_ok());
        assert_eq!(body.frame().await.unwrap().unwrap_err(), ReplyAborted);
    }

    #[test]
    fn bodies_know_their_length() {
        assert_eq!(ReplyBody::Empty.size_hint().exact(), Some(0));
        assert_eq!(ReplyBody::from(piece("abc")).size_hint().exact(), Some(3));
        assert!(ReplyBody::from(Bytes::new()).is_end_stream());
        assert_eq!(ReplyBody::stream(stream::empty()).size_hint().exact(), None);
    }
}
