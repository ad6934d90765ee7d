//! Rows of the log that come faster than applies take them, and the answers that are held back for them.
//!
//! An answer is held back in proportion to the rows of its write and to the rows that wait. So a caller of many rows
//! gets the pace of the applies, while a caller of one row notices little; without this all of them would wait at
//! once when a memtable is full. The rows are on the disk by then: only their caller's next request comes later.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use umbo_types::Deadline;

use crate::queue::WorkSize;

/// Shortest wait of an answer: the resolution of timers.
const HELD_MIN: Duration = Duration::from_millis(1);
/// Longest wait of an answer.
const HELD_MAX: Duration = Duration::from_secs(1);

/// The backlog of the applies of a shard.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// For how long an answer is held back for each row of its write, in nanoseconds.
    row_nanos: AtomicU64,
    /// For how long answers have been held back since the process started, in nanoseconds.
    pub(crate) held_nanos: AtomicU64,
    has_shrunk: Notify,
}

impl Backlog {
    /// Records for how long an answer is held back for each row of its write.
    pub(crate) fn note(&self, row_held: Duration) {
        let nanos = row_held.as_nanos() as u64;
        if nanos < self.row_nanos.swap(nanos, Ordering::Relaxed) {
            self.has_shrunk.notify_waiters();
        }
    }

    /// Holds back the answer of a write, at most for half of the time that its caller waits still, and only until an
    /// apply has taken the rows.
    pub(crate) async fn hold(&self, size: WorkSize, deadline: Option<Deadline>) {
        // First, so that it is told of a backlog that shrinks after the look.
        let shrunk = self.has_shrunk.notified();
        let held = self.held(size);
        if held < HELD_MIN {
            return;
        }
        let now = Instant::now().into_std();
        let left = deadline.map(|deadline| deadline.instant().saturating_duration_since(now) / 2);
        let held = held.min(left.unwrap_or(HELD_MAX));
        drop(timeout(held, shrunk).await);
        let held = Instant::now().into_std().saturating_duration_since(now);
        self.held_nanos
            .fetch_add(held.as_nanos() as u64, Ordering::Relaxed);
    }

    fn held(&self, size: WorkSize) -> Duration {
        let nanos = self.row_nanos.load(Ordering::Relaxed);
        Duration::from_nanos(nanos.saturating_mul(size.rows() as u64)).min(HELD_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(mutations: usize) -> WorkSize {
        WorkSize {
            mutations,
            bytes: 0,
        }
    }

    async fn held(backlog: &Backlog, size: WorkSize, deadline: Option<Deadline>) -> Duration {
        let began = Instant::now();
        backlog.hold(size, deadline).await;
        Instant::now() - began
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_held_back_in_proportion_to_its_rows() {
        let backlog = Backlog::default();
        assert_eq!(held(&backlog, rows(8_192), None).await, Duration::ZERO);
        backlog.note(Duration::from_micros(500));
        let bytes = WorkSize {
            mutations: 1,
            bytes: 100 << 9,
        };
        for (size, millis) in [
            (rows(1), 0),
            (rows(2), 1),
            (rows(100), 50),
            (bytes, 50),
            (rows(8_192), 1_000),
        ] {
            let held = held(&backlog, size, None).await;
            assert_eq!(held, Duration::from_millis(millis), "{size:?}");
        }
        let deadline = Deadline::after(Instant::now().into_std(), Duration::from_millis(60));
        let before = backlog.held_nanos.load(Ordering::Relaxed);
        let held = held(&backlog, rows(1_000), Some(deadline)).await;
        assert_eq!(held, Duration::from_millis(30));
        let counted = backlog.held_nanos.load(Ordering::Relaxed) - before;
        assert_eq!(u128::from(counted), held.as_nanos());
    }

    #[tokio::test(start_paused = true)]
    async fn answers_go_out_once_an_apply_has_taken_the_rows() {
        let backlog = Backlog::default();
        backlog.note(Duration::from_millis(1));
        let taken = async {
            tokio::time::advance(Duration::from_millis(5)).await;
            backlog.note(Duration::from_micros(999));
        };
        let (held, ()) = tokio::join!(held(&backlog, rows(1_000), None), taken);
        assert_eq!(held, Duration::from_millis(5));
    }
}
