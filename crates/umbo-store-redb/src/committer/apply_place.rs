//! How many applies run at once: on half of the cores, so that requests find the other half.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

/// Places of this process.
static PLACES: LazyLock<Places> = LazyLock::new(|| {
    let cores = available_parallelism().map_or(1, usize::from);
    Places::new((cores / 2).max(1))
});

/// Places of applies.
struct Places {
    free: Mutex<usize>,
    has_news: Condvar,
}

/// A place that is taken until it is dropped.
pub(super) struct ApplyPlace(&'static Places);

impl Places {
    const fn new(places: usize) -> Self {
        Self {
            free: Mutex::new(places),
            has_news: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ApplyPlace {
    /// Waits for a place. An apply that its committer waits for goes on without one.
    pub(super) fn wait(is_awaited: &AtomicBool) -> Option<Self> {
        Self::of(&PLACES, is_awaited)
    }

    /// Lets an apply go on that its committer waits for.
    pub(super) fn note_awaited(is_awaited: &AtomicBool) {
        Self::note_awaited_at(&PLACES, is_awaited);
    }

    fn of(places: &'static Places, is_awaited: &AtomicBool) -> Option<Self> {
        let must_wait = |free: &mut usize| *free == 0 && !is_awaited.load(Ordering::Relaxed);
        let free = places.has_news.wait_while(places.lock(), must_wait);
        let mut free = free.unwrap_or_else(PoisonError::into_inner);
        *free = free.checked_sub(1)?;
        Some(Self(places))
    }

    fn note_awaited_at(places: &Places, is_awaited: &AtomicBool) {
        let free = places.lock();
        is_awaited.store(true, Ordering::Relaxed);
        drop(free);
        places.has_news.notify_all();
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
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn an_apply_waits_for_a_place_unless_it_is_awaited() {
        static ONE: Places = Places::new(1);
        let free = AtomicBool::new(false);
        let place = ApplyPlace::of(&ONE, &free);
        assert!(place.is_some());
        let is_awaited = Arc::new(AtomicBool::new(false));
        let [patient, awaited] = [false, true].map(|is_one| {
            let is_awaited = Arc::clone(&is_awaited);
            thread::spawn(move || {
                let never = AtomicBool::new(false);
                let is_awaited = if is_one { &*is_awaited } else { &never };
                ApplyPlace::of(&ONE, is_awaited).is_some()
            })
        });
        ApplyPlace::note_awaited_at(&ONE, &is_awaited);
        assert!(!awaited.join().unwrap(), "it has no place");
        assert!(!patient.is_finished());
        drop(place);
        assert!(patient.join().unwrap());
        assert!(ApplyPlace::of(&ONE, &free).is_some());
    }
}
