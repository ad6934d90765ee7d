//! The clock of the system, the only place where the server reads time, and a check for clock jumps.
//!
//! A clock that goes back loses no data: versions still grow. But expiry follows the clock, so an operator
//! has to be warned.

use std::time::{Duration, Instant, SystemTime};

use umbo_types::{Clock, Timestamp, Version};

/// How far back the clock may go without a warning: more than any correction by NTP.
const TOLERATED: Duration = Duration::from_secs(5);

/// The system's clocks.
#[derive(Debug)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn wall(&self) -> Timestamp {
        // A clock set before 1970 reads as 1970; versions still grow.
        let since = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }

    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}

/// Returns when a time span began that ends now, in milliseconds since the Unix epoch.
pub(crate) fn millis_ago(span: Duration) -> u64 {
    let span = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    SystemClock.wall().as_millis().saturating_sub(span)
}

/// Warns if the clock is behind the versions that were assigned before the server started.
pub(crate) fn warn_if_behind(clock: &dyn Clock, version_ceiling: Version) {
    let behind = Duration::from_micros(version_ceiling.0.saturating_sub(clock.wall().0));
    if behind > TOLERATED {
        tracing::warn!(
            behind_seconds = behind.as_secs(),
            "the clock of this machine is behind the newest version in the store; nothing is lost \
             and versions grow all the same, but rows expire late until it has caught up: set the \
             clock (NTP)"
        );
    }
}

/// Compares the time of day with the monotonic time.
#[derive(Debug)]
pub(crate) struct ClockWatch {
    wall: Timestamp,
    monotonic: Instant,
}

impl ClockWatch {
    pub(crate) fn begin(clock: &dyn Clock) -> Self {
        Self {
            wall: clock.wall(),
            monotonic: clock.monotonic(),
        }
    }

    /// Warns if the clock has gone back since the last check.
    pub(crate) fn look(&mut self, clock: &dyn Clock) {
        let now = Self::begin(clock);
        let expected = self.wall.saturating_add(now.monotonic - self.monotonic);
        let back = Duration::from_micros(expected.0.saturating_sub(now.wall.0));
        if back > TOLERATED {
            tracing::warn!(
                back_seconds = back.as_secs(),
                "the clock of this machine went back; nothing is lost and versions grow all the \
                 same, but rows expire that much later: check what sets the clock"
            );
        }
        *self = now;
    }
}
