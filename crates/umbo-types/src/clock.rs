//! Time as a parameter: instants of the data model, deadlines, and the clock as a trait.
//!
//! Nothing in this crate reads a clock. The process passes a [`Clock`] down, so that everything below it can
//! run with a simulated one.

use std::fmt;
use std::time::{Duration, Instant};

/// Instant of the data model: microseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Makes a timestamp from milliseconds since the epoch; saturates.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// Returns whole milliseconds since the epoch, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000
    }

    /// Returns the instant that is `duration` later; saturates at the end of time.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)),
        )
    }
}

/// Largest accepted difference between the clocks of two machines of a cluster. NTP keeps them within a fraction of it.
/// A clock that is further off is wrong, and is reported.
pub const CLOCK_OFFSET_MAX: Duration = Duration::from_secs(5);

/// Source of time. The wall clock may go back; the monotonic one does not.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Returns the time of day, for versions and expiry.
    fn wall(&self) -> Timestamp;
    /// Returns the monotonic time, for deadlines and durations.
    fn monotonic(&self) -> Instant;
}

/// Instant after which the caller no longer waits for the answer. Includes all queueing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// Makes a deadline at an instant.
    pub const fn at(instant: Instant) -> Self {
        Self(instant)
    }

    /// Makes a deadline `timeout` after `now`.
    pub fn after(now: Instant, timeout: Duration) -> Self {
        Self(now + timeout)
    }

    /// Returns the instant.
    pub const fn instant(self) -> Instant {
        self.0
    }

    /// Returns the remaining time at `now`; zero once the deadline has passed.
    pub fn remaining(self, now: Instant) -> Duration {
        self.0.saturating_duration_since(now)
    }

    /// Returns whether the deadline has passed at `now`. A deadline of exactly `now` has passed.
    pub fn has_passed(self, now: Instant) -> bool {
        now >= self.0
    }
}
