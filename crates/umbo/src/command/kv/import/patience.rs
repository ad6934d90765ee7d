//! How long an import goes on asking where rows are rejected or shed.
//!
//! A quota that is spent and a server that has too much to do are no faults of the rows: they are
//! sent again, each time as told, for as long as the import gets anywhere at all. Only where nothing
//! of it was written for a while are they given up. What fails for another reason that may pass
//! has a few rounds. Pure: the time is a parameter.

use std::time::{Duration, Instant};

use umbo_api::{ErrorCode, ErrorKind};
use umbo_client::Error;

/// Most times a row is sent that failed in a way that may pass.
const ROUNDS_MAX: u32 = 5;
/// Fewest times a row is sent before it is given up.
const ROUNDS_MIN: u32 = 3;

/// Why rows are to be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Again {
    /// Something broke that may be whole again.
    Failed,
    /// A quota is spent, or the server has too much to do.
    Refused,
}

impl Again {
    /// Returns why a row is to be sent again that was answered so and took no effect; none where
    /// that would not help.
    pub(super) fn of_row(status: u16, type_uri: &str) -> Option<Self> {
        let kind = type_uri.parse().ok().map(ErrorCode::kind);
        match (status, kind) {
            (419 | 429, _) | (503, Some(ErrorKind::Shed)) => Some(Self::Refused),
            (503 | 504, _) => Some(Self::Failed),
            _ => None,
        }
    }

    /// The same for a whole request; the client has already repeated what failed otherwise.
    pub(super) fn of_request(error: &Error) -> Option<Self> {
        if matches!(error, Error::GivenUp { .. }) {
            return Some(Self::Refused);
        }
        let problem = error.problem().filter(|_| error.is_overload())?;
        Self::of_row(problem.status, &problem.type_uri).filter(|again| *again == Self::Refused)
    }
}

/// Whether an import gets anywhere.
#[derive(Debug, Default)]
pub(super) struct Stall {
    /// When rows were first refused since any were written.
    since: Option<Instant>,
}

impl Stall {
    /// Notes that rows were written.
    pub(super) fn end(&mut self) {
        self.since = None;
    }

    /// Says whether rows that were sent for the `round`th time, from 1, are to be sent once more:
    /// `wait` from now, where that is known.
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
        // What the server asks for is no time lost.
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
