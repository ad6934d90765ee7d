//! What is repeated, and after which wait. Pure: the random number is a parameter.
//!
//! The wait is exponential backoff with full jitter (Brooker, "Exponential Backoff And Jitter",
//! 2015), never below what the server asked for.

use std::time::Duration;

use umbo_api::Outcome;

use crate::error::Error;

/// When the same request may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// Whatever became of the first: a read, or a write that comes to the same when applied twice.
    Always,
    /// Only where the first certainly took no effect.
    IfNotApplied,
}

impl Repeat {
    /// Returns what suits a request that does or does not come to the same when sent twice.
    pub(crate) const fn always_if(is_repeatable: bool) -> Self {
        if is_repeatable {
            Self::Always
        } else {
            Self::IfNotApplied
        }
    }
}

/// How often and how patiently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Most times a request is sent, the first included; 1 repeats nothing.
    pub attempts_max: u32,
    /// Upper bound of the wait after the first failure; it doubles with each.
    pub wait_first: Duration,
    /// Upper bound of any wait that the server did not ask for.
    pub wait_max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts_max: 3,
            wait_first: Duration::from_millis(100),
            wait_max: Duration::from_secs(5),
        }
    }
}

impl RetryPolicy {
    /// Returns how long to wait before the next attempt after `attempts` failed ones (from 1),
    /// none where there must be no next one. `random` is uniform over all of `u64`.
    pub fn wait(
        &self,
        attempts: u32,
        error: &Error,
        repeat: Repeat,
        random: u64,
    ) -> Option<Duration> {
        if attempts >= self.attempts_max || !is_repeatable(error, repeat) {
            return None;
        }
        let doublings = attempts.saturating_sub(1).min(20);
        let bound = self
            .wait_first
            .saturating_mul(1 << doublings)
            .min(self.wait_max);
        let bound_us = u64::try_from(bound.as_micros()).unwrap_or(u64::MAX);
        // The high half of a 128-bit product is uniform below the bound, without a division.
        let jitter_us = (u128::from(random) * u128::from(bound_us)) >> 64;
        let jitter = Duration::from_micros(jitter_us as u64);
        Some(match error.retry_after() {
            Some(asked) => asked.saturating_add(jitter / 4),
            None => jitter,
        })
    }
}

/// Says whether the same request may be sent again after this failure, and may then succeed.
fn is_repeatable(error: &Error, repeat: Repeat) -> bool {
    let may_help = match error {
        Error::Unreachable { .. } | Error::Transport(_) | Error::TruncatedStream { .. } => true,
        Error::Problem { problem } => matches!(problem.status, 419 | 429 | 503 | 504),
        Error::Foreign { status, .. } => matches!(status, 429 | 502..=504),
        Error::BadUrl { .. }
        | Error::BadOption(_)
        | Error::Tls(_)
        | Error::Timeout(_)
        | Error::Malformed(_) => false,
    };
    may_help && (repeat == Repeat::Always || error.outcome() == Outcome::NotApplied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbo_api::{ErrorCode, Problem};

    fn problem(code: ErrorCode, outcome: Option<Outcome>, after_ms: Option<u64>) -> Error {
        let mut problem = Problem::new(code, "");
        problem.outcome = outcome;
        problem.retry.after_ms = after_ms;
        Error::Problem {
            problem: Box::new(problem),
        }
    }

    fn is_repeated(error: &Error, repeat: Repeat) -> bool {
        RetryPolicy::default().wait(1, error, repeat, 0).is_some()
    }

    #[test]
    fn a_write_is_repeated_only_where_the_first_took_no_effect() {
        let unknown = problem(ErrorCode::DeadlineInStore, Some(Outcome::Unknown), None);
        let not_applied = problem(ErrorCode::WriteQueueFull, Some(Outcome::NotApplied), None);
        let silent = problem(ErrorCode::ShardUnavailable, None, None);
        let broken = Error::Transport(String::new());
        let refused = Error::Unreachable {
            url: String::new(),
            reason: String::new(),
        };
        for (error, plain_write) in [
            (unknown, false),
            (not_applied, true),
            (silent, false),
            (broken, false),
            (refused, true),
        ] {
            assert!(is_repeated(&error, Repeat::Always), "{error}");
            assert_eq!(
                is_repeated(&error, Repeat::IfNotApplied),
                plain_write,
                "{error}"
            );
        }
    }

    #[test]
    fn what_cannot_get_better_is_not_repeated() {
        for code in ErrorCode::ALL
            .iter()
            .filter(|code| !matches!(code.status(), 503 | 504))
        {
            assert!(
                !is_repeated(&problem(*code, None, None), Repeat::Always),
                "{code}"
            );
        }
        assert!(!is_repeated(
            &Error::Timeout(Duration::ZERO),
            Repeat::Always
        ));
        assert!(!is_repeated(
            &Error::Malformed(String::new()),
            Repeat::Always
        ));
    }

    #[test]
    fn three_attempts_are_the_end() {
        let error = problem(ErrorCode::ShuttingDown, None, None);
        let policy = RetryPolicy::default();
        assert!(policy.wait(2, &error, Repeat::Always, 0).is_some());
        assert_eq!(policy.wait(3, &error, Repeat::Always, 0), None);
    }

    #[test]
    fn the_wait_is_jittered_from_nothing_to_a_bound_that_doubles_to_a_maximum() {
        let policy = RetryPolicy {
            attempts_max: 100,
            wait_first: Duration::from_millis(100),
            wait_max: Duration::from_millis(350),
        };
        let error = Error::Transport(String::new());
        let wait = |attempts, random| policy.wait(attempts, &error, Repeat::Always, random);
        assert_eq!(wait(1, 0), Some(Duration::ZERO));
        for (attempts, bound_ms) in [(1, 100), (2, 200), (3, 350), (99, 350)] {
            let highest = wait(attempts, u64::MAX).unwrap();
            assert_eq!(highest.as_micros(), bound_ms * 1_000 - 1, "{attempts}");
        }
    }

    #[test]
    fn the_wait_is_never_below_what_the_server_asks_for() {
        let error = problem(
            ErrorCode::WriteQueueFull,
            Some(Outcome::NotApplied),
            Some(7_000),
        );
        let wait = |random| RetryPolicy::default().wait(1, &error, Repeat::Always, random);
        assert_eq!(wait(0), Some(Duration::from_secs(7)));
        assert!(wait(u64::MAX).unwrap() <= Duration::from_millis(7_025));
    }
}
