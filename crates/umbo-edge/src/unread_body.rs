//! The rest of a request body that was not read to its end.
//!
//! A connection serves its next request once the body before it has been read. A short body is read and forgotten, so
//! that a refusal does not cost the client its connection. Otherwise the answer says that the connection ends (RFC
//! 9112, section 9.6): else the client would send its next request in vain.
//!
//! A long body is read and forgotten, too, but after the answer has left: most clients send all of a body before they
//! read. If the connection is closed or the stream is reset meanwhile, such a client loses the answer. `drive` reads
//! the rest on HTTP/1.1. On HTTP/2 the answer ends with the body.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT};
use http::request::Parts;
use http::{HeaderValue, Response, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::body::ReplyBody;

/// Longest body that is read before the answer, only to be forgotten.
const LEN_MAX: u64 = 64 << 10;
/// Longest wait for such a body. It is on its way already, unless the client is slow.
const WAIT: Duration = Duration::from_millis(100);

/// Bounds on refused bodies that are read after their answers.
pub(crate) mod refused {
    use std::time::Duration;

    use tokio::sync::Semaphore;

    use crate::bounds::REFUSED_BODIES_MAX;

    /// Permits are bodies that are read at a time.
    pub(crate) static BODIES: Semaphore = Semaphore::const_new(REFUSED_BODIES_MAX);
    /// Most bytes of one: twice the longest body of any route, so that a client that sends too much can read that it
    /// did.
    pub(crate) const LEN_MAX: u64 = 512 << 20;
    /// Longest time for one, as for a body that is served.
    pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
    /// Longest pause in one.
    pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(5);
}

/// Reads the rest of a body, or makes the answer say that the connection ends.
pub async fn drain_request_body<B>(
    head: &Parts,
    body: Option<B>,
    response: &mut Response<ReplyBody>,
) where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    if body.as_ref().is_some_and(Body::is_end_stream) {
        return;
    }
    let is_own_stream = head.version >= Version::HTTP_2;
    if let Some(mut body) = body {
        let hint = body.size_hint();
        let is_long = hint.lower() > LEN_MAX;
        // A read would ask the client for the body.
        let is_held_back = hint.exact().is_some() && head.headers.contains_key(EXPECT);
        if !is_long && !is_held_back && forget(&mut body, LEN_MAX, WAIT, WAIT).await {
            return;
        }
        if is_own_stream && !is_held_back {
            end_with(body, response);
        }
    }
    if !is_own_stream {
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Ends an answer when the body of its request has ended. A stream of HTTP/2 is reset with its unread body, and the
/// reset may overtake the answer.
fn end_with<B>(body: B, response: &mut Response<ReplyBody>)
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    let Ok(permit) = refused::BODIES.try_acquire() else {
        return;
    };
    if let Some(len) = response.body().size_hint().exact() {
        let headers = response.headers_mut();
        headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
    }
    let answer = std::mem::take(response.body_mut());
    let pieces = stream::unfold((answer, body, permit), |mut state| async move {
        let (answer, body, _) = &mut state;
        if let Some(frame) = answer.frame().await {
            let piece = frame.map(|frame| frame.into_data().unwrap_or_default());
            return Some((piece, state));
        }
        forget(body, refused::LEN_MAX, refused::PAUSE_MAX, refused::TIMEOUT).await;
        None
    });
    *response.body_mut() = ReplyBody::stream(pieces);
}

/// Reads a body of up to `len_max` bytes; returns whether it has ended.
async fn forget<B>(body: &mut B, len_max: u64, pause_max: Duration, time_max: Duration) -> bool
where
    B: Body<Data = Bytes> + Unpin,
{
    let read = async {
        let mut len = 0;
        while let Ok(frame) = timeout(pause_max, body.frame()).await {
            len += match frame.map(|frame| frame.map(Frame::into_data)) {
                None => return true,
                Some(Ok(Ok(data))) => data.len() as u64,
                Some(Ok(Err(_trailers))) => 0,
                Some(Err(_)) => return false,
            };
            if len > len_max {
                return false;
            }
        }
        false
    };
    timeout(time_max, read).await.unwrap_or(false)
}

/// A body that comes back when its reader drops it.
#[derive(Debug)]
pub struct Lent<B> {
    body: Option<B>,
    back: Option<oneshot::Sender<B>>,
}

impl<B> Lent<B> {
    /// Lends a body; it comes back to the receiver.
    pub fn new(body: B) -> (Self, oneshot::Receiver<B>) {
        let (back, receiver) = oneshot::channel();
        let lent = Self {
            body: Some(body),
            back: Some(back),
        };
        (lent, receiver)
    }
}

impl<B> Drop for Lent<B> {
    fn drop(&mut self) {
        if let (Some(body), Some(back)) = (self.body.take(), self.back.take()) {
            // The client may have left.
            let _ = back.send(body);
        }
    }
}

impl<B: Body + Unpin> Body for Lent<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match &mut self.get_mut().body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::bounds::REFUSED_BODIES_MAX;

    #[tokio::test(start_paused = true)]
    async fn no_more_refused_bodies_are_read_than_may_be() {
        let (mut head, ()) = Request::new(()).into_parts();
        head.version = Version::HTTP_2;
        let mut answers = Vec::new();
        for at in 0..=REFUSED_BODIES_MAX {
            let body = ReplyBody::stream(stream::pending());
            let mut answer = Response::new(ReplyBody::Empty);
            drain_request_body(&head, Some(body), &mut answer).await;
            let is_read = !answer.body().is_end_stream();
            assert_eq!(is_read, at < REFUSED_BODIES_MAX, "{at}");
            answers.push(answer);
        }
        drop(answers);
        assert_eq!(refused::BODIES.available_permits(), REFUSED_BODIES_MAX);
    }
}
