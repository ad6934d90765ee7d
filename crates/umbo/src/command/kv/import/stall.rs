//! How long an import retries rows that are rejected or shed.
//!
//! An exceeded quota or an overloaded server is not an error of the rows: they are sent again, each time
//! after the wait that the server asks for, as long as any rows of the import are written. They fail only
//! after no row was written for a while. Rows with another temporary error are sent a few times. Pure: the
//! time is a parameter.

use std::time::{Duration, Instant};

use umbo_api::{ErrorCode, ErrorKind};
use umbo_client::Error;

/// Most times that a row with a temporary error is sent.
const ROUNDS_MAX: u32 = 5;
/// Fewest times that a row is sent before it fails.
const ROUNDS_MIN: u32 = 3;

/// Why rows are sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Again {
    /// A temporary error of the server.
    Failed,
    /// A quota is exceeded, or the server is overloaded.
    Refused,
}

impl Again {
    /// Returns why a row with this answer is sent again; none if the row failed permanently. The row must not
    /// have been applied.
    pub(super) fn of_row(status: u16, type_uri: &str) -> Option<Self> {
        let kind = type_uri.parse().ok().map(ErrorCode::kind);
        match (status, kind) {
            (419 | 429, _) | (503, Some(ErrorKind::Shed)) => Some(Self::Refused),
            (503 | 504, _) => Some(Self::Failed),
            _ => None,
        }
    }

    /// The same for a whole request; the client has already repeated other failures.
    pub(super) fn of_request(error: &Error) -> Option<Self> {
        if matches!(error, Error::GivenUp { .. }) {
            return Some(Self::Refused);
        }
        let problem = error.problem().filter(|_| error.is_overload())?;
        Self::of_row(problem.status, &problem.type_uri).filter(|again| *again == Self::Refused)
    }
}

/// Detects that an import makes no progress.
#[derive(Debug, Default)]
pub(super) struct Stall {
    /// When rows were first refused since any were written.
    since: Option<Instant>,
}

impl Stall {
    /// Records that rows were written.
    pub(super) fn end(&mut self) {
        self.since = None;
    }

    /// Returns whether rows that were sent `round` times are to be sent once more, after `wait`, if the
    /// server gave one.
    pub(super) fn goes_on(
        &mut self,
        again: Again,
        round: u32,
        wait: Option<Duration>,
        patience: Duration,
        now: Instant,
    ) -> bool {
        if again == Again::Failed {
            return round < ROUNDS_MAX;
        }
        let since = *self.since.get_or_insert(now);
        let stalled = now.saturating_duration_since(since);
        // The wait that the server asks for does not count.
        round < ROUNDS_MIN || stalled < patience.saturating_add(wait.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbo_api::Problem;

    const PATIENCE: Duration = Duration::from_mins(1);

    #[test]
    fn what_is_refused_is_sent_again_for_as_long_as_anything_is_written() {
        let (mut stall, start) = (Stall::default(), Instant::now());
        for second in 0..10_000 {
            let now = start + Duration::from_secs(second);
            assert!(
                stall.goes_on(Again::Refused, 99, None, PATIENCE, now),
                "{second}"
            );
            if second % 50 == 49 {
                stall.end();
            }
        }
    }

    #[test]
    fn where_nothing_is_written_patience_ends() {
        let (mut stall, start) = (Stall::default(), Instant::now());
        let mut goes_on = |seconds, round, wait| {
            let now = start + Duration::from_secs(seconds);
            stall.goes_on(Again::Refused, round, wait, PATIENCE, now)
        };
        assert!(goes_on(0, 9, None));
        assert!(goes_on(59, 9, None));
        assert!(!goes_on(60, 9, None));
        assert!(goes_on(60, 2, None), "each row has its three chances");
        assert!(goes_on(60, 9, Some(Duration::from_secs(1))));
        assert!(!goes_on(61, 9, Some(Duration::from_secs(1))));
    }

    #[test]
    fn what_failed_has_a_few_rounds() {
        let (mut stall, now) = (Stall::default(), Instant::now());
        let mut goes_on = |round| stall.goes_on(Again::Failed, round, None, PATIENCE, now);
        assert!(goes_on(1) && goes_on(4) && !goes_on(5));
    }

    #[test]
    fn only_quotas_and_overload_need_patience() {
        let of_row = |code: ErrorCode| Again::of_row(code.status(), &code.type_uri());
        for (code, again) in [
            (ErrorCode::QuotaExceeded, Some(Again::Refused)),
            (ErrorCode::WriteQueueFull, Some(Again::Refused)),
            (ErrorCode::TooManyRequestsInFlight, Some(Again::Refused)),
            (ErrorCode::StorageFailed, Some(Again::Failed)),
            (ErrorCode::ShardUnavailable, Some(Again::Failed)),
            (ErrorCode::DeadlineBeforeStore, Some(Again::Failed)),
            (ErrorCode::StorageFull, None),
            (ErrorCode::ValueTooLarge, None),
        ] {
            assert_eq!(of_row(code), again, "{code}");
            let problem = Box::new(Problem::new(code, ""));
            let of_request = Again::of_request(&Error::Problem { problem });
            assert_eq!(
                of_request,
                again.filter(|again| *again == Again::Refused),
                "{code}"
            );
        }
        assert_eq!(Again::of_row(419, ""), Some(Again::Refused));
        let foreign = Error::Foreign {
            status: 429,
            body: String::new(),
            retry_after: None,
        };
        assert_eq!(Again::of_request(&foreign), None);
    }
}
