//! Reads that one thread has counted and the sketch has not: a ring with one writer and one reader.
//!
//! The writer is the thread that owns the ring; the reader is whoever holds the lock of the sketch.
//! So counting a read is two plain stores, and the sketch is brought up to date in batches, which
//! costs a fraction of doing it read by read.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Reads a ring holds.
pub(crate) const RING_LEN: usize = 512;

#[derive(Debug, Default)]
struct Cell {
    hash: AtomicU64,
    units: AtomicU64,
}

/// Reads on their way to the sketch.
#[derive(Debug)]
pub(crate) struct Ring {
    cells: Box<[Cell]>,
    /// Reads ever written; only the writer stores it.
    written: AtomicUsize,
    /// Reads ever taken out; only the reader stores it.
    taken: AtomicUsize,
}

impl Ring {
    pub(crate) fn new() -> Self {
        Self {
            cells: (0..RING_LEN).map(|_| Cell::default()).collect(),
            written: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
        }
    }

    /// Writes one read, and returns how many wait now; none where there is no room.
    ///
    /// To be called by the owner alone. A second caller at the same time would lose reads, nothing
    /// else.
    #[inline]
    pub(crate) fn write(&self, hash: u64, units: u64) -> Option<usize> {
        let written = self.written.load(Ordering::Relaxed);
        // Acquire: the reader is done with the cell that is written next.
        let waiting = written.wrapping_sub(self.taken.load(Ordering::Acquire));
        if waiting >= RING_LEN {
            return None;
        }
        let cell = &self.cells[written % RING_LEN];
        cell.hash.store(hash, Ordering::Relaxed);
        cell.units.store(units, Ordering::Relaxed);
        // Release: who sees the count sees the cell.
        self.written
            .store(written.wrapping_add(1), Ordering::Release);
        Some(waiting + 1)
    }

    /// Takes out all reads that wait. To be called under the lock of the sketch.
    pub(crate) fn take(&self, mut each: impl FnMut(u64, u64)) {
        let written = self.written.load(Ordering::Acquire);
        let mut taken = self.taken.load(Ordering::Relaxed);
        while taken != written {
            let cell = &self.cells[taken % RING_LEN];
            each(
                cell.hash.load(Ordering::Relaxed),
                cell.units.load(Ordering::Relaxed),
            );
            taken = taken.wrapping_add(1);
        }
        self.taken.store(taken, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_full_ring_says_so_and_keeps_what_it_has() {
        let ring = Ring::new();
        for read in 1..=RING_LEN as u64 {
            assert_eq!(ring.write(read, 2 * read), Some(read as usize));
        }
        assert_eq!(ring.write(9_999, 0), None);
        let mut seen = Vec::new();
        ring.take(|hash, units| seen.push((hash, units)));
        let expected: Vec<_> = (1..=RING_LEN as u64).map(|read| (read, 2 * read)).collect();
        assert_eq!(seen, expected);
        assert_eq!(ring.write(1, 1), Some(1));
    }

    #[test]
    fn nothing_is_lost_or_seen_twice_between_a_writer_and_readers() {
        let ring = Ring::new();
        let seen = Mutex::new(Vec::new());
        let reads = 200_000_u64;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for read in 1..=reads {
                    while ring.write(read, read ^ 5).is_none() {
                        std::thread::yield_now();
                    }
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        let mut seen = seen.lock().unwrap();
                        ring.take(|hash, units| {
                            assert_eq!(units, hash ^ 5);
                            seen.push(hash);
                        });
                        if seen.len() as u64 == reads {
                            return;
                        }
                        drop(seen);
                        std::thread::yield_now();
                    }
                });
            }
        });
        let seen = seen.into_inner().unwrap();
        assert!(seen.into_iter().eq(1..=reads));
    }
}
