//! How long a request waits for a shard, where it has something to tell without it.
//!
//! A shard that stalls must not cost the rows of the others, nor must one that is away cost its client
//! the word that it is: it is given up a little before the deadline of the request, so that the answer
//! is there in time.

use std::time::{Duration, Instant};

use umbo_types::Deadline;

/// Longest time that is kept for telling.
const TELLING_MAX: Duration = Duration::from_millis(20);

/// A deadline, less what is kept for telling.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeadlineBudget {
    /// When work for the request is to have ended by itself.
    pub(crate) work: Deadline,
    /// When work that has not ended is given up; somewhat later.
    pub(crate) wait: Instant,
}

impl DeadlineBudget {
    /// Divides what is left until a deadline: a tenth of it is kept, within its bound.
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
