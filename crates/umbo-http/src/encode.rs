//! The last phase: an outcome becomes HTTP, here only.
//!
//! Hot path. A match over answers has no wildcard.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH,
    CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, RETRY_AFTER, VARY,
    WWW_AUTHENTICATE,
};
use http::{HeaderMap, Response, StatusCode};
use umbo_api::batch::DeleteRangeAnswer;
use umbo_api::problem::CONTENT_TYPE as PROBLEM_TYPE;
use umbo_api::quota::{ExplainAnswer, UsageAnswer};
use umbo_api::ru::Ru;
use umbo_api::{ErrorCode, Outcome, Problem, header};
use umbo_edge::body::ReplyBody;
use umbo_quota::Advertised;
use umbo_store::{NUMBER_TYPE, Written};
use umbo_types::{Criticality, LargeRef, RequestUnits, Row, Timestamp};

use crate::byte_range::{self, ByteRange};
use crate::cache_status::CacheStatus;
use crate::content_digest::{self, ContentDigest};
use crate::decode::Layout;
use crate::json_text::{JSON, NDJSON, write_json_line};
use crate::plane_answer::PlaneAnswer;
use crate::problem::FailedRequest;
use crate::representation::{Representation, confine};
use crate::request_error::RequestError;
use crate::request_id::RequestId;
use crate::shed_report::ShedReport;
use crate::{cache_fields, problem, rate_limit_fields};

pub use crate::representation::etag;

const REQUEST_ID: HeaderName = HeaderName::from_static(header::REQUEST_ID);
const EXPIRES_AT: HeaderName = HeaderName::from_static(header::EXPIRES_AT);
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static(header::RETRY_AFTER_MS);
const RETRY_TICKET: HeaderName = HeaderName::from_static(header::RETRY_TICKET);
const RU: HeaderName = HeaderName::from_static(header::RU);
const CHARGED_TO: HeaderName = HeaderName::from_static(header::CHARGED_TO);
const CRITICALITY_APPLIED: HeaderName = HeaderName::from_static(header::CRITICALITY_APPLIED);
const PROBLEM_CODE: HeaderName = HeaderName::from_static(header::PROBLEM);
const OUTCOME: HeaderName = HeaderName::from_static(header::OUTCOME);
const REPLAYED: HeaderName = HeaderName::from_static(header::REPLAYED);
const EXISTED: HeaderName = HeaderName::from_static(header::EXISTED);
const CONTENT_DIGEST: HeaderName = HeaderName::from_static(content_digest::NAME);
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");
const TEXT: HeaderValue = HeaderValue::from_static(NUMBER_TYPE);
/// Room for nearly every problem and its header fields, so that neither grows while it is written: a refusal
/// must cost little.
const PROBLEM_LEN: usize = 640;
const PROBLEM_FIELDS: usize = 16;
/// Room for the header fields of a row.
const ROW_FIELDS: usize = 12;
const PROBLEM: HeaderValue = HeaderValue::from_static(PROBLEM_TYPE);
const NOT_APPLIED: &str = Outcome::NotApplied.as_str();

/// The successful outcome of a request of the data plane.
#[derive(Debug)]
pub enum Answer {
    /// A row was read.
    Row(RowAnswer),
    /// The client has the row already.
    NotModified(RowAnswer),
    /// A row was stored.
    Put(Written),
    /// A number was incremented.
    Incremented(Written),
    /// A row was removed, or was not there.
    Deleted {
        /// Whether it was there.
        existed: bool,
    },
    /// Rows were read, and more may follow.
    Page {
        /// How the rows are laid out.
        layout: Layout,
        /// The text of the first of them.
        text: Bytes,
    },
    /// Rows of a range were removed, or counted.
    DeletedRange(DeleteRangeAnswer),
    /// Rows were answered one by one.
    Batch {
        /// Lines of the answered rows, and the end line.
        lines: Bytes,
        /// Whether any of them failed.
        is_partial: bool,
    },
    /// A request was explained.
    Explanation(Box<ExplainAnswer>),
    /// The usage of a namespace was read.
    Usage(Box<UsageAnswer>),
    /// The answer of a plane above the one of rows.
    Plane(PlaneAnswer),
}

/// A row as its client gets it.
#[derive(Debug)]
pub struct RowAnswer {
    /// The row, with the bytes of the representation.
    pub row: Row,
    /// The representation that it has.
    pub representation: Representation,
    /// Whether other clients may get another representation.
    pub varies: bool,
    /// The part that is sent; `None` for the whole.
    pub part: Option<ByteRange>,
    /// Whether only its headers are sent.
    pub is_head: bool,
}

impl RowAnswer {
    /// Returns the large value whose bytes are sent after the head, or `None` without one.
    pub fn streamed(&self) -> Option<LargeRef> {
        self.row.value.large().filter(|_| !self.is_head)
    }

    #[inline]
    fn write_to(&mut self, response: &mut Response<ReplyBody>) -> StatusCode {
        response.headers_mut().reserve(ROW_FIELDS);
        self.add_headers(response);
        let headers = response.headers_mut();
        let value = &mut self.row.value;
        headers.insert(CONTENT_TYPE, stored(&value.content_type).unwrap_or(OCTETS));
        let encoding = match self.representation {
            Representation::Stored => {
                stored(&value.content_encoding).filter(|encoding| encoding != "identity")
            }
            Representation::Identity => None,
            Representation::Zstd => Some(HeaderValue::from_static("zstd")),
        };
        if let Some(encoding) = encoding {
            headers.insert(CONTENT_ENCODING, encoding);
        }
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if let Some(large) = value.large() {
            return add_large(headers, &large, self.part);
        }
        let Some(part) = self.part else {
            *response.body_mut() = ReplyBody::Full(std::mem::take(&mut value.bytes));
            return StatusCode::OK;
        };
        headers.insert(CONTENT_RANGE, part.to_header());
        let bytes = value.bytes.slice(part.first as usize..=part.last as usize);
        *response.body_mut() = ReplyBody::Full(bytes);
        StatusCode::PARTIAL_CONTENT
    }

    fn add_headers(&self, response: &mut Response<ReplyBody>) {
        let headers = response.headers_mut();
        confine(headers);
        headers.insert(ETAG, self.representation.etag(self.row.version));
        if let Some(at) = self.row.expires_at {
            headers.insert(EXPIRES_AT, HeaderValue::from(Timestamp::as_millis(at)));
        }
        if self.varies {
            headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        }
    }
}

/// Adds the length and the digests (RFC 9530) of a large value, whose bytes follow.
fn add_large(headers: &mut HeaderMap, large: &LargeRef, part: Option<ByteRange>) -> StatusCode {
    let digest = ContentDigest(large.sha256).to_header();
    headers.insert(REPR_DIGEST, digest.clone());
    let Some(part) = part else {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(large.len));
        headers.insert(CONTENT_DIGEST, digest);
        return StatusCode::OK;
    };
    headers.insert(
        CONTENT_LENGTH,
        HeaderValue::from(part.last - part.first + 1),
    );
    headers.insert(CONTENT_RANGE, part.to_header());
    StatusCode::PARTIAL_CONTENT
}

impl Answer {
    /// Returns how many bytes of memory the body holds; small bodies count as 0.
    pub fn held_len(&self) -> usize {
        match self {
            // A part holds the bytes that it is a part of.
            Self::Row(answer) if !answer.is_head => answer.row.value.bytes.len(),
            Self::Page { text, .. } => text.len(),
            Self::Batch { lines, .. } => lines.len(),
            Self::Plane(answer) => answer.body.len(),
            Self::Row(_)
            | Self::NotModified(_)
            | Self::Put(_)
            | Self::Incremented(_)
            | Self::Deleted { .. }
            | Self::DeletedRange(_)
            | Self::Explanation(_)
            | Self::Usage(_) => 0,
        }
    }
}

/// The fields of every answer in addition to its content.
#[derive(Debug)]
pub struct ResponseMeta<'a> {
    /// The id of the request.
    pub request_id: &'a RequestId,
    /// Charge of the request. For a page that is still being read, it is the charge so far; the end line of
    /// the page has the whole charge.
    pub charged: RequestUnits,
    /// The remaining quota of the payer, if a configured policy counts the request.
    pub left: Option<Advertised<'a>>,
    /// How a read that can be shared got its answer.
    pub cache: Option<CacheStatus>,
    /// The payer, if the request named one.
    pub charged_to: Option<HeaderValue>,
    /// Durations of the store and the request, if the client asked for them.
    pub timing: Option<Timing>,
    /// Whether this is the answer to an earlier request with the same idempotency key.
    pub is_replayed: bool,
    /// The criticality in effect, if it is lower than the claimed one.
    pub lowered_criticality: Option<Criticality>,
}

/// Durations for the client.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Time of the store, if it was asked.
    pub store: Option<Duration>,
    /// Time of the whole request.
    pub total: Duration,
}

impl Timing {
    fn to_header(self) -> Option<HeaderValue> {
        let millis = |time: Duration| time.as_secs_f64() * 1_000.0;
        let total = millis(self.total);
        let text = match self.store {
            Some(store) => format!("store;dur={:.3}, total;dur={total:.3}", millis(store)),
            None => format!("total;dur={total:.3}"),
        };
        HeaderValue::from_str(&text).ok()
    }
}

/// Makes the response of an answer, without the fields that [`add_meta`] adds.
#[inline]
pub fn answer(mut answer: Answer) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::Empty);
    *response.status_mut() = match answer {
        Answer::Row(ref mut answer) => answer.write_to(&mut response),
        Answer::NotModified(answer) => {
            answer.add_headers(&mut response);
            StatusCode::NOT_MODIFIED
        }
        Answer::Put(written) => {
            response.headers_mut().insert(ETAG, etag(written.version));
            if written.existed {
                StatusCode::NO_CONTENT
            } else {
                StatusCode::CREATED
            }
        }
        Answer::Incremented(written) => {
            let number = written.number.unwrap_or_default().to_string();
            full(&mut response, TEXT, number.into());
            let headers = response.headers_mut();
            headers.insert(ETAG, etag(written.version));
            headers.insert(EXISTED, flag(written.existed));
            StatusCode::OK
        }
        Answer::Deleted { existed } => {
            response.headers_mut().insert(EXISTED, flag(existed));
            StatusCode::NO_CONTENT
        }
        Answer::DeletedRange(answer) => json(&mut response, &answer),
        Answer::Explanation(answer) => json(&mut response, &*answer),
        Answer::Usage(answer) => json(&mut response, &*answer),
        Answer::Plane(answer) => answer.write_to(&mut response),
        Answer::Batch { lines, is_partial } => {
            full(&mut response, NDJSON, lines);
            if is_partial {
                StatusCode::MULTI_STATUS
            } else {
                StatusCode::OK
            }
        }
        Answer::Page { layout, text } => {
            let content_type = match layout {
                Layout::Lines => NDJSON,
                Layout::Array => JSON,
            };
            full(&mut response, content_type, text);
            StatusCode::OK
        }
    };
    response
}

const fn flag(flag: bool) -> HeaderValue {
    HeaderValue::from_static(if flag { "true" } else { "false" })
}

fn json(response: &mut Response<ReplyBody>, answer: &impl serde::Serialize) -> StatusCode {
    let mut text = BytesMut::new();
    write_json_line(&mut text, answer);
    full(response, JSON, text.freeze());
    StatusCode::OK
}

fn full(response: &mut Response<ReplyBody>, content_type: HeaderValue, bytes: Bytes) {
    confine(response.headers_mut());
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    *response.body_mut() = ReplyBody::Full(bytes);
}

/// Adds the fields of every answer.
pub fn add_meta(response: &mut Response<ReplyBody>, meta: ResponseMeta<'_>) {
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, meta.request_id.to_header());
    let charged = rate_limit_fields::request_units(meta.charged);
    headers.insert(RU, charged);
    // A refusal describes the spent limit instead.
    if let Some(left) = meta.left
        && !rate_limit_fields::is_told(headers)
    {
        rate_limit_fields::insert_left(headers, &left);
    }
    if let Some(status) = meta.cache {
        cache_fields::insert(headers, status);
    }
    if let Some(payer) = meta.charged_to {
        headers.insert(CHARGED_TO, payer);
    }
    if meta.is_replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("?1"));
    }
    if let Some(criticality) = meta.lowered_criticality {
        let name = HeaderValue::from_static(criticality.as_str());
        headers.insert(CRITICALITY_APPLIED, name);
    }
    if let Some(timing) = meta.timing.and_then(Timing::to_header) {
        headers.insert(SERVER_TIMING, timing);
    }
}

/// Returns a stored content field as a header value; it came as one.
fn stored(field: &Bytes) -> Option<HeaderValue> {
    if field.is_empty() {
        None
    } else {
        HeaderValue::from_maybe_shared(field.clone()).ok()
    }
}

/// Makes the response to a request that was refused or failed, without the fields that [`add_meta`] adds.
pub fn refusal(failure: &RequestError, request: &FailedRequest<'_>) -> Response<ReplyBody> {
    if let RequestError::Shed(report) = failure {
        return shed(report, request);
    }
    let mut response = problem_response(&problem::of_request(failure, request));
    let headers = response.headers_mut();
    headers.insert(PROBLEM_CODE, code(failure.code()));
    if let RequestError::MethodNotAllowed { allowed } = failure
        && !allowed.is_empty()
    {
        headers.insert(ALLOW, HeaderValue::from_static(allowed));
    }
    if let RequestError::UnsupportedCoding { accepted } = failure {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(accepted));
    }
    if let RequestError::RangeNotSatisfiable { len } = failure {
        headers.insert(CONTENT_RANGE, byte_range::unsatisfied(*len));
    }
    if let RequestError::Rejected(rejection) = failure {
        rate_limit_fields::insert_spent(headers, rejection);
        if let Some(ticket) = &request.retry_ticket {
            headers.insert(RETRY_TICKET, ticket.clone());
        }
    }
    response
}

/// Makes the response to a request that was shed: the same bytes as through its problem, at less cost.
fn shed(report: &ShedReport, request: &FailedRequest<'_>) -> Response<ReplyBody> {
    let after_ms = problem::shed::wait_ms(report);
    let text = problem::shed::text(report, request.operation, after_ms, request.request_id);
    let mut response = Response::new(ReplyBody::Full(text.into()));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let headers = response.headers_mut();
    *headers = HeaderMap::with_capacity(PROBLEM_FIELDS);
    headers.insert(CONTENT_TYPE, PROBLEM);
    headers.insert(PROBLEM_CODE, code(ErrorCode::Overloaded));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if request.operation.is_write() {
        headers.insert(OUTCOME, HeaderValue::from_static(NOT_APPLIED));
    }
    headers.insert(RETRY_AFTER, seconds(after_ms));
    headers.insert(RETRY_AFTER_MS, number(after_ms));
    response
}

fn code(code: ErrorCode) -> HeaderValue {
    HeaderValue::from_static(code.as_str())
}

/// Returns whole seconds, rounded up and never zero.
fn seconds(millis: u64) -> HeaderValue {
    // Longer waits are rare.
    const SHORT: [&str; 6] = ["1", "2", "3", "4", "5", "6"];
    let seconds = millis.div_ceil(1_000).max(1);
    let short = usize::try_from(seconds - 1)
        .ok()
        .and_then(|at| SHORT.get(at));
    short.map_or_else(|| number(seconds), |text| HeaderValue::from_static(text))
}

fn number(number: u64) -> HeaderValue {
    let mut digits = itoa::Buffer::new();
    HeaderValue::from_str(digits.format(number)).expect("digits are a header value")
}

/// Makes the response of a problem.
fn problem_response(body: &Problem) -> Response<ReplyBody> {
    let mut text = Vec::with_capacity(PROBLEM_LEN);
    if serde_json::to_writer(&mut text, body).is_err() {
        text.clear();
    }
    let mut response = Response::new(ReplyBody::Full(text.into()));
    *response.headers_mut() = HeaderMap::with_capacity(PROBLEM_FIELDS);
    *response.status_mut() =
        StatusCode::from_u16(body.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, PROBLEM);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(outcome) = body.outcome {
        headers.insert(OUTCOME, HeaderValue::from_static(outcome.as_str()));
    }
    if let Some(after_ms) = body.retry.after_ms {
        headers.insert(RETRY_AFTER, seconds(after_ms));
        headers.insert(RETRY_AFTER_MS, number(after_ms));
    }
    if let Some(tag) = body
        .etag
        .as_deref()
        .and_then(|tag| HeaderValue::from_str(tag).ok())
    {
        headers.insert(ETAG, tag);
    }
    if body.status == 401 {
        headers.insert(
            WWW_AUTHENTICATE,
            HeaderValue::from_static("Bearer realm=\"umbo\""),
        );
    }
    response
}

/// Returns request units as a number of a body.
pub const fn ru(units: RequestUnits) -> Ru {
    Ru::from_micros(units.as_micros())
}
