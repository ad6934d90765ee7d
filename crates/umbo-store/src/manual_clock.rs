//! A simulated clock, for tests (feature `testing`).
//!
//! Time stands still until a test advances it. The wall clock may be set to any time, also back; the
//! monotonic clock only goes forwards, as a real one does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use umbo_types::{Clock, Timestamp};

/// A clock that only a test advances.
#[derive(Debug)]
pub struct ManualClock {
    wall_micros: AtomicU64,
    base: Instant,
    elapsed_micros: AtomicU64,
}

impl ManualClock {
    /// Makes a clock whose time of day is `now`.
    pub fn new(now: Timestamp) -> Self {
        Self {
            wall_micros: AtomicU64::new(now.0),
            base: Instant::now(),
            elapsed_micros: AtomicU64::new(0),
        }
    }

    /// Sets the time of day, forwards or backwards. The monotonic time stays.
    pub fn set_wall(&self, now: Timestamp) {
        self.wall_micros.store(now.0, Ordering::SeqCst);
    }

    /// Advances both clocks by `duration`.
    pub fn advance(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).expect("a test waits less than an age");
        self.wall_micros.fetch_add(micros, Ordering::SeqCst);
        self.elapsed_micros.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> Timestamp {
        Timestamp(self.wall_micros.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Instant {
        self.base + Duration::from_micros(self.elapsed_micros.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_goes_anywhere_and_the_monotonic_clock_only_forwards() {
        let clock = ManualClock::new(Timestamp(5_000));
        let begun = clock.monotonic();
        clock.set_wall(Timestamp(1_000));
        assert_eq!((clock.wall(), clock.monotonic()), (Timestamp(1_000), begun));
        clock.advance(Duration::from_millis(2));
        assert_eq!(clock.wall(), Timestamp(3_000));
        assert_eq!(clock.monotonic() - begun, Duration::from_millis(2));
    }
}
