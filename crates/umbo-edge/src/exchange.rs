//! One request and its answer, from the handler's first step to the last byte handed over.
//!
//! Refuses a request head that exceeds a limit before the handler sees it, and keeps the connection's
//! [`ConnectionActivity`] right on every way out: answer sent, client gone, handler panicked.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use umbo_api::ErrorCode;

use super::body::{HeldBytes, ReplyAborted, ReplyBody};
use super::connection::{Connection, ConnectionActivity, Protocol};
use super::field_lines;
use super::handler::{Handler, Observer};
use super::limits::EdgeLimits;
use super::refusal;

/// Longest piece of an answer that HTTP/2 is given at once: it is buffered there until the client
/// opens its window.
const FRAME_LEN_MAX: usize = 64 << 10;

/// The state that all exchanges of one connection share.
pub(super) struct Session<H> {
    pub(super) handler: Arc<H>,
    pub(super) connection: Arc<Connection>,
    pub(super) signals: Arc<ConnectionActivity>,
    pub(super) limits: Arc<EdgeLimits>,
    pub(super) observer: Arc<dyn Observer>,
    /// Ticks of the listener.
    pub(super) ticks: Arc<AtomicU32>,
    /// When the wait for the first request began.
    pub(super) began: Instant,
}

impl<H> Session<H> {
    /// Opens the exchange of a request.
    pub(super) fn open_exchange(&self) -> Exchange {
        Exchange::open(self.signals.clone(), self.ticks.load(Relaxed))
    }
}

/// Answers one request. Not an `async fn`: the large head is not moved after this.
pub(super) fn answer<H: Handler>(
    session: Arc<Session<H>>,
    request: Request<Incoming>,
    exchange: Exchange,
) -> impl Future<Output = Result<Response<ExchangeBody>, Infallible>> {
    let (mut head, body) = request.into_parts();
    field_lines::join(&mut head.headers);
    async move { Ok(answer_parts(&session, &head, body, exchange).await) }
}

async fn answer_parts<H: Handler>(
    session: &Session<H>,
    head: &Parts,
    body: Incoming,
    mut exchange: Exchange,
) -> Response<ExchangeBody> {
    let mut response = match check_head(head, &session.limits) {
        None => session.handler.call(head, body, &session.connection).await,
        Some((code, detail)) => {
            session.observer.refused(code);
            let mut response = refuse(code, detail);
            if session.connection.protocol == Protocol::Http1 {
                let headers = response.headers_mut();
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
    };
    if head.method == Method::HEAD {
        leave_body_out(&mut response);
    }
    exchange.set_waiting(false);
    let is_http2 = session.connection.protocol == Protocol::Http2;
    response.map(|reply| ExchangeBody {
        reply: if is_http2 { in_frames(reply) } else { reply },
        is_http2,
        exchange,
    })
}

/// Ties the hold of a long body to its bytes, so that they can be handed over frame by frame.
fn in_frames(reply: ReplyBody) -> ReplyBody {
    match reply {
        ReplyBody::Held(held) if held.bytes.len() > FRAME_LEN_MAX => {
            ReplyBody::Full(held.into_bytes())
        }
        reply => reply,
    }
}

/// Leaves the body out and keeps its length. hyper does so on HTTP/1 only, and drops a length of zero. `Empty` gets no
/// length, because the answer to `GET` may be a stream.
fn leave_body_out(response: &mut Response<ReplyBody>) {
    let body = std::mem::take(response.body_mut());
    if let (ReplyBody::Full(_) | ReplyBody::Held(_), Some(len)) = (&body, body.size_hint().exact())
    {
        let length = response.headers_mut().entry(header::CONTENT_LENGTH);
        length.or_insert_with(|| HeaderValue::from(len));
    }
}

fn check_head(head: &Parts, limits: &EdgeLimits) -> Option<(ErrorCode, String)> {
    let target = head.uri.path_and_query();
    if target.is_some_and(|target| target.as_str().len() > limits.target_len_max) {
        return Some((ErrorCode::UriTooLong, refusal::target_detail(limits)));
    }
    let headers = &head.headers;
    let (headers_len, hosts) = measure(headers);
    if headers.len() > limits.header_fields_max || headers_len > limits.headers_len_max {
        return Some((ErrorCode::HeadersTooLarge, refusal::headers_detail(limits)));
    }
    // RFC 9112, section 3.2; HTTP/2 has `:authority` in its place.
    let is_missing = hosts == 0 && head.version == Version::HTTP_11;
    if is_missing || hosts > 1 {
        let detail = format!("a request of HTTP/1.1 has one Host field, this one has {hosts}");
        return Some((ErrorCode::InvalidRequest, detail));
    }
    None
}

/// Returns the length of the header section and the number of its Host fields.
fn measure(headers: &HeaderMap) -> (usize, usize) {
    headers.iter().fold((0, 0), |(len, hosts), (name, value)| {
        let field_len = name.as_str().len() + value.len() + ": \r\n".len();
        (len + field_len, hosts + usize::from(name == header::HOST))
    })
}

fn refuse(code: ErrorCode, detail: String) -> Response<ReplyBody> {
    let (request_id, body) = refusal::problem(code, detail);
    let mut response = Response::new(ReplyBody::Full(body.into()));
    *response.status_mut() =
        StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(umbo_api::problem::CONTENT_TYPE),
    );
    if let Ok(request_id) = HeaderValue::try_from(request_id) {
        headers.insert(umbo_api::header::REQUEST_ID, request_id);
    }
    headers.insert(umbo_api::header::RU, HeaderValue::from_static("0"));
    response
}

/// Counts itself as open from the call until it is dropped.
pub(super) struct Exchange {
    signals: Arc<ConnectionActivity>,
    is_waiting: bool,
}

impl Exchange {
    pub(super) fn open(signals: Arc<ConnectionActivity>, tick: u32) -> Self {
        signals.open_exchange(tick);
        Self {
            signals,
            is_waiting: true,
        }
    }

    fn set_waiting(&mut self, is_waiting: bool) {
        if self.is_waiting != is_waiting {
            self.is_waiting = is_waiting;
            self.signals.set_waiting(is_waiting);
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.set_waiting(false);
        self.signals.close_exchange();
    }
}

/// A reply body that keeps its exchange open until it is handed over.
pub(super) struct ExchangeBody {
    reply: ReplyBody,
    is_http2: bool,
    exchange: Exchange,
}

/// Bytes of a frame that HTTP/2 was given; counts as unsent until they are dropped there.
struct UnsentFrame {
    bytes: HeldBytes,
    signals: Arc<ConnectionActivity>,
}

impl UnsentFrame {
    fn begin(bytes: HeldBytes, signals: &Arc<ConnectionActivity>) -> Bytes {
        signals.note_unsent();
        Bytes::from_owner(Self {
            bytes,
            signals: Arc::clone(signals),
        })
    }
}

impl AsRef<[u8]> for UnsentFrame {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

impl Drop for UnsentFrame {
    fn drop(&mut self) {
        self.signals.note_sent();
    }
}

impl ExchangeBody {
    /// Takes the next frame of a body that is there.
    fn next_held(&mut self) -> Option<HeldBytes> {
        match &mut self.reply {
            ReplyBody::Held(held) => {
                let held = std::mem::take(held);
                self.reply = ReplyBody::Empty;
                Some(held)
            }
            ReplyBody::Full(bytes) if bytes.len() > FRAME_LEN_MAX => {
                Some(bytes.split_to(FRAME_LEN_MAX).into())
            }
            _ => None,
        }
    }
}

impl Body for ExchangeBody {
    type Data = Bytes;
    type Error = ReplyAborted;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReplyAborted>>> {
        let this = self.get_mut();
        if !this.is_http2 {
            let frame = Pin::new(&mut this.reply).poll_frame(cx);
            this.exchange.set_waiting(frame.is_pending());
            return frame;
        }
        let bytes = if let Some(held) = this.next_held() {
            held
        } else {
            let frame = Pin::new(&mut this.reply).poll_frame(cx);
            this.exchange.set_waiting(frame.is_pending());
            match ready!(frame) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => bytes.into(),
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                end => return Poll::Ready(end),
            }
        };
        let bytes = UnsentFrame::begin(bytes, &this.exchange.signals);
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.reply.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.reply.size_hint()
    }
}
