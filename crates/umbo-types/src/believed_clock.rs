//! The believed time of day, for changes that cannot be undone: reclaiming rows, dropping versions, forgetting loads.
//!
//! A time of day that jumps ahead is believed only after it has lasted for a while. Until then the time from before
//! the jump counts, advanced by the monotonic clock. Readers use the time of day as it is: a row that a jump hides is
//! visible again when the clock goes back. Pure: both clocks are parameters.

use std::time::{Duration, Instant};

use crate::clock::Timestamp;

/// Furthest that the time of day may run ahead of the monotonic clock between two observations and still be
/// believed.
const JUMP_MAX: Duration = Duration::from_mins(1);
/// How long a time of day that has jumped ahead must last before it is believed.
const CONFIRMED_AFTER: Duration = Duration::from_mins(10);

/// The believed time of day.
#[derive(Debug, Clone, Copy)]
pub struct BelievedClock {
    /// The last believed time of day, and when it was observed.
    believed: (Timestamp, Instant),
    /// When the time of day was first seen too far ahead.
    jumped_at: Option<Instant>,
}

impl BelievedClock {
    /// Begins with a believed time of day.
    pub fn new(believed: Timestamp, now: Instant) -> Self {
        Self {
            believed: (believed, now),
            jumped_at: None,
        }
    }

    /// Observes both clocks. Returns whether the time of day has just begun to be too far ahead.
    pub fn observe(&mut self, wall: Timestamp, now: Instant) -> bool {
        let is_confirmed = self
            .jumped_at
            .is_some_and(|at| now.saturating_duration_since(at) >= CONFIRMED_AFTER);
        if !self.is_ahead(wall, now) || is_confirmed {
            *self = Self::new(wall, now);
            return false;
        }
        let is_news = self.jumped_at.is_none();
        self.jumped_at.get_or_insert(now);
        is_news
    }

    /// Returns the believed time of day. Changes that are due by then may be made for good.
    pub fn time(&self, wall: Timestamp, now: Instant) -> Timestamp {
        if self.is_ahead(wall, now) {
            self.carried_on(now)
        } else {
            wall
        }
    }

    fn is_ahead(&self, wall: Timestamp, now: Instant) -> bool {
        wall > self.carried_on(now).saturating_add(JUMP_MAX)
    }

    fn carried_on(&self, now: Instant) -> Timestamp {
        let (believed, at) = self.believed;
        believed.saturating_add(now.saturating_duration_since(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_000_000);

    fn at(seconds: u64) -> Timestamp {
        START.saturating_add(Duration::from_secs(seconds))
    }

    #[test]
    fn a_clock_that_runs_is_believed_at_once_however_seldom_it_is_looked_at() {
        let begun = Instant::now();
        let mut clock = BelievedClock::new(START, begun);
        for seconds in [0, 1, 3_600, 86_400, 86_450] {
            let now = begun + Duration::from_secs(seconds);
            let wall = at(seconds + 30);
            assert!(!clock.observe(wall, now));
            assert_eq!(clock.time(wall, now), wall);
        }
    }

    #[test]
    fn a_jump_ahead_is_believed_once_it_has_stood() {
        let begun = Instant::now();
        let mut clock = BelievedClock::new(START, begun);
        let ahead = 1_000_000;
        for seconds in 0..600 {
            let (now, wall) = (begun + Duration::from_secs(seconds), at(ahead + seconds));
            assert_eq!(clock.observe(wall, now), seconds == 0, "news once");
            assert_eq!(clock.time(wall, now), at(seconds));
        }
        let (now, wall) = (begun + Duration::from_mins(10), at(ahead + 600));
        assert!(!clock.observe(wall, now));
        assert_eq!(clock.time(wall, now), wall);
    }

    #[test]
    fn a_clock_that_comes_back_is_believed_at_once() {
        let begun = Instant::now();
        let mut clock = BelievedClock::new(START, begun);
        let later = begun + Duration::from_secs(5);
        assert!(clock.observe(at(100_000), later));
        assert_eq!(clock.time(at(100_000), later), at(5));
        for wall in [at(5), at(2)] {
            assert!(!clock.observe(wall, later));
            assert_eq!(clock.time(wall, later), wall);
        }
        assert!(clock.observe(at(100_000), later), "the next jump is one");
    }
}
