//! The time of these tests: that of tokio, which stands still while anything runs in a test with `start_paused`, and
//! goes to the next timer once nothing does.

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
}

impl TokioClock {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
        }
    }
}

impl Clock for TokioClock {
    fn wall(&self) -> Timestamp {
        BEGIN.saturating_add(self.began.elapsed())
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
