//! One number per live thread, so that a thread can have a ring of its own without a lock.
//!
//! A live thread owns its number alone; a number comes back when its thread ends, and the next
//! thread takes it. Passing a number on goes through a mutex, so its next owner sees every store of
//! the last one.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

/// Numbers not in use, and the lowest one never used.
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
    let lowest = (0..pool.free.len()).min_by_key(|&at| pool.free[at]);
    if let Some(at) = lowest {
        return pool.free.swap_remove(at);
    }
    pool.next += 1;
    pool.next - 1
}

/// Returns the number of the calling thread; none while the thread is ending.
#[inline]
pub(crate) fn current() -> Option<usize> {
    OWNED.try_with(|owned| owned.0.get()).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Barrier;

    #[test]
    fn live_threads_never_share_a_number() {
        let barrier = Barrier::new(6);
        for _ in 0..50 {
            let numbers: BTreeSet<usize> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..6)
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
            assert_eq!(numbers.len(), 6, "{numbers:?}");
        }
    }
}
