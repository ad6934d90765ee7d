//! The time of these tests: that of tokio, which stands still while anything runs in a test with `start_paused`, and
//! goes to the next timer once nothing does.

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use tokio::time::Instant;
use umbo_types::{Clock, Timestamp};

/// Time of day at the beginning of a test: a day in 2026.
const BEGIN: Timestamp = Timestamp::from_millis(1_790_000_000_000);
/// Longer than any wait of a test.
const PATIENCE: Duration = Duration::from_mins(1);

/// A clock that shows the time of tokio.
#[derive(Debug)]
pub(crate) struct TokioClock {
    began: Instant,
    /// How far its time of day is ahead, in seconds.
    ahead: AtomicI64,
}

impl TokioClock {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            ahead: AtomicI64::new(0),
        }
    }

    /// Sets how far the time of day is ahead of the right one, in seconds.
    pub(crate) fn set_ahead(&self, seconds: i64) {
        self.ahead.store(seconds, SeqCst);
    }
}

impl Clock for TokioClock {
    fn wall(&self) -> Timestamp {
        let right = BEGIN.saturating_add(self.began.elapsed());
        let ahead = self.ahead.load(SeqCst) * 1_000_000;
        Timestamp(right.0.checked_add_signed(ahead).expect("a time of day"))
    }

    fn monotonic(&self) -> std::time::Instant {
        Instant::now().into_std()
    }
}

/// Waits until a condition holds. Panics after a minute.
pub(crate) async fn until(is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let ended = tokio::time::timeout(PATIENCE, waiting).await;
    ended.expect("the condition holds within a minute");
}
