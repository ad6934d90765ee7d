//! The clock of a simulated host: simulated time, and a time of day that a fault may set.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use umbo_types::{Clock, Timestamp};

/// Time of day at the beginning of a run: a day in 2026.
const BEGIN: Timestamp = Timestamp::from_millis(1_790_000_000_000);

/// The clock of a host.
#[derive(Debug)]
pub struct SimulatedClock {
    began: tokio::time::Instant,
    /// Offset of the time of day from the true one, in microseconds.
    ahead: AtomicI64,
}

impl SimulatedClock {
    /// Makes a clock without an offset.
    pub fn new() -> Self {
        Self {
            began: tokio::time::Instant::now(),
            ahead: AtomicI64::new(0),
        }
    }

    /// Sets the offset of the time of day from the true one, in microseconds; negative for behind.
    pub fn set_ahead(&self, micros: i64) {
        self.ahead.store(micros, Ordering::Relaxed);
    }

    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Default for SimulatedClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SimulatedClock {
    fn wall(&self) -> Timestamp {
        let now = BEGIN.saturating_add(self.elapsed());
        Timestamp(
            now.0
                .saturating_add_signed(self.ahead.load(Ordering::Relaxed)),
        )
    }

    fn monotonic(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}
