//! Bodies: request bodies read within bounds, reply bodies sent within bounds.
//!
//! Invariant: nothing here buffers more than its caller named, and nothing waits for a client
//! longer than its caller allowed.

mod arriving;
mod held;
mod reply;

use std::fmt::Display;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};

use crate::bounds::CROWDED_RATE_MIN;
use crate::memory::{Full, MemoryPermit};

pub use arriving::{BodyPace, BodyRoom, GatheredBody};
#[cfg(test)]
pub(crate) use held::NoRequests;
pub use held::{AnswerHold, HeldBytes, InFlightCounter, InFlightRequest};
pub use reply::{ReplyAborted, ReplyBody};

/// The body of a request, as its bytes arrive.
pub trait ArrivingBody: Body<Data = Bytes, Error: Display> + Unpin {}

impl<B: Body<Data = Bytes, Error: Display> + Unpin> ArrivingBody for B {}

/// How a request body is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyLimits {
    /// Longest body, in bytes.
    pub len_max: u64,
    /// Time for all of it to arrive, without the waits for memory.
    pub timeout: Duration,
}

/// Why a request body could not be read. Each variant names its `umbo_api::ErrorCode`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The body is longer than allowed, or announces that it is (`BodyTooLarge`).
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
    /// There is no memory for it (`BodyMemoryFull`).
    #[error("{}", full_text(*.0))]
    NoRoom(Full),
    /// It came too slowly while others waited for its memory or place (`BodyMemoryFull`, or `TooManyRequestsInFlight`).
    #[error(
        "the body came at less than {} KiB/s while others waited: {}",
        CROWDED_RATE_MIN >> 10,
        full_text(*.0)
    )]
    GaveWay(Full),
    /// The connection ended, or broke its framing, before the body did (`ClientClosed`).
    #[error("the body was cut off: {reason}")]
    Aborted {
        /// The error of the connection.
        reason: String,
    },
}

const fn full_text(full: Full) -> &'static str {
    match full {
        Full::Holder => {
            "the request bodies of this caller have reached its share of the memory limit ('server.body_memory')"
        }
        Full::Server => "the memory limit for request bodies is reached ('server.body_memory')",
        Full::Requests => {
            "the limit of requests in flight is reached ('server.requests_in_flight_max')"
        }
    }
}

/// Reads a whole body, and returns its memory.
///
/// A body that announces more than `len_max` bytes is refused before it is polled. So a client that waits for `100
/// Continue` never sends it. A body of one piece is returned without a copy.
pub async fn read_bounded<B: ArrivingBody>(
    body: &mut B,
    limits: BodyLimits,
    room: &BodyRoom<'_>,
) -> Result<(Bytes, Option<MemoryPermit>), BodyError> {
    let BodyLimits { len_max, timeout } = limits;
    let hint = body.size_hint();
    let check = |len: u64| {
        if len > len_max {
            return Err(BodyError::TooLarge { len_max });
        }
        Ok(())
    };
    check(hint.lower())?;
    let room_max = hint.upper().map_or(len_max, |len| len.min(len_max));
    let room_max = usize::try_from(room_max).unwrap_or(usize::MAX);
    let (mut pace, mut gathered) = (BodyPace::whole(timeout), GatheredBody::default());
    let Some(first) = pace.next(body, None, room).await? else {
        return Ok((Bytes::new(), None));
    };
    check(first.len() as u64)?;
    gathered.grow(first.len(), room_max, room).await?;
    let following = if body.is_end_stream() {
        None
    } else {
        pace.next(body, gathered.held(), room).await?
    };
    let Some(mut piece) = following else {
        return Ok((first, gathered.into_permit()));
    };
    gathered.push(&first, room_max);
    drop(first);
    loop {
        check((gathered.len() + piece.len()) as u64)?;
        gathered.grow(piece.len(), room_max, room).await?;
        gathered.push(&piece, room_max);
        match pace.next(body, gathered.held(), room).await? {
            Some(next) => piece = next,
            None => return Ok(gathered.take()),
        }
    }
}

/// Waits for the next data of a body; `None` at its end.
pub async fn next_piece<B: ArrivingBody>(body: &mut B) -> Result<Option<Bytes>, BodyError> {
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
    use crate::bounds::BODY_PARTS;
    use crate::memory::CallerMemory;

    const LIMITS: BodyLimits = BodyLimits {
        len_max: 10,
        timeout: Duration::from_millis(20),
    };

    async fn read_bounded(
        mut body: impl Body<Data = Bytes, Error = impl Display> + Unpin,
        limits: BodyLimits,
    ) -> Result<Bytes, BodyError> {
        let room = BodyRoom {
            memory: &CallerMemory::new(1 << 20, BODY_PARTS),
            caller: 1,
            patience: Duration::ZERO,
            requests: &NoRequests,
        };
        let (bytes, held) = super::read_bounded(&mut body, limits, &room).await?;
        assert!(held.is_none(), "short bodies hold nothing");
        Ok(bytes)
    }

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
