//! Bodies: request bodies read within bounds, reply bodies sent within bounds.
//!
//! Invariant: nothing here buffers more than its caller named, and nothing waits for a client
//! longer than its caller allowed.

mod held;
mod reply;

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};

pub use held::{AnswerHold, HeldBytes, InFlightCounter, InFlightRequest};
pub use reply::{ReplyAborted, ReplyBody};

/// How a request body is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyLimits {
    /// Longest body, in bytes.
    pub len_max: u64,
    /// Time in which all of it must arrive. A pause cannot be told from a trickle.
    pub timeout: Duration,
}

/// Why a request body could not be read. The codes are those of `umbo_api::ErrorCode`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The body is, or says it is, longer than allowed (`BodyTooLarge`).
    #[error("the body is longer than {len_max} bytes")]
    TooLarge {
        /// Longest body, in bytes.
        len_max: u64,
    },
    /// The body did not arrive in time (`RequestTimeout`).
    #[error("the body did not arrive within {} ms", timeout.as_millis())]
    TimedOut {
        /// The time it had.
        timeout: Duration,
    },
    /// The connection ended, or broke its framing, before the body did (`ClientClosed`).
    #[error("the body was cut off: {reason}")]
    Aborted {
        /// What the connection said.
        reason: String,
    },
}

/// Reads a whole body.
///
/// One that announces more than `len_max` bytes is refused before it is polled, so that a client
/// waiting for `100 Continue` never sends it. A body of one piece is returned without a copy.
pub async fn read_bounded<B>(mut body: B, limits: BodyLimits) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let BodyLimits { len_max, timeout } = limits;
    let announced = body.size_hint().lower();
    if announced > len_max {
        return Err(BodyError::TooLarge { len_max });
    }
    let reading = read(&mut body, len_max, announced);
    tokio::time::timeout(timeout, reading)
        .await
        .map_err(|_| BodyError::TimedOut { timeout })?
}

async fn read<B>(body: &mut B, len_max: u64, announced: u64) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let Some(first) = next_piece(body).await? else {
        return Ok(Bytes::new());
    };
    if first.len() as u64 > len_max {
        return Err(BodyError::TooLarge { len_max });
    }
    if body.is_end_stream() {
        return Ok(first);
    }
    let Some(second) = next_piece(body).await? else {
        return Ok(first);
    };
    let mut whole = BytesMut::with_capacity(usize::try_from(announced).unwrap_or(0));
    let mut piece = Some(first);
    let mut following = Some(second);
    while let Some(bytes) = piece {
        if (whole.len() + bytes.len()) as u64 > len_max {
            return Err(BodyError::TooLarge { len_max });
        }
        whole.extend_from_slice(&bytes);
        piece = match following.take() {
            Some(second) => Some(second),
            None => next_piece(body).await?,
        };
    }
    Ok(whole.freeze())
}

/// Waits for the next data of a body; none at its end.
pub async fn next_piece<B>(body: &mut B) -> Result<Option<Bytes>, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    loop {
        let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
        match frame.map(|frame| frame.map(Frame::into_data)) {
            None => return Ok(None),
            Some(Ok(Ok(data))) if data.is_empty() => {}
            Some(Ok(Ok(data))) => return Ok(Some(data)),
            Some(Ok(Err(_trailers))) => {}
            Some(Err(error)) => {
                return Err(BodyError::Aborted {
                    reason: error.to_string(),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::task::{Context, Poll};

    use http_body_util::{Full, StreamBody};

    use super::*;

    const LIMITS: BodyLimits = BodyLimits {
        len_max: 10,
        timeout: Duration::from_millis(20),
    };

    fn pieces(texts: &[&'static str]) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
        let frames: Vec<_> = texts
            .iter()
            .map(|text| Ok(Frame::data(Bytes::from_static(text.as_bytes()))))
            .collect();
        StreamBody::new(futures_util::stream::iter(frames))
    }

    #[tokio::test]
    async fn a_body_of_one_piece_is_not_copied() {
        let text = Bytes::from_static(b"0123456789");
        let read = read_bounded(Full::new(text.clone()), LIMITS).await.unwrap();
        assert_eq!((read.as_ptr(), read.len()), (text.as_ptr(), 10));
        assert!(read_bounded(pieces(&[]), LIMITS).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn pieces_are_joined_up_to_the_limit() {
        let read = read_bounded(pieces(&["01234", "", "567", "89"]), LIMITS).await;
        assert_eq!(read.unwrap(), "0123456789");
        let read = read_bounded(pieces(&["01234", "567", "890"]), LIMITS).await;
        assert_eq!(read, Err(BodyError::TooLarge { len_max: 10 }));
    }

    /// A body that says how long it is and must not be asked for it.
    struct Announced;

    impl Body for Announced {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            panic!("polled a body that is too long by its own word")
        }

        fn size_hint(&self) -> http_body::SizeHint {
            http_body::SizeHint::with_exact(11)
        }
    }

    #[tokio::test]
    async fn an_announced_excess_is_refused_unread() {
        let read = read_bounded(Announced, LIMITS).await;
        assert_eq!(read, Err(BodyError::TooLarge { len_max: 10 }));
    }

    #[tokio::test]
    async fn silence_and_a_cut_are_told_apart() {
        let silent = ReplyBody::stream(futures_util::stream::pending());
        let read = read_bounded(silent, LIMITS).await;
        assert!(matches!(read, Err(BodyError::TimedOut { .. })));
        let cut = ReplyBody::stream(futures_util::stream::iter([Err(ReplyAborted)]));
        let read = read_bounded(cut, LIMITS).await;
        assert!(matches!(read, Err(BodyError::Aborted { .. })));
    }
}
