//! Which requests leave a record, so that an operator can ask later why one was refused or slow.
//!
//! Every request that was refused, failed or left by its client leaves a record, every slow one, and a sample of
//! all others. An absent row and a false condition are answers: a bounded number of them a second is kept. A
//! request that leaves no record costs two comparisons and a random number.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use umbo_api::ErrorCode;
use umbo_observe::request_records::{KeptAs, RequestRecord, RequestRecords};
use umbo_telemetry::metrics::{RequestMetrics, SlowBounds};
use umbo_types::Operation;

/// Of the requests that are served in time, one in this many is kept.
pub const SAMPLED_ONE_IN: u32 = 1_024;
/// Answers that a row is not there, or that a condition was false, that are kept a second. They can be as
/// frequent as reads, and a record costs about a tenth of a read.
pub const ANSWERS_PER_SECOND: u32 = 1_000;

/// Records of requests, and the rules that decide which requests leave one.
#[derive(Debug)]
pub struct RequestRecorder {
    /// Tells its rows from rows of other processes.
    pub id: u64,
    records: RequestRecords,
    slow: SlowBounds,
    /// Answers kept in the second under way.
    answers: AtomicU32,
}

impl Default for RequestRecorder {
    fn default() -> Self {
        Self {
            id: fastrand::u64(..),
            records: RequestRecords::default(),
            slow: SlowBounds::default(),
            answers: AtomicU32::default(),
        }
    }
}

impl RequestRecorder {
    /// Returns the records.
    pub const fn records(&self) -> &RequestRecords {
        &self.records
    }

    /// Returns from when on requests of an operation are slow.
    pub fn slow_from(&self, operation: Operation) -> Duration {
        self.slow.bound(operation)
    }

    /// Updates the bounds of slow requests. To be called once a second.
    pub(crate) fn maintain(&self, metrics: &RequestMetrics) {
        self.slow.update(metrics);
        self.answers.store(0, Relaxed);
    }

    /// Returns why a request leaves a record, or `None` if it leaves none. `status` is 0 if the client left.
    #[inline]
    pub(crate) fn kept_as(
        &self,
        operation: Operation,
        status: u16,
        code: Option<ErrorCode>,
        elapsed: Duration,
    ) -> Option<KeptAs> {
        if code.is_some() || status == 0 {
            let is_kept =
                !is_answer(code) || self.answers.fetch_add(1, Relaxed) < ANSWERS_PER_SECOND;
            return is_kept.then_some(KeptAs::Refused);
        }
        if self.slow.is_slow(operation, elapsed) {
            return Some(KeptAs::Slow);
        }
        (fastrand::u32(..) < u32::MAX / SAMPLED_ONE_IN).then_some(KeptAs::Sample)
    }

    /// Keeps a record.
    pub(crate) fn keep(&self, record: Arc<RequestRecord>) {
        let is_answer = is_answer(record.code);
        self.records.keep(record, is_answer);
    }
}

/// Returns whether an error code is an answer (an absent row, a false condition) and not a refusal.
pub(crate) fn is_answer(code: Option<ErrorCode>) -> bool {
    code.is_some_and(ErrorCode::is_answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_kept_and_of_answers_a_bounded_number() {
        let recorder = RequestRecorder::default();
        let kept = |status, code, millis| {
            let elapsed = Duration::from_millis(millis);
            recorder.kept_as(Operation::Get, status, code, elapsed)
        };
        assert_eq!(
            kept(503, Some(ErrorCode::Overloaded), 0),
            Some(KeptAs::Refused)
        );
        assert_eq!(kept(0, None, 0), Some(KeptAs::Refused));
        assert_eq!(kept(200, None, 101), Some(KeptAs::Slow));
        let answers = (0..5_000).filter(|_| kept(404, Some(ErrorCode::KeyNotFound), 0).is_some());
        assert_eq!(answers.count(), 1_000);
        assert!(kept(404, Some(ErrorCode::NamespaceNotFound), 0).is_some());
        let sampled = (0..102_400)
            .filter(|_| kept(200, None, 1).is_some())
            .count();
        assert!((50..=200).contains(&sampled), "{sampled}");
    }
}
