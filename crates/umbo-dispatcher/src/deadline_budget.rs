//! How long a request waits for a shard if it can answer without it.
//!
//! A stalled shard must not cost the rows of the other shards. If a shard is away, its client must
//! still learn that. So the request gives up on the shard a little before its own deadline, in time to
//! send the answer.

use std::time::{Duration, Instant};

use umbo_types::Deadline;

/// Longest time that is kept for sending the answer.
const TELLING_MAX: Duration = Duration::from_millis(20);

/// A deadline, less the time kept for sending the answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeadlineBudget {
    /// When work for the request is to have ended by itself.
    pub(crate) work: Deadline,
    /// When work that has not ended is given up; somewhat later.
    pub(crate) wait: Instant,
}

impl DeadlineBudget {
    /// Divides the time left until a deadline: a tenth of it, up to `TELLING_MAX`, is kept for sending
    /// the answer.
    pub(crate) fn until(deadline: Deadline, now: Instant) -> Self {
        let left = deadline.remaining(now);
        let telling = (left / 10).min(TELLING_MAX);
        Self {
            work: Deadline::after(now, left.saturating_sub(telling)),
            wait: now + left.saturating_sub(telling / 2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_for_telling_is_a_tenth_and_bounded() {
        let now = Instant::now();
        for (left, work, wait) in [
            (0, 0, 0),
            (100, 90, 95),
            (200, 180, 190),
            (9_000, 8_980, 8_990),
        ] {
            let after = |millis| now + Duration::from_millis(millis);
            let budget = DeadlineBudget::until(Deadline::at(after(left)), now);
            assert_eq!(budget.work.instant(), after(work));
            assert_eq!(budget.wait, after(wait));
        }
        let passed = DeadlineBudget::until(Deadline::at(now), now + Duration::from_secs(1));
        assert!(passed.work.has_passed(now + Duration::from_secs(1)));
    }
}
