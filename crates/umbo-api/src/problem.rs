//! Problem bodies (RFC 9457, `application/problem+json`).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error_code::{ErrorCode, Scope};
use crate::quantity::Quantity;

/// Media type of every error body.
pub const CONTENT_TYPE: &str = "application/problem+json";
/// Longest detail of a problem, in bytes. A refusal quotes its request, and stays short.
pub const DETAIL_LEN_MAX: usize = 1_024;

/// Whether a failed write took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It did.
    Applied,
    /// It certainly did not.
    NotApplied,
    /// It may or may not have.
    Unknown,
}

impl Outcome {
    /// Returns the name used on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::NotApplied => "not-applied",
            Self::Unknown => "unknown",
        }
    }
}

/// Whether and when to repeat a request.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Retry {
    /// Whether the same request may be repeated without fear of applying it twice.
    pub safe: bool,
    /// How long to wait first, in milliseconds. Absent if waiting does not help.
    pub after_ms: Option<u64>,
}

/// How much a policy allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuotaLimit {
    /// Units a second, in the long run.
    pub rate: Quantity,
    /// Units at once, after idle time.
    pub burst: Quantity,
    /// Counted unit: `ru`, `requests`, `reads`, `writes`, `read-bytes`, `write-bytes` or `bytes`.
    pub unit: String,
}

/// The body of every refusal and failure.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// `/v1/errors/{code}`; this path on the server explains the code.
    #[serde(rename = "type")]
    pub type_uri: String,
    /// Short summary, the same for every occurrence.
    pub title: String,
    /// HTTP status. 419 instead of 429 if the policy that rejected says so.
    pub status: u16,
    /// What happened this time.
    pub detail: String,
    /// What the refusal concerns.
    pub scope: Option<Scope>,
    /// Name of the policy that rejected.
    pub policy: Option<String>,
    /// What that policy allows.
    pub limit: Option<QuotaLimit>,
    /// Requested rate under that limit over about the last second, in units a second.
    pub observed: Option<Quantity>,
    /// Request units that the overload of a shard adds to the price and that the policy does not cover. Absent if the
    /// plain price was rejected.
    pub penalty: Option<Quantity>,
    /// Number of the shard concerned.
    pub shard: Option<u16>,
    /// The tier that was shed: `critical-plus`, `critical`, `sheddable-plus` or `sheddable`.
    pub tier: Option<String>,
    /// Why it was shed. By the shard's queue: `queue-delay`, `queue-length`, `queue-work` or `queue-displaced`.
    /// `latency-ratio`: the shard is under pressure, and the caller has used its allowed share of the shard's time.
    pub signal: Option<String>,
    /// Current `ETag` of the row, on a failed precondition.
    pub etag: Option<String>,
    /// The token to be created, if it is unknown whether it was created.
    pub token: Option<String>,
    /// Whether a write took effect.
    pub outcome: Option<Outcome>,
    /// Whether and when to repeat.
    pub retry: Retry,
    /// Id of the request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request_id: String,
    /// Command that shows an operator why the request was refused. Absent for `key-not-found` and
    /// `precondition-failed`.
    pub why: Option<String>,
}

impl Problem {
    /// Makes a problem from a code and the details of this occurrence.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            type_uri: code.type_uri(),
            title: code.title().to_owned(),
            status: code.status(),
            detail: shortened(detail.into()),
            scope: None,
            policy: None,
            limit: None,
            observed: None,
            penalty: None,
            shard: None,
            tier: None,
            signal: None,
            etag: None,
            token: None,
            outcome: None,
            retry: Retry {
                safe: code.is_retryable(),
                after_ms: None,
            },
            request_id: String::new(),
            why: None,
        }
    }

    /// Returns the code, or `None` if this version of the library does not know it.
    pub fn code(&self) -> Option<ErrorCode> {
        self.type_uri.parse().ok()
    }
}

/// Cuts the middle out of a text that is longer than [`DETAIL_LEN_MAX`]: a message about a value begins before it and
/// ends behind it.
pub fn shortened(text: String) -> String {
    if text.len() <= DETAIL_LEN_MAX {
        return text;
    }
    let half = (DETAIL_LEN_MAX - '…'.len_utf8()) / 2;
    let head = text.floor_char_boundary(half);
    let tail = text.ceil_char_boundary(text.len() - half);
    format!("{}…{}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_detail_keeps_its_ends() {
        for letter in ["k", "é", "…"] {
            let long = format!("unknown field `{}`, expected `pk`", letter.repeat(10_000));
            let cut = Problem::new(ErrorCode::InvalidRequest, long).detail;
            assert!(
                cut.len() <= DETAIL_LEN_MAX && cut.len() > DETAIL_LEN_MAX - 8,
                "{}",
                cut.len()
            );
            assert!(cut.starts_with("unknown field `") && cut.ends_with("`, expected `pk`"));
        }
        let whole = "x".repeat(DETAIL_LEN_MAX);
        assert_eq!(shortened(whole.clone()), whole);
    }
}
