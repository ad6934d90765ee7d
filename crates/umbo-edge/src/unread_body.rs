//! What becomes of a request body that was not read to its end.
//!
//! A connection serves its next request once the body before it is out of the way. A short one is
//! read and forgotten, so that a refusal costs the client no connection. Otherwise the answer says
//! that the connection ends (RFC 9112, section 9.6): a client that is not told would send its next
//! request to nobody.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, EXPECT};
use http::request::Parts;
use http::{HeaderValue, Response, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::sync::oneshot;

use crate::body::ReplyBody;

/// Longest body that is read only to be forgotten.
const LEN_MAX: u64 = 64 << 10;
/// Longest wait for it. It is on its way already, unless the client is slow.
const WAIT: Duration = Duration::from_millis(100);

/// Gets the rest of a body out of the way, or has the answer say that the connection ends.
pub async fn drain_request_body<B>(
    head: &Parts,
    body: Option<B>,
    response: &mut Response<ReplyBody>,
) where
    B: Body<Data = Bytes> + Unpin,
{
    if body.as_ref().is_some_and(Body::is_end_stream) {
        return;
    }
    let is_own_stream = head.version >= Version::HTTP_2;
    if let Some(body) = body {
        let hint = body.size_hint();
        let is_long = hint.lower() > LEN_MAX;
        // To read would be to ask for it.
        let is_held_back = hint.exact().is_some() && head.headers.contains_key(EXPECT);
        if !is_long && !is_held_back && forget(body).await {
            return;
        }
    }
    // A stream of HTTP/2 ends alone. It is reset with its unread body, and the reset may overtake
    // the answer: so what is short is read there, too.
    if !is_own_stream {
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Reads a body; says whether that was all of it.
async fn forget<B>(mut body: B) -> bool
where
    B: Body<Data = Bytes> + Unpin,
{
    let read = async {
        let mut len = 0;
        while let Some(frame) = body.frame().await {
            len += match frame.map(Frame::into_data) {
                Ok(Ok(data)) => data.len() as u64,
                Ok(Err(_trailers)) => 0,
                Err(_) => return false,
            };
            if len > LEN_MAX {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(WAIT, read).await.unwrap_or(false)
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
