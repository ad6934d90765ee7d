//! Reads answers: the content of a refusal, and the header fields.

use std::time::Duration;

use reqwest::header::{HeaderMap, RETRY_AFTER};
use umbo_api::{Problem, header};

use crate::error::Error;
use crate::quota_state::QuotaState;

/// Most bytes of a foreign body that an error quotes.
const QUOTE_LEN_MAX: usize = 400;

/// Makes an error of an answer that is no success.
pub(crate) fn refusal(status: u16, headers: &HeaderMap, body: &[u8]) -> Error {
    let retry_after_ms = retry_after_ms(headers);
    let request_id = text_header(headers, header::REQUEST_ID);
    let problem = match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => Some(problem),
        // An answer to HEAD has no body; the request id says that Umbo has given it.
        Err(_) if body.is_empty() && request_id.is_some() => Some(without_body(status)),
        Err(_) => None,
    };
    let Some(mut problem) = problem else {
        return Error::Foreign {
            status,
            body: quote(body),
            retry_after: retry_after_ms.map(Duration::from_millis),
        };
    };
    problem.retry.after_ms = problem.retry.after_ms.or(retry_after_ms);
    problem.etag = problem.etag.or_else(|| text_header(headers, "etag"));
    if problem.request_id.is_empty() {
        problem.request_id = request_id.unwrap_or_default();
    }
    Error::Problem {
        problem: Box::new(problem),
    }
}

fn without_body(status: u16) -> Problem {
    let code = umbo_api::ErrorCode::Internal;
    Problem {
        type_uri: String::new(),
        title: format!("Status {status}"),
        status,
        ..Problem::new(code, "an answer to HEAD has no details")
    }
}

/// Returns the state of the bucket with the lowest balance, if an answer gives it.
pub(crate) fn quota_state(headers: &HeaderMap) -> Option<QuotaState> {
    QuotaState::parse(headers.get(header::QUOTA_STATE)?.to_str().ok()?)
}

/// Returns the charge of an answer, in request units.
pub(crate) fn charged(headers: &HeaderMap) -> Option<f64> {
    let charged: f64 = headers.get(header::RU)?.to_str().ok()?.parse().ok()?;
    (charged.is_finite() && charged >= 0.0).then_some(charged)
}

/// Returns a header as text, or `None` if it is absent or not text.
pub(crate) fn text_header(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

/// Returns a header as a number, or `None` if it is absent or not a number.
pub(crate) fn number_header(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

fn retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    number_header(headers, header::RETRY_AFTER_MS).or_else(|| {
        let seconds = number_header(headers, RETRY_AFTER.as_str())?;
        seconds.checked_mul(1_000)
    })
}

fn quote(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(QUOTE_LEN_MAX)]);
    let is_shown = |character: char| !character.is_control();
    text.chars()
        .filter(|&character| is_shown(character))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn the_exact_wait_comes_before_the_whole_seconds() {
        let both = headers(&[("retry-after", "2"), ("umbo-retry-after-ms", "1013")]);
        assert_eq!(retry_after_ms(&both), Some(1_013));
        assert_eq!(
            retry_after_ms(&headers(&[("retry-after", "2")])),
            Some(2_000)
        );
        let date = headers(&[("retry-after", "Sat, 21 Nov 2026 11:08:06 GMT")]);
        assert_eq!(retry_after_ms(&date), None);
    }

    #[test]
    fn a_rejected_head_is_umbos_and_says_how_long_to_wait() {
        let fields = [("umbo-request-id", "r1"), ("umbo-retry-after-ms", "70")];
        let error = refusal(429, &headers(&fields), b"");
        assert!(error.is_overload());
        assert_eq!(error.retry_after(), Some(Duration::from_millis(70)));
        assert_eq!(error.code(), None);
        let foreign = refusal(429, &headers(&[("retry-after", "1")]), b"");
        assert!(!foreign.is_overload());
        assert_eq!(foreign.retry_after(), Some(Duration::from_secs(1)));
    }

    #[test]
    fn a_charge_is_a_decimal() {
        assert_eq!(
            charged(&headers(&[("umbo-ru", "1.062744")])),
            Some(1.062_744)
        );
        for bad in ["", "-1", "NaN", "inf", "x"] {
            assert_eq!(charged(&headers(&[("umbo-ru", bad)])), None, "{bad}");
        }
    }
}
