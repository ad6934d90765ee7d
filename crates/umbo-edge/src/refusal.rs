//! Answers to heads that are no request: problem bodies for heads that cannot be read, are too
//! large, or do not arrive in time.
//!
//! hyper detects a bad head; this file makes its answer. The answer is written by hand as HTTP/1.1,
//! because at this point there is no exchange that hyper would answer.

use std::time::SystemTime;

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use umbo_api::{ErrorCode, Problem};

use super::limits::EdgeLimits;

/// Returns code and detail for a head that hyper refused with `status`. `unread` holds the bytes of
/// the head that had arrived.
pub(super) fn of_status(
    status: u16,
    reason: &str,
    unread: &[u8],
    limits: &EdgeLimits,
) -> (ErrorCode, String) {
    if target_len(unread) > limits.target_len_max {
        return (ErrorCode::UriTooLong, target_detail(limits));
    }
    match status {
        414 => (ErrorCode::UriTooLong, target_detail(limits)),
        431 => (ErrorCode::HeadersTooLarge, headers_detail(limits)),
        _ => (
            ErrorCode::InvalidRequest,
            format!("not an HTTP/1.1 request: {reason}"),
        ),
    }
}

/// Returns the length of the request target in a head; of an incomplete head, the length that has
/// arrived.
fn target_len(head: &[u8]) -> usize {
    let mut start = 0;
    while matches!(head.get(start), Some(b'\r' | b'\n')) {
        start += 1;
    }
    let line = &head[start..];
    let line = memchr::memchr(b'\n', line).map_or(line, |end| &line[..end]);
    let Some(space) = memchr::memchr(b' ', line) else {
        return 0;
    };
    let rest = &line[space + 1..];
    memchr::memchr(b' ', rest).unwrap_or(rest.len())
}

pub(super) fn target_detail(limits: &EdgeLimits) -> String {
    format!(
        "a request target has at most {} bytes",
        limits.target_len_max
    )
}

pub(super) fn headers_detail(limits: &EdgeLimits) -> String {
    format!(
        "a request has at most {} header fields with {} bytes in all",
        limits.header_fields_max, limits.headers_len_max
    )
}

pub(super) fn timeout_detail(limits: &EdgeLimits) -> String {
    format!(
        "the request head did not arrive within {} ms",
        limits.header_timeout.as_millis()
    )
}

/// Makes the problem body of a refusal, and the request id that it names.
pub(super) fn problem(code: ErrorCode, detail: String) -> (String, Vec<u8>) {
    let mut random = [0; size_of::<u64>()];
    // Without randomness the id is all zeroes: worse to find in a log, and no reason to fail.
    let _ = getrandom::fill(&mut random);
    let request_id = format!("{:016x}", u64::from_be_bytes(random));
    let mut problem = Problem::new(code, detail);
    problem.request_id.clone_from(&request_id);
    let body = serde_json::to_vec(&problem).expect("a problem holds only strings and numbers");
    (request_id, body)
}

/// Writes a refusal as the last answer of a connection.
pub(super) async fn write<S: AsyncWrite + Unpin>(
    socket: &mut S,
    code: ErrorCode,
    detail: String,
) -> std::io::Result<()> {
    let (request_id, body) = problem(code, detail);
    let status = http::StatusCode::from_u16(code.status()).unwrap_or_default();
    let mut answer = format!(
        "HTTP/1.1 {} {}\r\ncontent-type: {}\r\ncontent-length: {}\r\n{}: {request_id}\r\n\
         {}: 0\r\ndate: {}\r\nconnection: close\r\n\r\n",
        status.as_u16(),
        status.canonical_reason().unwrap_or_default(),
        umbo_api::problem::CONTENT_TYPE,
        body.len(),
        umbo_api::header::REQUEST_ID,
        umbo_api::header::RU,
        httpdate::fmt_http_date(SystemTime::now()),
    )
    .into_bytes();
    answer.extend_from_slice(&body);
    socket.write_all(&answer).await?;
    socket.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_target_is_known_before_its_line_ends() {
        assert_eq!(target_len(b"GET /abc HTTP/1.1\r\n"), 4);
        assert_eq!(target_len(b"\r\nGET /abc"), 4);
        assert_eq!(target_len(b"GET"), 0);
        assert_eq!(target_len(b""), 0);
        assert_eq!(target_len(b"\r\n"), 0);
    }

    #[test]
    fn a_long_target_is_named_as_such_whatever_hyper_called_it() {
        let limits = EdgeLimits::default();
        let mut head = b"GET /".to_vec();
        head.resize(20 << 10, b'a');
        assert_eq!(of_status(431, "", &head, &limits).0, ErrorCode::UriTooLong);
        assert_eq!(
            of_status(431, "", b"GET / HTTP/1.1\r\n", &limits).0,
            ErrorCode::HeadersTooLarge
        );
        assert_eq!(
            of_status(400, "", b"\x16\x03", &limits).0,
            ErrorCode::InvalidRequest
        );
    }
}
