//! The last verb: an outcome becomes HTTP. The only place where one does.
//!
//! Hot path. No wildcard stands where answers are told apart.

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
    RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{HeaderMap, Response, StatusCode};
use umbo_api::batch::DeleteRangeAnswer;
use umbo_api::problem::CONTENT_TYPE as PROBLEM_TYPE;
use umbo_api::quota::{ExplainAnswer, UsageAnswer};
use umbo_api::ru::Ru;
use umbo_api::{Outcome, Problem, header};
use umbo_store::{StoreError, Written};
use umbo_types::{RequestUnits, Row, Timestamp, Version};

use crate::decode::Layout;
use crate::digits::{self, Digits};
use crate::edge::body::ReplyBody;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::overload::ShedReport;
use crate::page::{Chunk, PageWalk};
use crate::{cache_fields, problem, rate_limit_fields};

const REQUEST_ID: HeaderName = HeaderName::from_static(header::REQUEST_ID);
const EXPIRES_AT: HeaderName = HeaderName::from_static(header::EXPIRES_AT);
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static(header::RETRY_AFTER_MS);
const RU: HeaderName = HeaderName::from_static(header::RU);
const CHARGED_TO: HeaderName = HeaderName::from_static(header::CHARGED_TO);
const OUTCOME: HeaderName = HeaderName::from_static(header::OUTCOME);
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NDJSON: HeaderValue = HeaderValue::from_static("application/x-ndjson");
/// Room for nearly every problem and its header fields, so that neither grows while it is written: what
/// is turned away must cost little.
const PROBLEM_LEN: usize = 640;
const PROBLEM_FIELDS: usize = 16;
const PROBLEM: HeaderValue = HeaderValue::from_static(PROBLEM_TYPE);
const NOT_APPLIED: &str = Outcome::NotApplied.as_str();

/// What a request of the data plane came to, where it came to something.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A row was read.
    Row {
        /// The row.
        row: Row,
        /// Whether only its headers are sent.
        is_head: bool,
    },
    /// The client has the row already.
    NotModified(Row),
    /// A row was stored.
    Put(Written),
    /// A row was removed, or was not there.
    Deleted,
    /// Rows were read, and more may follow.
    Page {
        /// The rest of the page.
        walk: Box<PageWalk>,
        /// Its first chunk.
        first: Chunk,
    },
    /// Rows of a range were removed, or counted.
    DeletedRange(DeleteRangeAnswer),
    /// Rows were answered one by one.
    Batch {
        /// Their lines and the end line.
        lines: Bytes,
        /// Whether any of them failed.
        is_partial: bool,
    },
    /// A request was explained.
    Explanation(Box<ExplainAnswer>),
    /// What was spent.
    Usage(Box<UsageAnswer>),
}

/// Makes the answer of an exchange.
pub(crate) fn reply(exchange: Exchange, outcome: Result<Answer, Failure>) -> Response<ReplyBody> {
    match outcome {
        Ok(answer) => success(exchange, answer),
        Err(failure) => refusal(exchange, &failure),
    }
}

fn success(mut exchange: Exchange, answer: Answer) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::Empty);
    let status = match answer {
        Answer::Row { row, is_head } => {
            row_headers(&mut response, &row);
            let headers = response.headers_mut();
            headers.insert(
                CONTENT_TYPE,
                stored(row.value.content_type).unwrap_or(OCTETS),
            );
            if let Some(encoding) = stored(row.value.content_encoding) {
                headers.insert(CONTENT_ENCODING, encoding);
            }
            exchange.sent(if is_head { 0 } else { row.value.bytes.len() });
            *response.body_mut() = ReplyBody::Full(row.value.bytes);
            StatusCode::OK
        }
        Answer::NotModified(row) => {
            row_headers(&mut response, &row);
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
        Answer::Deleted => StatusCode::NO_CONTENT,
        Answer::DeletedRange(answer) => json(&mut response, &mut exchange, &answer),
        Answer::Explanation(answer) => json(&mut response, &mut exchange, &*answer),
        Answer::Usage(answer) => json(&mut response, &mut exchange, &*answer),
        Answer::Batch { lines, is_partial } => {
            full(&mut response, &mut exchange, NDJSON, lines);
            if is_partial {
                StatusCode::MULTI_STATUS
            } else {
                StatusCode::OK
            }
        }
        Answer::Page { walk, first } => return page(exchange, *walk, first),
    };
    finish(response, exchange, status)
}

fn page(mut exchange: Exchange, walk: PageWalk, first: Chunk) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::Empty);
    let layout = match walk.layout() {
        Layout::Lines => NDJSON,
        Layout::Array => JSON,
    };
    if first.is_last {
        full(&mut response, &mut exchange, layout, first.text);
        return finish(response, exchange, StatusCode::OK);
    }
    response.headers_mut().insert(CONTENT_TYPE, layout);
    common_headers(&mut response, &mut exchange, StatusCode::OK);
    *response.body_mut() = walk.into_body(first.text, exchange);
    response
}

fn json(
    response: &mut Response<ReplyBody>,
    exchange: &mut Exchange,
    answer: &impl serde::Serialize,
) -> StatusCode {
    let mut text = BytesMut::new();
    write_json_line(&mut text, answer);
    full(response, exchange, JSON, text.freeze());
    StatusCode::OK
}

fn full(
    response: &mut Response<ReplyBody>,
    exchange: &mut Exchange,
    content_type: HeaderValue,
    bytes: Bytes,
) {
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    exchange.sent(bytes.len());
    *response.body_mut() = ReplyBody::Full(bytes);
}

fn finish(
    mut response: Response<ReplyBody>,
    mut exchange: Exchange,
    status: StatusCode,
) -> Response<ReplyBody> {
    exchange.close();
    common_headers(&mut response, &mut exchange, status);
    response
}

fn common_headers(response: &mut Response<ReplyBody>, exchange: &mut Exchange, status: StatusCode) {
    *response.status_mut() = status;
    exchange.answered(status.as_u16());
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, exchange.request_id().to_header());
    // Of a page that is still being read, this is what it has been charged so far; its end line
    // says the whole.
    let charged = rate_limit_fields::request_units(exchange.charged());
    headers.insert(RU, charged);
    // A refusal tells of the limit that is spent.
    if !rate_limit_fields::is_told(headers)
        && let Some(left) = exchange.advertised()
    {
        rate_limit_fields::insert_left(headers, &left);
    }
    if let Some(passage) = exchange.passage() {
        cache_fields::insert(headers, passage);
    }
    if let Some(payer) = exchange.charged_to() {
        headers.insert(CHARGED_TO, payer);
    }
    if let Some(timing) = exchange.server_timing() {
        headers.insert(SERVER_TIMING, timing);
    }
}

/// Makes the answer of a route below the data plane.
pub(crate) fn routed(
    mut exchange: Exchange,
    head: http::response::Parts,
    body: Bytes,
) -> Response<ReplyBody> {
    exchange.sent(body.len());
    let status = head.status;
    finish(
        Response::from_parts(head, ReplyBody::Full(body)),
        exchange,
        status,
    )
}

fn row_headers(response: &mut Response<ReplyBody>, row: &Row) {
    let headers = response.headers_mut();
    headers.insert(ETAG, etag(row.version));
    if let Some(at) = row.expires_at {
        headers.insert(EXPIRES_AT, HeaderValue::from(Timestamp::as_millis(at)));
    }
}

/// Returns a stored content field as a header value; it was one when it was stored.
fn stored(field: Bytes) -> Option<HeaderValue> {
    if field.is_empty() {
        None
    } else {
        HeaderValue::from_maybe_shared(field).ok()
    }
}

/// Returns the entity tag of a version.
pub(crate) fn etag(version: Version) -> HeaderValue {
    // Twenty digits at most, and the quotes.
    let mut text = [b'"'; 22];
    let end = text.len() - 1;
    let first = digits::put(&mut text, end, version.0);
    HeaderValue::from_bytes(&text[first - 1..]).expect("digits in quotes are a header value")
}

fn refusal(mut exchange: Exchange, failure: &Failure) -> Response<ReplyBody> {
    exchange.refused(failure);
    log(failure, &exchange);
    if let Failure::Shed(report) = failure {
        return shed(exchange, report);
    }
    let body = problem::of_request(failure, &exchange);
    let mut response = problem_response(&body);
    if let Failure::MethodNotAllowed { allowed } = failure
        && !allowed.is_empty()
    {
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static(allowed));
    }
    if let Failure::Rejected(rejection) = failure {
        rate_limit_fields::insert_spent(response.headers_mut(), rejection);
    }
    if let Failure::Store(StoreError::QuotaExceeded {
        policy,
        retry_after,
        ..
    }) = failure
        && let Some((policy, limit)) = exchange.spent_at_node(policy)
    {
        let headers = response.headers_mut();
        rate_limit_fields::insert_spent_at_node(headers, &policy, limit, *retry_after);
    }
    if let ReplyBody::Full(bytes) = response.body() {
        exchange.sent(bytes.len());
    }
    let status = response.status();
    finish(response, exchange, status)
}

/// Makes the answer to a request that was shed: the same as by way of its problem, at less cost.
fn shed(mut exchange: Exchange, report: &ShedReport) -> Response<ReplyBody> {
    let after_ms = problem::shed::wait_ms(report);
    let operation = exchange.operation();
    let text = problem::shed::text(report, operation, after_ms, exchange.request_id());
    exchange.sent(text.len());
    let mut response = Response::new(ReplyBody::Full(text.into()));
    let headers = response.headers_mut();
    *headers = HeaderMap::with_capacity(PROBLEM_FIELDS);
    headers.insert(CONTENT_TYPE, PROBLEM);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if operation.is_write() {
        headers.insert(OUTCOME, HeaderValue::from_static(NOT_APPLIED));
    }
    headers.insert(RETRY_AFTER, seconds(after_ms));
    headers.insert(RETRY_AFTER_MS, number(after_ms));
    finish(response, exchange, StatusCode::SERVICE_UNAVAILABLE)
}

/// Returns whole seconds, rounded up and never nought.
fn seconds(millis: u64) -> HeaderValue {
    // Hardly anybody is told to stay away for longer.
    const SHORT: [&str; 6] = ["1", "2", "3", "4", "5", "6"];
    let seconds = millis.div_ceil(1_000).max(1);
    let short = usize::try_from(seconds - 1)
        .ok()
        .and_then(|at| SHORT.get(at));
    short.map_or_else(|| number(seconds), |text| HeaderValue::from_static(text))
}

fn number(number: u64) -> HeaderValue {
    HeaderValue::from_bytes(Digits::of(number).as_bytes()).expect("digits are a header value")
}

/// Makes the response of a problem, without what an exchange adds.
pub(crate) fn problem_response(body: &Problem) -> Response<ReplyBody> {
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

fn log(failure: &Failure, exchange: &Exchange) {
    let (request_id, code) = (|| exchange.request_id().as_str(), failure.code().as_str());
    match failure {
        Failure::Internal(_) | Failure::Store(StoreError::Corrupt { .. }) => {
            tracing::error!(request_id = request_id(), code, %failure, "failed");
        }
        _ => tracing::debug!(request_id = request_id(), code, %failure, "refused"),
    }
}

/// Returns request units as a number of a body.
pub(crate) const fn ru(units: RequestUnits) -> Ru {
    Ru::from_micros(units.as_micros())
}

/// Writes a value as JSON.
pub(crate) fn write_json(out: &mut BytesMut, value: &impl serde::Serialize) {
    serde_json::to_writer(out.writer(), value).expect("a buffer that grows takes every write");
}

/// Writes a value as one line of JSON.
pub(crate) fn write_json_line(out: &mut BytesMut, value: &impl serde::Serialize) {
    write_json(out, value);
    out.put_u8(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_the_version_in_quotes() {
        for version in [0, 7, 10, 1_789_000_000_000_000, u64::MAX] {
            assert_eq!(etag(Version(version)), format!("\"{version}\""));
        }
    }
}
