//! The socket under hyper: replays the bytes that protocol detection has read, keeps back the bare
//! error answers that hyper writes by itself, and records whether the client accepts the bytes sent
//! to it.
//!
//! hyper answers a request head that it cannot parse with a status and an empty body. Such an
//! answer is recognised by two things together: no call was made since all earlier answers left
//! (so these bytes are no handler's), and they begin with a 4xx status line. It is swallowed;
//! `refusal` then answers with a problem body in its place.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::ConnectionActivity;

/// Answers up to this length are written with one plain write instead of a gathering one.
const COALESCE_LEN: usize = 1_024;

/// A socket, or a TLS stream over one, and its recorded activity.
pub(super) struct GuardedIo<S> {
    inner: S,
    replay: Bytes,
    signals: Arc<ConnectionActivity>,
    settled_calls: u64,
    is_http1: bool,
    refused_status: Option<u16>,
}

impl<S> GuardedIo<S> {
    /// Wraps a socket; `replay` has already been read from it. Only HTTP/1.1 answers can be told
    /// apart, so only there refusals are kept back.
    pub(super) fn new(
        inner: S,
        replay: Bytes,
        signals: Arc<ConnectionActivity>,
        is_http1: bool,
    ) -> Self {
        Self {
            inner,
            replay,
            signals,
            settled_calls: 0,
            is_http1,
            refused_status: None,
        }
    }

    /// Returns the status of the answer that was kept back.
    pub(super) fn refused_status(&self) -> Option<u16> {
        self.refused_status
    }

    pub(super) fn into_inner(self) -> S {
        self.inner
    }

    /// Returns whether these bytes are to be swallowed, and remembers the status if they are.
    fn keeps_back(&mut self, bytes: &[u8]) -> bool {
        if self.refused_status.is_some() {
            return true;
        }
        if !self.is_http1 || !self.signals.has_settled(self.settled_calls) {
            return false;
        }
        self.refused_status = client_error_status(bytes);
        self.refused_status.is_some()
    }

    /// On HTTP/2 bytes without a request mean nothing: pings and window updates continue while it
    /// idles.
    fn note_read(&self) {
        if self.is_http1 {
            self.signals.note_read();
        }
    }

    fn note<T>(&self, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_pending() {
            self.signals.note_blocked();
        } else {
            self.signals.note_progress();
        }
        outcome
    }

    fn note_written(&self, outcome: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(len)) = &outcome {
            self.signals.note_written(*len);
        }
        self.note(outcome)
    }
}

/// Reads the status of an answer that begins with an HTTP/1.x status line of 400 to 499.
fn client_error_status(bytes: &[u8]) -> Option<u16> {
    let rest = bytes.strip_prefix(b"HTTP/1.")?;
    match rest {
        [
            b'0' | b'1',
            b' ',
            b'4',
            tens @ b'0'..=b'9',
            ones @ b'0'..=b'9',
            b' ',
            ..,
        ] => Some(400 + u16::from(tens - b'0') * 10 + u16::from(ones - b'0')),
        _ => None,
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for GuardedIo<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.replay.has_remaining() {
            let len = this.replay.len().min(buffer.remaining());
            buffer.put_slice(&this.replay.split_to(len));
            this.note_read();
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            this.note_read();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for GuardedIo<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.keeps_back(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        let outcome = Pin::new(&mut this.inner).poll_write(cx, bytes);
        this.note_written(outcome)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let len = slices.iter().map(|slice| slice.len()).sum();
        if this.keeps_back(slices.first().map_or(&[], |first| first)) {
            return Poll::Ready(Ok(len));
        }
        let outcome = if len <= COALESCE_LEN {
            let mut whole = [0; COALESCE_LEN];
            let mut end = 0;
            for slice in slices {
                whole[end..end + slice.len()].copy_from_slice(slice);
                end += slice.len();
            }
            Pin::new(&mut this.inner).poll_write(cx, &whole[..len])
        } else {
            Pin::new(&mut this.inner).poll_write_vectored(cx, slices)
        };
        this.note_written(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.refused_status.is_some() {
            return Poll::Ready(Ok(()));
        }
        let outcome = Pin::new(&mut this.inner).poll_flush(cx);
        if outcome.is_ready()
            && let Some(calls) = this.signals.settled_calls()
        {
            this.settled_calls = calls;
        }
        this.note(outcome)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.refused_status.is_some() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.inner).poll_shutdown(cx)
    }
}
