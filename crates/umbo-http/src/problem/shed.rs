//! The problem of a request that was shed, written at once as text: a refusal must cost less than an
//! answer from memory.
//!
//! Hot path. A test holds that the text equals the text of [`super::of_request`] to the byte. It is a
//! few numbers between constant words. Nothing in it needs to be escaped.

use umbo_types::Operation;

use crate::request_id::RequestId;
use crate::shed_report::ShedReport;

/// Room for nearly every text, so that it does not grow while it is written.
const LEN: usize = 512;
const HEAD: &[u8] =
    b"{\"type\":\"/v1/errors/overloaded\",\"title\":\"Shed: the shard is overloaded\",\
                      \"status\":503,\"detail\":\"";

/// Writes the problem.
pub(crate) fn text(
    report: &ShedReport,
    operation: Operation,
    after_ms: u64,
    request_id: &RequestId,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(LEN);
    let mut put = |text: &[u8]| out.extend_from_slice(text);
    put(HEAD);
    report.describe(|text| put(text.as_bytes()));
    put(b"\",\"scope\":\"shard\",\"shard\":");
    put(itoa::Buffer::new().format(report.shard.0).as_bytes());
    put(b",\"tier\":\"");
    put(report.tier.as_str().as_bytes());
    put(b"\",\"signal\":\"");
    put(report.reason.as_str().as_bytes());
    // A shed write was not begun.
    put(if operation.is_write() {
        b"\",\"outcome\":\"not-applied\",\"retry\":{\"safe\":true,\"after_ms\":"
    } else {
        b"\",\"retry\":{\"safe\":true,\"after_ms\":"
    });
    put(itoa::Buffer::new().format(after_ms).as_bytes());
    put(b"},\"request_id\":\"");
    put(request_id.as_bytes());
    put(b"\",\"why\":\"umbo why ");
    put(request_id.as_bytes());
    put(b"\"}");
    out
}

/// Returns how long to stay away, in milliseconds; at least one.
pub(crate) fn wait_ms(report: &ShedReport) -> u64 {
    jittered((report.wait.as_micros().div_ceil(1_000) as u64).max(1))
}

/// Adds up to a fifth, so that requests that were refused together do not come back together.
pub(super) fn jittered(wait_ms: u64) -> u64 {
    let part = u128::from(wait_ms) * u128::from(fastrand::u64(..)) / (5 * u128::from(u64::MAX));
    wait_ms + part as u64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use umbo_api::Outcome;
    use umbo_overload::ShedReason;
    use umbo_types::{Criticality, ShardId};

    use super::*;
    use crate::request_error::RequestError;

    fn reports() -> impl Iterator<Item = ShedReport> {
        ShedReason::ALL.into_iter().flat_map(|reason| {
            Criticality::ALL.into_iter().flat_map(move |tier| {
                [0, 7, u16::MAX].map(|shard| ShedReport {
                    shard: ShardId(shard),
                    tier,
                    reason,
                    wait: Duration::from_micros(123_456),
                })
            })
        })
    }

    #[test]
    fn the_text_is_that_of_the_problem() {
        let id = RequestId::Sent(http::HeaderValue::from_static("a-1"));
        for report in reports() {
            for operation in [Operation::Get, Operation::Put, Operation::Scan] {
                let mut problem = super::super::of_row(&RequestError::Shed(report));
                problem.outcome = operation.is_write().then_some(Outcome::NotApplied);
                problem.request_id = "a-1".to_owned();
                problem.why = Some("umbo why a-1".to_owned());
                let after_ms = problem.retry.after_ms.unwrap();
                assert!((124..=149).contains(&after_ms), "{after_ms}");
                let text = String::from_utf8(text(&report, operation, after_ms, &id)).unwrap();
                assert_eq!(text, serde_json::to_string(&problem).unwrap());
            }
        }
    }

    #[test]
    fn jitter_is_a_fifth_at_most_and_not_the_same_for_all() {
        let waits: Vec<u64> = (0..1_000).map(|_| jittered(1_000)).collect();
        assert!(waits.iter().all(|wait| (1_000..=1_200).contains(wait)));
        let mean = waits.iter().sum::<u64>() / 1_000;
        assert!((1_080..1_120).contains(&mean), "{mean}");
        assert_eq!(jittered(0), 0);
    }
}
