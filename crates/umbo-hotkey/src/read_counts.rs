//! Counting reads on the path: each thread has a separate sketch.
//!
//! A thread gathers the hashes of its reads in a batch, and adds a full batch to its sketch. So most reads touch one
//! cache line and take a lock that no other thread wants. A thread never waits for that lock: while the detector copies
//! its sketch, its reads are counted as uncounted and nothing else.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use thread_local::ThreadLocal;

use crate::sketch::Sketch;

/// Reads of a batch.
const BATCH_LEN: usize = 64;
/// Counters of the sketch of one thread among few.
const COUNTERS_MAX: usize = 1_024;
/// Counters of the sketch of one thread among many.
const COUNTERS_MIN: usize = 256;
/// Counters of all sketches together, so that many cores stay within their memory too.
const COUNTERS_TOTAL: usize = 8 * COUNTERS_MAX;

#[derive(Debug)]
struct PendingCounts {
    batch: [u64; BATCH_LEN],
    len: usize,
    sketch: Sketch,
    /// Reads in the sketch since the start.
    reads: u64,
}

impl PendingCounts {
    #[inline]
    fn add(&mut self, hash: u64) {
        self.batch[self.len] = hash;
        self.len += 1;
        if self.len == BATCH_LEN {
            self.flush();
        }
    }

    #[cold]
    #[inline(never)]
    fn flush(&mut self) {
        for &hash in &self.batch[..self.len] {
            self.sketch.add(hash);
        }
        self.reads += self.len as u64;
        self.len = 0;
    }
}

/// The counts of one thread, on separate cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct ThreadCounts {
    counts: Mutex<PendingCounts>,
    hits: AtomicU64,
    negative_hits: AtomicU64,
    uncounted: AtomicU64,
}

/// The counts of all threads since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ReadTotals {
    /// Reads that the sketches have counted.
    pub(crate) reads: u64,
    /// Reads answered from the local cache.
    pub(crate) hits: u64,
    /// Reads answered from the local cache that found nothing.
    pub(crate) negative_hits: u64,
    /// Reads that no sketch has counted, because the detector held it at that moment.
    pub(crate) uncounted: u64,
}

/// The counts of all threads.
#[derive(Debug)]
pub(crate) struct ReadCounts {
    threads: ThreadLocal<ThreadCounts>,
    /// Counters of each sketch.
    counters: usize,
}

impl ReadCounts {
    /// Makes counts for `threads` threads; more may count, and take more memory.
    pub(crate) fn new(threads: usize) -> Self {
        // Down to a power of two, because a sketch rounds up.
        let share = 1 << (COUNTERS_TOTAL / threads.max(1)).max(1).ilog2();
        Self {
            threads: ThreadLocal::new(),
            counters: share.clamp(COUNTERS_MIN, COUNTERS_MAX),
        }
    }

    /// Counts one read of the key with this hash.
    #[inline]
    pub(crate) fn count(&self, hash: u64) {
        let thread = self.thread();
        match thread.counts.try_lock() {
            Ok(mut counts) => counts.add(hash),
            Err(TryLockError::Poisoned(counts)) => counts.into_inner().add(hash),
            Err(TryLockError::WouldBlock) => {
                thread.uncounted.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Counts one read that was answered from the local cache.
    #[inline]
    pub(crate) fn hit(&self, is_found: bool) {
        let thread = self.thread();
        thread.hits.fetch_add(1, Ordering::Relaxed);
        if !is_found {
            thread.negative_hits.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Calls `visit` with each sketch, brought up to date, under its lock.
    pub(crate) fn each(&self, mut visit: impl FnMut(&mut Sketch)) {
        for thread in &self.threads {
            let mut counts = lock(&thread.counts);
            counts.flush();
            visit(&mut counts.sketch);
        }
    }

    /// Returns the counts of all threads.
    pub(crate) fn totals(&self) -> ReadTotals {
        let mut totals = ReadTotals::default();
        for thread in &self.threads {
            let counts = lock(&thread.counts);
            totals.reads += counts.reads + counts.len as u64;
            totals.hits += thread.hits.load(Ordering::Relaxed);
            totals.negative_hits += thread.negative_hits.load(Ordering::Relaxed);
            totals.uncounted += thread.uncounted.load(Ordering::Relaxed);
        }
        totals
    }

    /// Returns the memory that the counts take, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let threads = self.threads.iter();
        let bytes = |thread: &ThreadCounts| {
            size_of::<ThreadCounts>() + lock(&thread.counts).sketch.memory()
        };
        threads.map(bytes).sum()
    }

    #[inline]
    fn thread(&self) -> &ThreadCounts {
        self.threads.get_or(|| ThreadCounts {
            counts: Mutex::new(PendingCounts {
                batch: [0; BATCH_LEN],
                len: 0,
                sketch: Sketch::new(self.counters),
                reads: 0,
            }),
            hits: AtomicU64::new(0),
            negative_hits: AtomicU64::new(0),
            uncounted: AtomicU64::new(0),
        })
    }
}

fn lock(counts: &Mutex<PendingCounts>) -> MutexGuard<'_, PendingCounts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss)] // counts here are far below 2⁵³
mod tests {
    use super::*;

    fn total(counts: &ReadCounts) -> f64 {
        let mut total = 0.0;
        counts.each(|sketch| total += sketch.total());
        total
    }

    #[test]
    fn every_read_is_counted_once_whichever_thread_reads() {
        let counts = ReadCounts::new(4);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let counts = &counts;
                scope.spawn(move || {
                    for read in 0..10_000 {
                        counts.count(1 + (thread << 40) + read % 7);
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..200 {
                    counts.each(|sketch| assert!(sketch.counters().count() <= 28));
                    std::thread::yield_now();
                }
            });
        });
        let totals = counts.totals();
        assert_eq!(totals.reads + totals.uncounted, 40_000);
        assert!((total(&counts) - totals.reads as f64).abs() < 1e-9);
    }

    #[test]
    fn reads_while_the_sketch_is_held_are_uncounted() {
        let counts = ReadCounts::new(1);
        counts.count(7);
        let held = counts.threads.get().unwrap().counts.lock().unwrap();
        for _ in 0..5 {
            counts.count(7);
        }
        drop(held);
        let totals = counts.totals();
        assert_eq!((totals.reads, totals.uncounted), (1, 5));
    }

    #[test]
    fn the_sketches_of_many_threads_stay_within_half_a_mebibyte() {
        for threads in 1..=32 {
            let one = ReadCounts::new(threads);
            one.count(1);
            let memory = threads * one.memory();
            assert!(memory <= 1 << 19, "{threads} threads: {memory}");
        }
    }

    #[test]
    fn a_poisoned_sketch_goes_on() {
        let counts = ReadCounts::new(1);
        counts.count(7);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| counts.each(|_| panic!("on purpose")));
            assert!(thread.join().is_err());
        });
        counts.count(7);
        assert!((total(&counts) - 2.0).abs() < 1e-9);
    }
}
