//! How many applies run at once: on half of the cores, so that requests find the other half.
//!
//! All shards of the process share the places. An apply whose disk hangs keeps its place, so others wait for a bounded
//! time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use std::time::Duration;

/// Longest wait for a place: an apply takes 10 to 50 ms, and within this time a shard gets less than two memtables of
/// small puts.
const WAIT_MAX: Duration = Duration::from_millis(250);

/// Places of this process.
pub(super) static PLACES: LazyLock<Places> = LazyLock::new(|| {
    let cores = available_parallelism().map_or(1, usize::from);
    Places::new((cores / 2).max(1), WAIT_MAX)
});

/// Places of applies.
pub(super) struct Places {
    free: Mutex<usize>,
    has_news: Condvar,
    wait_max: Duration,
}

/// A place that is taken until it is dropped.
pub(super) struct ApplyPlace(&'static Places);

impl Places {
    const fn new(places: usize, wait_max: Duration) -> Self {
        Self {
            free: Mutex::new(places),
            has_news: Condvar::new(),
            wait_max,
        }
    }

    /// Waits for a place. An apply that its committer waits for, or that has waited for long, goes on without one.
    pub(super) fn wait(&'static self, is_awaited: &AtomicBool) -> Option<ApplyPlace> {
        let must_wait = |free: &mut usize| *free == 0 && !is_awaited.load(Ordering::Relaxed);
        let (has_news, wait_max) = (&self.has_news, self.wait_max);
        let waited = has_news.wait_timeout_while(self.lock(), wait_max, must_wait);
        let (mut free, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *free = free.checked_sub(1)?;
        Some(ApplyPlace(self))
    }

    /// Lets an apply go on that its committer waits for.
    pub(super) fn note_awaited(&self, is_awaited: &AtomicBool) {
        let free = self.lock();
        is_awaited.store(true, Ordering::Relaxed);
        drop(free);
        self.has_news.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ApplyPlace {
    fn drop(&mut self) {
        *self.0.lock() += 1;
        self.0.has_news.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn an_apply_waits_for_a_place_unless_it_is_awaited() {
        static ONE: Places = Places::new(1, Duration::MAX);
        static IS_AWAITED: AtomicBool = AtomicBool::new(false);
        static NEVER: AtomicBool = AtomicBool::new(false);
        let place = ONE.wait(&NEVER);
        assert!(place.is_some());
        let [patient, awaited] = [&NEVER, &IS_AWAITED]
            .map(|is_awaited| thread::spawn(|| ONE.wait(is_awaited).is_some()));
        ONE.note_awaited(&IS_AWAITED);
        assert!(!awaited.join().unwrap(), "it has no place");
        assert!(!patient.is_finished());
        drop(place);
        assert!(patient.join().unwrap());
        assert!(ONE.wait(&NEVER).is_some());
    }

    #[test]
    fn an_apply_that_never_ends_holds_up_no_other_for_good() {
        static ONE: Places = Places::new(1, Duration::from_millis(1));
        let never = AtomicBool::new(false);
        let hangs = ONE.wait(&never);
        assert!(ONE.wait(&never).is_none());
        drop(hangs);
        assert!(ONE.wait(&never).is_some());
    }
}
