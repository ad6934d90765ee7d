//! One number per live thread, so that counters need neither a lock nor an atomic addition.
//!
//! A live thread is the only owner of its number; when a thread ends, the next thread takes its number. The
//! owner of a number may update the slot of that number with a plain load and store. Passing a number on goes
//! through a mutex, so its next owner sees every update of the last one.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

/// Numbers that are free, and the lowest number that was never used.
struct Pool {
    free: Vec<usize>,
    next: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    free: Vec::new(),
    next: 0,
});

struct Owned(Cell<usize>);

impl Drop for Owned {
    fn drop(&mut self) {
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        pool.free.push(self.0.get());
    }
}

thread_local! {
    static OWNED: Owned = Owned(Cell::new(take()));
}

fn take() -> usize {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    pool.free.pop().unwrap_or_else(|| {
        pool.next += 1;
        pool.next - 1
    })
}

/// Returns the number of the calling thread; none while the thread ends.
pub(crate) fn current() -> Option<usize> {
    OWNED.try_with(|owned| owned.0.get()).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Barrier;

    #[test]
    fn live_threads_never_share_a_number() {
        let barrier = Barrier::new(8);
        for _ in 0..50 {
            let numbers: Vec<usize> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8)
                    .map(|_| {
                        scope.spawn(|| {
                            let number = super::current().unwrap();
                            barrier.wait();
                            assert_eq!(super::current(), Some(number));
                            number
                        })
                    })
                    .collect();
                threads.into_iter().map(|t| t.join().unwrap()).collect()
            });
            let distinct: BTreeSet<_> = numbers.iter().collect();
            assert_eq!(distinct.len(), 8, "{numbers:?}");
        }
    }
}
