//! Reply bodies: nothing, one piece, or a stream that waits for its reader.
//!
//! Invariant of a stream: it ends well only if its sender said so. A sender that is dropped or
//! aborts makes the body fail, so that HTTP/1.1 is cut without a final chunk and HTTP/2 resets the
//! stream; no reader can take half an answer for a whole one.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Body, Frame, SizeHint};

/// Body of an answer.
#[derive(Debug, Default)]
pub enum ReplyBody {
    /// No bytes.
    #[default]
    Empty,
    /// One piece.
    Full(Bytes),
    /// Pieces from a [`ReplySender`].
    Stream(ReplyStream),
    /// Pieces made when the connection asks for them.
    Lazy(LazyPieces),
}

/// Pieces made when the connection asks for them; an error cuts the answer off.
pub struct LazyPieces(Pin<Box<dyn Stream<Item = Result<Bytes, ReplyAborted>> + Send>>);

impl std::fmt::Debug for LazyPieces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LazyPieces")
    }
}

/// Receiving end of a streamed body.
#[derive(Debug)]
pub struct ReplyStream(Arc<Channel>);

/// Sending end of a streamed body.
#[derive(Debug)]
pub struct ReplySender(Arc<Channel>);

/// Says that nobody reads the body any more: stop producing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the client is gone")]
pub struct ReplyClosed;

/// Says that a stream ended before its sender had finished it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the answer was aborted")]
pub struct ReplyAborted;

#[derive(Debug)]
struct Channel {
    bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Bytes>,
    queued_bytes: usize,
    ending: Ending,
    is_closed: bool,
    sender: Option<Waker>,
    reader: Option<Waker>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Ending {
    #[default]
    Open,
    Finished,
    Aborted,
}

impl Channel {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under this lock, and a half-done state could only end the
        // body early.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReplyBody {
    /// Makes a body of pieces that are made when the connection asks for them.
    pub fn lazy(pieces: impl Stream<Item = Result<Bytes, ReplyAborted>> + Send + 'static) -> Self {
        Self::Lazy(LazyPieces(Box::pin(pieces)))
    }

    /// Makes a streamed body. At most `bytes_max` bytes wait in it, and at most one piece more.
    pub fn channel(bytes_max: usize) -> (ReplySender, Self) {
        let channel = Arc::new(Channel {
            bytes_max,
            state: Mutex::default(),
        });
        (
            ReplySender(channel.clone()),
            Self::Stream(ReplyStream(channel)),
        )
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

impl ReplySender {
    /// Sends one piece, once there is room for it. Fails as soon as the reader is gone.
    pub async fn send(&mut self, piece: Bytes) -> Result<(), ReplyClosed> {
        if piece.is_empty() {
            return Ok(());
        }
        let mut piece = Some(piece);
        poll_fn(|cx| {
            let mut state = self.0.lock();
            if state.is_closed {
                return Poll::Ready(Err(ReplyClosed));
            }
            if state.queued_bytes >= self.0.bytes_max {
                state.sender = Some(cx.waker().clone());
                return Poll::Pending;
            }
            if let Some(piece) = piece.take() {
                state.queued_bytes += piece.len();
                state.queue.push_back(piece);
            }
            let reader = state.reader.take();
            drop(state);
            wake(reader);
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Waits until the reader is gone.
    pub async fn closed(&mut self) {
        poll_fn(|cx| {
            let mut state = self.0.lock();
            if state.is_closed {
                return Poll::Ready(());
            }
            state.sender = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Says whether the reader is gone.
    pub fn is_closed(&self) -> bool {
        self.0.lock().is_closed
    }

    /// Ends the body well, after what has been sent.
    pub fn finish(self) {
        self.end(Ending::Finished);
    }

    /// Ends the body as failed, after what has been sent. Dropping the sender does the same.
    pub fn abort(self) {
        self.end(Ending::Aborted);
    }

    fn end(&self, ending: Ending) {
        let mut state = self.0.lock();
        if state.ending == Ending::Open {
            state.ending = ending;
        }
        let reader = state.reader.take();
        drop(state);
        wake(reader);
    }
}

impl Drop for ReplySender {
    fn drop(&mut self) {
        self.end(Ending::Aborted);
    }
}

impl ReplyStream {
    fn poll_piece(&self, cx: &Context<'_>) -> Poll<Option<Result<Bytes, ReplyAborted>>> {
        let mut state = self.0.lock();
        if let Some(piece) = state.queue.pop_front() {
            state.queued_bytes -= piece.len();
            let sender = if state.queued_bytes < self.0.bytes_max {
                state.sender.take()
            } else {
                None
            };
            drop(state);
            wake(sender);
            return Poll::Ready(Some(Ok(piece)));
        }
        match state.ending {
            Ending::Finished => Poll::Ready(None),
            Ending::Aborted => Poll::Ready(Some(Err(ReplyAborted))),
            Ending::Open => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn has_ended(&self) -> bool {
        let state = self.0.lock();
        state.queue.is_empty() && state.ending == Ending::Finished
    }
}

impl Drop for ReplyStream {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        state.queue = VecDeque::new();
        let sender = state.sender.take();
        drop(state);
        wake(sender);
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
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
            Self::Stream(stream) => stream
                .poll_piece(cx)
                .map(|piece| piece.map(|piece| piece.map(Frame::data))),
            Self::Lazy(pieces) => pieces
                .0
                .as_mut()
                .poll_next(cx)
                .map(|piece| piece.map(|piece| piece.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Full(_) | Self::Lazy(_) => false,
            Self::Stream(stream) => stream.has_ended(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream(_) | Self::Lazy(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use http_body_util::BodyExt as _;

    use super::*;

    fn piece(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[tokio::test]
    async fn a_finished_stream_is_whole() {
        let (mut sender, body) = ReplyBody::channel(100);
        sender.send(piece("one ")).await.unwrap();
        sender.send(piece("two")).await.unwrap();
        sender.finish();
        assert_eq!(body.collect().await.unwrap().to_bytes(), "one two");
    }

    #[tokio::test]
    async fn a_sender_waits_for_room_and_learns_that_the_reader_left() {
        let (mut sender, mut body) = ReplyBody::channel(4);
        sender.send(piece("12345")).await.unwrap();
        assert_eq!(sender.send(piece("6")).now_or_never(), None);
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "12345");
        sender.send(piece("6789")).await.unwrap();
        let waiting = tokio::spawn(async move { (sender.send(piece("0")).await, sender) });
        tokio::task::yield_now().await;
        drop(body);
        let (outcome, mut sender) = waiting.await.unwrap();
        assert_eq!(outcome, Err(ReplyClosed));
        assert!(sender.is_closed());
        sender.closed().await;
    }

    #[tokio::test]
    async fn a_stream_nobody_finished_fails_after_what_was_sent() {
        for is_explicit in [true, false] {
            let (mut sender, mut body) = ReplyBody::channel(100);
            sender.send(piece("half")).await.unwrap();
            if is_explicit {
                sender.abort();
            } else {
                drop(sender);
            }
            assert!(!body.is_end_stream());
            assert!(body.frame().await.unwrap().is_ok());
            assert_eq!(body.frame().await.unwrap().unwrap_err(), ReplyAborted);
        }
    }

    #[test]
    fn bodies_know_their_length() {
        assert_eq!(ReplyBody::Empty.size_hint().exact(), Some(0));
        assert_eq!(ReplyBody::from(piece("abc")).size_hint().exact(), Some(3));
        assert!(ReplyBody::from(Bytes::new()).is_end_stream());
        assert_eq!(ReplyBody::channel(1).1.size_hint().exact(), None);
    }
}
