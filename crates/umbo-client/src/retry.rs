//! Which requests are repeated, and after which wait. Pure: the random number is a parameter.
//!
//! A wait that the server names is obeyed as it is: the server has computed when it will have room, has
//! spread its callers itself, and reserves room for a retry with its ticket. If it names no wait, the
//! wait is exponential backoff with full jitter (Brooker, "Exponential Backoff And Jitter", 2015), which
//! grows with the failures without a named wait. [`crate::RetryBudget`] bounds the number of repetitions.

use std::time::Duration;

use umbo_api::Outcome;

use crate::error::Error;

/// When the same request may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// After any outcome of the first attempt: a read, or a write with the same effect when applied
    /// twice.
    Always,
    /// Only if the first attempt certainly took no effect.
    IfNotApplied,
}

impl Repeat {
    /// Returns the rule for a request that may or may not be sent twice with the effect of one.
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
    /// Most repetitions for a hundred requests of a client, over the last ten seconds.
    pub budget_percent: u32,
    /// Repetitions a second that a client may make in any case.
    pub budget_per_second_min: u32,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts_max: 3,
            wait_first: Duration::from_millis(100),
            wait_max: Duration::from_secs(5),
            budget_percent: 10,
            budget_per_second_min: 1,
        }
    }
}

/// How often one call has failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Failures {
    attempts: u32,
    /// Failed attempts after which the server named no wait.
    unnamed: u32,
}

impl RetryPolicy {
    /// Counts a failed attempt and returns how long to wait before the next one, or `None` if there must
    /// be no next one. `random` is uniform over all of `u64`.
    pub fn wait(
        &self,
        failures: &mut Failures,
        error: &Error,
        repeat: Repeat,
        random: u64,
    ) -> Option<Duration> {
        failures.attempts += 1;
        if failures.attempts >= self.attempts_max || !is_repeatable(error, repeat) {
            return None;
        }
        if let Some(named) = error.retry_after() {
            return Some(named);
        }
        let doublings = failures.unnamed.min(20);
        failures.unnamed += 1;
        let bound = self.wait_first.saturating_mul(1 << doublings);
        Some(full_jitter(bound.min(self.wait_max), random))
    }
}

/// Returns a wait that is uniform between nothing and a bound. `random` is uniform over all of
/// `u64`.
pub(crate) fn full_jitter(bound: Duration, random: u64) -> Duration {
    let bound_us = u64::try_from(bound.as_micros()).unwrap_or(u64::MAX);
    // The high half of a 128-bit product is uniform below the bound, without a division.
    let jitter_us = (u128::from(random) * u128::from(bound_us)) >> 64;
    Duration::from_micros(jitter_us as u64)
}

/// Returns whether the same request may be sent again after this failure, and may then succeed.
fn is_repeatable(error: &Error, repeat: Repeat) -> bool {
    let may_help = match error {
        Error::Unreachable { .. } | Error::Transport(_) | Error::TruncatedStream { .. } => true,
        Error::Problem { problem } => {
            let is_known_to_last = problem.code().is_some_and(|code| !code.is_retryable());
            matches!(problem.status, 419 | 429 | 503 | 504) && !is_known_to_last
        }
        Error::Foreign { status, .. } => matches!(status, 429 | 502..=504),
        Error::BadUrl { .. }
        | Error::BadOption(_)
        | Error::Tls(_)
        | Error::Timeout(_)
        | Error::GivenUp { .. }
        | Error::WaitEnded
        | Error::Unconfirmed { .. }
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

    fn first_wait(error: &Error, repeat: Repeat, random: u64) -> Option<Duration> {
        RetryPolicy::default().wait(&mut Failures::default(), error, repeat, random)
    }

    fn is_repeated(error: &Error, repeat: Repeat) -> bool {
        first_wait(error, repeat, 0).is_some()
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
            .filter(|code| !matches!(code.status(), 429 | 503 | 504) || !code.is_retryable())
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
        let (policy, mut failures) = (RetryPolicy::default(), Failures::default());
        let mut wait = || policy.wait(&mut failures, &error, Repeat::Always, 0);
        let waits = [wait(), wait(), wait()];
        assert_eq!(waits.map(|wait| wait.is_some()), [true, true, false]);
    }

    #[test]
    fn the_wait_is_jittered_from_nothing_to_a_bound_that_doubles_to_a_maximum() {
        let policy = RetryPolicy {
            attempts_max: 100,
            wait_first: Duration::from_millis(100),
            wait_max: Duration::from_millis(350),
            ..RetryPolicy::default()
        };
        let error = Error::Transport(String::new());
        assert_eq!(first_wait(&error, Repeat::Always, 0), Some(Duration::ZERO));
        let mut failures = Failures::default();
        for bound_ms in [100, 200, 350, 350, 350] {
            let wait = policy.wait(&mut failures, &error, Repeat::Always, u64::MAX);
            assert_eq!(wait.unwrap().as_micros(), bound_ms * 1_000 - 1);
        }
    }

    #[test]
    fn a_wait_that_the_server_names_is_obeyed_as_it_is_and_makes_no_other_longer() {
        let policy = RetryPolicy {
            attempts_max: 100,
            ..RetryPolicy::default()
        };
        let named = problem(
            ErrorCode::WriteQueueFull,
            Some(Outcome::NotApplied),
            Some(7_013),
        );
        let unnamed = Error::Transport(String::new());
        let mut failures = Failures::default();
        for random in [0, 1 << 63, u64::MAX] {
            let wait = policy.wait(&mut failures, &named, Repeat::Always, random);
            assert_eq!(wait, Some(Duration::from_millis(7_013)));
        }
        let wait = policy.wait(&mut failures, &unnamed, Repeat::Always, u64::MAX);
        assert_eq!(wait, Some(Duration::from_micros(99_999)));
    }

    #[test]
    fn what_a_proxy_asks_for_is_obeyed_too() {
        let error = Error::Foreign {
            status: 429,
            body: String::new(),
            retry_after: Some(Duration::from_secs(2)),
        };
        assert_eq!(first_wait(&error, Repeat::IfNotApplied, 1), None);
        let wait = first_wait(&error, Repeat::Always, 1);
        assert_eq!(wait, Some(Duration::from_secs(2)));
    }
}
