//! One request and its answer, from the handler's first step to the last byte handed over.
//!
//! Refuses what is over the limits of a request head before the handler sees it, and keeps the
//! connection's [`Signals`] right on every way out: answer sent, client gone, handler panicked.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use umbo_api::ErrorCode;

use super::body::{ReplyAborted, ReplyBody};
use super::connection::{Connection, Protocol, Signals};
use super::limits::EdgeLimits;
use super::{Handler, Observer, refusal};

/// Longest piece handed to HTTP/2 at once: what is handed over is buffered there until the client
/// opens its window.
const PIECE_LEN_MAX: usize = 64 << 10;

/// What all exchanges of one connection share.
pub(super) struct Session<H> {
    pub(super) handler: Arc<H>,
    pub(super) connection: Arc<Connection>,
    pub(super) signals: Arc<Signals>,
    pub(super) limits: Arc<EdgeLimits>,
    pub(super) observer: Arc<dyn Observer>,
}

/// Answers one request.
pub(super) async fn answer<H: Handler>(
    session: Arc<Session<H>>,
    request: Request<Incoming>,
    mut exchange: Exchange,
) -> Response<ExchangeBody> {
    // hyper leaves the body of an answer to HEAD out on HTTP/1 only.
    let is_bodiless =
        request.method() == Method::HEAD && session.connection.protocol == Protocol::Http2;
    let mut response = match check_head(&request, &session.limits) {
        None => session.handler.call(request, &session.connection).await,
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
    if is_bodiless {
        leave_body_out(&mut response);
    }
    exchange.set_waiting(false);
    let pieces_len_max = match session.connection.protocol {
        Protocol::Http1 => usize::MAX,
        Protocol::Http2 => PIECE_LEN_MAX,
    };
    response.map(|reply| ExchangeBody {
        reply,
        pieces_len_max,
        exchange,
    })
}

/// Leaves the body out and keeps its length.
fn leave_body_out(response: &mut Response<ReplyBody>) {
    let len = response.body().size_hint().exact().unwrap_or(0);
    let headers = response.headers_mut();
    if len > 0 && !headers.contains_key(header::CONTENT_LENGTH) {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(len));
    }
    *response.body_mut() = ReplyBody::Empty;
}

fn check_head(request: &Request<Incoming>, limits: &EdgeLimits) -> Option<(ErrorCode, String)> {
    let target = request.uri().path_and_query();
    if target.is_some_and(|target| target.as_str().len() > limits.target_len_max) {
        return Some((ErrorCode::UriTooLong, refusal::target_detail(limits)));
    }
    if request.headers().len() > limits.header_fields_max
        || headers_len(request.headers()) > limits.headers_len_max
    {
        return Some((ErrorCode::HeadersTooLarge, refusal::headers_detail(limits)));
    }
    None
}

fn headers_len(headers: &HeaderMap) -> usize {
    let field_len = |(name, value): (&http::HeaderName, &HeaderValue)| {
        name.as_str().len() + value.len() + ": \r\n".len()
    };
    headers.iter().map(field_len).sum()
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
    signals: Arc<Signals>,
    is_waiting: bool,
}

impl Exchange {
    pub(super) fn open(signals: Arc<Signals>) -> Self {
        signals.open_exchange();
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
    pieces_len_max: usize,
    exchange: Exchange,
}

impl Body for ExchangeBody {
    type Data = Bytes;
    type Error = ReplyAborted;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReplyAborted>>> {
        let this = self.get_mut();
        if let ReplyBody::Full(bytes) = &mut this.reply
            && bytes.len() > this.pieces_len_max
        {
            this.exchange.signals.note_frame();
            let piece = bytes.split_to(this.pieces_len_max);
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let frame = Pin::new(&mut this.reply).poll_frame(cx);
        this.exchange.set_waiting(frame.is_pending());
        if frame.is_ready() {
            this.exchange.signals.note_frame();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.reply.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.reply.size_hint()
    }
}
