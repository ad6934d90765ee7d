//! Counting on the path: a ring and a sketch for each worker, and one sketch for everybody else.
//!
//! A worker writes into a ring of its own and, once enough reads have gathered, adds them to its
//! sketch. It never waits: where the merger holds the sketch at that moment the reads stay in the
//! ring, and where the ring is full they are dropped and told. Threads without a ring of their own
//! share a sketch behind a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ring::{RING_LEN, Ring};
use crate::sketch::Sketch;
use crate::thread_slot;

/// Reads that wait before the worker adds them to its sketch.
const BATCH_LEN: usize = RING_LEN / 4;
/// Counters of a sketch of a pod of few workers.
const COUNTERS: usize = 1_024;
/// Counters of a sketch of a pod of the most workers.
const COUNTERS_MIN: usize = 256;
/// Counters of all sketches together, so that a pod of many cores stays within its memory too.
const COUNTERS_POD_MAX: usize = 8 * COUNTERS;

/// What is counted beside the keys. Only the owner of the slot adds, so a plain load and store do.
#[derive(Debug, Default)]
struct Tallies {
    hits: AtomicU64,
    negative_hits: AtomicU64,
    uncounted: AtomicU64,
}

/// One worker's part, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Slot {
    ring: Ring,
    tallies: Tallies,
    sketch: Mutex<Sketch>,
}

/// What all workers have counted since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WorkerTotals {
    /// Reads answered from the local cache.
    pub(crate) hits: u64,
    /// Those of them that said that the key is absent.
    pub(crate) negative_hits: u64,
    /// Reads that no sketch has counted, for want of room at that moment.
    pub(crate) uncounted: u64,
}

/// The counting side of all workers.
#[derive(Debug)]
pub(crate) struct Workers {
    /// The last slot is shared by all threads that have none of their own.
    slots: Box<[Slot]>,
}

fn counters(workers: usize) -> usize {
    // Down to a power of two, because a sketch rounds up.
    let share = COUNTERS_POD_MAX / (workers + 1);
    let share = 1 << share.max(1).ilog2();
    share.clamp(COUNTERS_MIN, COUNTERS)
}

impl Workers {
    /// Makes slots for `workers` threads; more may count, slower.
    pub(crate) fn new(workers: usize, increment: u64) -> Self {
        let slot = |_| Slot {
            ring: Ring::new(),
            tallies: Tallies::default(),
            sketch: Mutex::new(Sketch::new(counters(workers), increment)),
        };
        Self {
            slots: (0..=workers).map(slot).collect(),
        }
    }

    /// Returns the memory that the slots take, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let ring = RING_LEN * 2 * size_of::<AtomicU64>();
        let sketch = Sketch::memory(counters(self.slots.len() - 1));
        self.slots.len() * (size_of::<Slot>() + ring + sketch)
    }

    /// Counts one read of the key with this hash, at `units` micro-RU.
    #[inline]
    pub(crate) fn count(&self, hash: u64, units: u64) {
        let (slot, is_own) = self.slot();
        if !is_own {
            lock(&slot.sketch).add(hash, units);
            return;
        }
        match slot.ring.write(hash, units) {
            Some(waiting) if waiting < BATCH_LEN => {}
            Some(_) => slot.drain(),
            None => {
                slot.drain();
                if slot.ring.write(hash, units).is_none() {
                    add(&slot.tallies.uncounted, is_own);
                }
            }
        }
    }

    /// Counts one read as the owner of a slot would.
    #[cfg(test)]
    pub(crate) fn count_as(&self, slot: usize, hash: u64, units: u64) {
        lock(&self.slots[slot].sketch).add(hash, units);
    }

    /// Counts one read that was answered from the local cache.
    #[inline]
    pub(crate) fn hit(&self, is_negative: bool) {
        let (slot, is_own) = self.slot();
        add(&slot.tallies.hits, is_own);
        if is_negative {
            add(&slot.tallies.negative_hits, is_own);
        }
    }

    /// Shows each sketch, brought up to date, under its lock.
    pub(crate) fn each(&self, mut visit: impl FnMut(&mut Sketch)) {
        for slot in &self.slots {
            let mut sketch = lock(&slot.sketch);
            slot.ring.take(|hash, units| sketch.add(hash, units));
            visit(&mut sketch);
        }
    }

    /// Returns what was counted beside the keys.
    pub(crate) fn totals(&self) -> WorkerTotals {
        let mut totals = WorkerTotals::default();
        for Slot { tallies, .. } in &self.slots {
            totals.hits += tallies.hits.load(Ordering::Relaxed);
            totals.negative_hits += tallies.negative_hits.load(Ordering::Relaxed);
            totals.uncounted += tallies.uncounted.load(Ordering::Relaxed);
        }
        totals
    }

    #[inline]
    fn slot(&self) -> (&Slot, bool) {
        let shared = self.slots.len() - 1;
        match thread_slot::current() {
            Some(number) if number < shared => (&self.slots[number], true),
            _ => (&self.slots[shared], false),
        }
    }
}

impl Slot {
    /// Adds what waits in the ring to the sketch, unless somebody else holds it.
    #[cold]
    #[inline(never)]
    fn drain(&self) {
        if let Ok(mut sketch) = self.sketch.try_lock() {
            self.ring.take(|hash, units| sketch.add(hash, units));
        }
    }
}

#[inline]
fn add(tally: &AtomicU64, is_own: bool) {
    if is_own {
        tally.store(tally.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    } else {
        tally.fetch_add(1, Ordering::Relaxed);
    }
}

fn lock(sketch: &Mutex<Sketch>) -> MutexGuard<'_, Sketch> {
    sketch.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(workers: &Workers) -> u64 {
        let mut total = 0;
        workers.each(|sketch| total += sketch.total());
        total
    }

    #[test]
    fn every_read_is_counted_once_whichever_thread_reads() {
        // One thread may have a ring; the others share.
        for slots in [0, 1, 64] {
            let workers = Workers::new(slots, 1);
            std::thread::scope(|scope| {
                for thread in 0..4_u64 {
                    let workers = &workers;
                    scope.spawn(move || {
                        for read in 0..10_000 {
                            workers.count(1 + (thread << 40) + read % 7, 0);
                        }
                    });
                }
                scope.spawn(|| {
                    for _ in 0..200 {
                        workers.each(|sketch| {
                            assert!(sketch.counters().count() <= 28);
                        });
                        std::thread::yield_now();
                    }
                });
            });
            assert_eq!(total(&workers) + workers.totals().uncounted, 40_000);
        }
    }

    #[test]
    fn reads_that_find_no_room_are_told() {
        let number = thread_slot::current().unwrap();
        let workers = Workers::new(number + 1, 1);
        let held = workers.slots[number].sketch.lock().unwrap();
        for _ in 0..RING_LEN + 5 {
            workers.count(7, 0);
        }
        drop(held);
        assert_eq!(workers.totals().uncounted, 5);
        assert_eq!(total(&workers), RING_LEN as u64);
    }

    #[test]
    fn the_sketches_of_many_workers_stay_within_a_mebibyte() {
        for workers in 0..=32 {
            let memory = Workers::new(workers, 1).memory();
            assert!(memory <= 1 << 20, "{workers} workers: {memory}");
        }
    }

    #[test]
    fn a_poisoned_sketch_goes_on() {
        let workers = Workers::new(0, 1);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| workers.each(|_| panic!("on purpose")));
            assert!(thread.join().is_err());
        });
        workers.count(7, 0);
        assert_eq!(total(&workers), 1);
    }
}
