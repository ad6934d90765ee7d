//! Messages of a stream, cut out of the bytes as they arrive.
//!
//! Nothing is reserved on a peer's word alone: memory grows with what has arrived, a message longer
//! than the window waits for a place of its own first, and one that has begun arrives in time or
//! ends its stream. A message that lies within one piece of input is not copied.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body::Body;
use hyper::body::Incoming;
use tokio::sync::{AcquireError, OwnedSemaphorePermit};
use tokio::time::{Sleep, sleep};
use umbo_protocol::FRAME_LEN_MAX;

use crate::admission::Admission;
use crate::limits::SMALL_MESSAGE_LEN_MAX;
use crate::outbox::PREFIX_LEN;

/// A message, and the place it takes where it is long.
pub(crate) struct Arrived {
    pub(crate) frame: Bytes,
    pub(crate) place: Option<OwnedSemaphorePermit>,
}

/// Why nothing more is read from a stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    #[error("compressed messages are not understood")]
    Compressed,
    #[error("a message of {0} bytes; at most {FRAME_LEN_MAX} are allowed")]
    TooLong(usize),
    #[error("a message did not arrive in time")]
    Stalled,
    #[error("the stream ended within a message")]
    Cut,
    #[error("the connection failed: {0}")]
    Connection(String),
}

type Acquire = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// The incoming side of a stream.
pub(crate) struct Messages {
    body: Incoming,
    timeout: Duration,
    /// What has arrived and belongs to no message yet.
    rest: Bytes,
    /// What there is of the message under way, its prefix not included.
    begun: BytesMut,
    prefix: [u8; PREFIX_LEN],
    prefix_len: usize,
    acquire: Option<Acquire>,
    place: Option<OwnedSemaphorePermit>,
    /// Runs while a message is under way.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Messages {
    pub(crate) fn new(body: Incoming, timeout: Duration) -> Self {
        Self {
            body,
            timeout,
            rest: Bytes::new(),
            begun: BytesMut::new(),
            prefix: [0; PREFIX_LEN],
            prefix_len: 0,
            acquire: None,
            place: None,
            timer: None,
        }
    }

    /// Returns the next message; none once the peer has said everything.
    pub(crate) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
        admission: &Admission,
    ) -> Poll<Option<Result<Arrived, Broken>>> {
        loop {
            match self.take(context, admission) {
                Poll::Ready(Ok(Some(arrived))) => {
                    self.timer = None;
                    return Poll::Ready(Some(Ok(arrived)));
                }
                Poll::Ready(Err(broken)) => return Poll::Ready(Some(Err(broken))),
                // Everything that has arrived is used up, or there is no room for the next.
                Poll::Ready(Ok(None)) => {}
                Poll::Pending => return self.poll_timer(context),
            }
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Pending => return self.poll_timer(context),
                Poll::Ready(None) if self.is_between() => return Poll::Ready(None),
                Poll::Ready(None) => return Poll::Ready(Some(Err(Broken::Cut))),
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Some(Err(Broken::Connection(error.to_string()))));
                }
                Poll::Ready(Some(Ok(frame))) => {
                    self.rest = frame.into_data().unwrap_or_default();
                }
            }
        }
    }

    /// Says whether no message is under way.
    fn is_between(&self) -> bool {
        self.prefix_len == 0
    }

    /// Takes a message out of what has arrived; none where more has to arrive first.
    fn take(
        &mut self,
        context: &mut Context<'_>,
        admission: &Admission,
    ) -> Poll<Result<Option<Arrived>, Broken>> {
        if self.prefix_len < PREFIX_LEN && !self.take_prefix(admission)? {
            return Poll::Ready(Ok(None));
        }
        if let Some(acquire) = &mut self.acquire {
            self.place = ready!(acquire.as_mut().poll(context)).ok();
            self.acquire = None;
        }
        let len = self.message_len();
        let frame = if self.begun.is_empty() && self.rest.len() >= len {
            self.rest.split_to(len)
        } else {
            let missing = len - self.begun.len();
            let piece = self.rest.split_to(missing.min(self.rest.len()));
            self.begun.extend_from_slice(&piece);
            if self.begun.len() < len {
                return Poll::Ready(Ok(None));
            }
            self.begun.split().freeze()
        };
        self.prefix_len = 0;
        Poll::Ready(Ok(Some(Arrived {
            frame,
            place: self.place.take(),
        })))
    }

    /// Reads the prefix of the next message; says whether all of it has arrived.
    fn take_prefix(&mut self, admission: &Admission) -> Result<bool, Broken> {
        let len = self.rest.len().min(PREFIX_LEN - self.prefix_len);
        let end = self.prefix_len + len;
        self.rest
            .copy_to_slice(&mut self.prefix[self.prefix_len..end]);
        self.prefix_len = end;
        if end < PREFIX_LEN {
            return Ok(false);
        }
        if self.prefix[0] != 0 {
            return Err(Broken::Compressed);
        }
        let len = self.message_len();
        if len > FRAME_LEN_MAX {
            return Err(Broken::TooLong(len));
        }
        if len > SMALL_MESSAGE_LEN_MAX {
            let (places, permits) = admission.long_message(len);
            self.acquire = Some(Box::pin(places.acquire_many_owned(permits)));
        }
        Ok(true)
    }

    fn message_len(&self) -> usize {
        let [_, len @ ..] = self.prefix;
        u32::from_be_bytes(len) as usize
    }

    /// Waits; a message that has begun ends the stream where it takes too long.
    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Arrived, Broken>>> {
        if self.is_between() {
            return Poll::Pending;
        }
        let timeout = self.timeout;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Some(Err(Broken::Stalled)))
    }
}
