//! How long bulk work is repeated: while any of it succeeds.
//!
//! A quota that is used up, an overloaded shard, a shard that is away and a server that restarts are not errors of the
//! rows. Failed work is repeated, each time after the wait that the server asks for. It is given up only after nothing
//! at all succeeded for a while.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use umbo_api::ErrorCode;
use umbo_client::{Client, Error};

/// Fewest attempts before anything is given up.
const ATTEMPTS_MIN: u32 = 3;
/// Longest wait before an attempt if the server names no wait: about one attempt a second.
pub(in crate::command) const UNNAMED_WAIT: Duration = Duration::from_secs(1);

/// Returns whether the same request may succeed later.
pub(in crate::command) fn is_temporary(error: &Error) -> bool {
    match error {
        Error::BadUrl { .. } | Error::BadOption(_) | Error::Tls(_) | Error::WaitEnded => false,
        Error::Unreachable { .. }
        | Error::Transport(_)
        | Error::Timeout(_)
        | Error::TruncatedStream { .. }
        | Error::Malformed(_)
        | Error::GivenUp { .. } => true,
        Error::Unconfirmed { last } => is_temporary(last),
        Error::Problem { problem } => is_temporary_problem(problem.status, &problem.type_uri),
        Error::Foreign { status, .. } => matches!(status, 429 | 502..=504),
    }
}

/// Returns whether a request may succeed later that was answered with this status and problem type.
pub(in crate::command) fn is_temporary_problem(status: u16, type_uri: &str) -> bool {
    match type_uri.parse() {
        Ok(code) => ErrorCode::is_retryable(code),
        Err(_) => matches!(status, 408 | 419 | 429 | 500 | 502..=504 | 507),
    }
}

/// Detects that bulk work makes no progress.
#[derive(Debug)]
pub(in crate::command) struct Patience {
    limit: Duration,
    /// Time of the first failure after the last success.
    stalled_since: Option<Instant>,
}

impl Patience {
    /// Gives up after nothing succeeded for this long.
    pub(in crate::command) const fn new(limit: Duration) -> Self {
        Self {
            limit,
            stalled_since: None,
        }
    }

    /// Records that something succeeded.
    pub(in crate::command) fn progress(&mut self) {
        self.stalled_since = None;
    }

    /// Returns whether to repeat work that has failed `attempts` times. `wait` is the wait that the server asked for,
    /// if any.
    pub(in crate::command) fn goes_on(
        &mut self,
        attempts: u32,
        wait: Option<Duration>,
        now: Instant,
    ) -> bool {
        let since = *self.stalled_since.get_or_insert(now);
        let stalled = now.saturating_duration_since(since);
        // The wait that the server asks for does not count.
        attempts < ATTEMPTS_MIN || stalled < self.limit.saturating_add(wait.unwrap_or_default())
    }
}

/// Patience of tasks that work side by side: the success of one is progress for all.
#[derive(Debug)]
pub(in crate::command) struct SharedPatience(Mutex<Patience>);

impl SharedPatience {
    /// Gives up after nothing succeeded for this long.
    pub(in crate::command) const fn new(limit: Duration) -> Self {
        Self(Mutex::new(Patience::new(limit)))
    }

    /// Makes a call until it succeeds; the call gets the number of attempts before it. A failure that `may_pass`
    /// accepts is tried again after the wait that the server asks for, while the patience lasts.
    pub(in crate::command) async fn repeat<T, F>(
        &self,
        client: &Client,
        may_pass: impl Fn(&Error) -> bool,
        call: impl Fn(u32) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut attempts = 0;
        loop {
            let error = match call(attempts).await {
                Ok(answer) => {
                    self.lock().progress();
                    return Ok(answer);
                }
                Err(error) => error,
            };
            attempts += 1;
            let wait = error.retry_after();
            if !may_pass(&error) || !self.lock().goes_on(attempts, wait, Instant::now()) {
                return Err(error);
            }
            let unnamed = || client.jitter(UNNAMED_WAIT);
            tokio::time::sleep(wait.unwrap_or_else(unnamed)).await;
        }
    }

    /// Makes a call until it succeeds, fails for good, or the patience ends.
    pub(in crate::command) async fn call<T, F>(
        &self,
        client: &Client,
        call: impl Fn() -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.repeat(client, is_temporary, |_| call()).await
    }

    fn lock(&self) -> MutexGuard<'_, Patience> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbo_api::Problem;

    const LIMIT: Duration = Duration::from_mins(1);

    #[test]
    fn what_failed_is_repeated_for_as_long_as_anything_succeeds() {
        let (mut patience, start) = (Patience::new(LIMIT), Instant::now());
        for second in 0..10_000 {
            let now = start + Duration::from_secs(second);
            assert!(patience.goes_on(99, None, now), "{second}");
            if second % 50 == 49 {
                patience.progress();
            }
        }
    }

    #[test]
    fn where_nothing_succeeds_patience_ends() {
        let (mut patience, start) = (Patience::new(LIMIT), Instant::now());
        let mut goes_on = |seconds, attempts, wait| {
            let now = start + Duration::from_secs(seconds);
            patience.goes_on(attempts, wait, now)
        };
        assert!(goes_on(0, 9, None));
        assert!(goes_on(59, 9, None));
        assert!(!goes_on(60, 9, None));
        assert!(goes_on(60, 2, None), "each row has its three attempts");
        assert!(goes_on(60, 9, Some(Duration::from_secs(1))));
        assert!(!goes_on(61, 9, Some(Duration::from_secs(1))));
    }

    #[test]
    fn whatever_may_pass_needs_patience() {
        for (code, temporary) in [
            (ErrorCode::QuotaExceeded, true),
            (ErrorCode::WriteQueueFull, true),
            (ErrorCode::ShardUnavailable, true),
            (ErrorCode::ShuttingDown, true),
            (ErrorCode::StorageFull, true),
            (ErrorCode::DeadlineInStore, true),
            (ErrorCode::ValueTooLarge, false),
            (ErrorCode::Forbidden, false),
            (ErrorCode::DataDamaged, false),
            (ErrorCode::AbnormalUsageDetected, false),
        ] {
            let problem = Box::new(Problem::new(code, ""));
            assert_eq!(
                is_temporary(&Error::Problem { problem }),
                temporary,
                "{code}"
            );
        }
        assert!(is_temporary_problem(419, "") && is_temporary_problem(503, "newer"));
        assert!(is_temporary(&Error::Transport(String::new())));
        assert!(!is_temporary(&Error::Tls(String::new())));
    }
}
