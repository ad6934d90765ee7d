//! Generations: how a read knows that a write came between.
//!
//! A fixed table of counters, chosen by hash. A write counts up the counters of its rows when it begins, and again when
//! it has ended. A read notes a [`Stamp`] of its counters before it asks the store. While the stamp is current, no
//! write of the key has begun or ended since, so that the answer may be kept, shared and served. Two keys that meet in
//! one counter cost each other a refill and nothing else.
//!
//! | | row | any of the partition | whole partition |
//! |---|---|---|---|
//! | a write of a row counts | up | up | |
//! | a write of a range counts | | up | up |
//! | the read of a row notes | yes | | yes |
//! | the read of a range notes | | yes | |
//!
//! So writes of other rows of a partition leave a hot row in the cache.

use std::sync::Arc;

use smallvec::SmallVec;

use super::key::{KeyKind, KeyRef};
use super::sync::{AtomicU64, Ordering};

/// Separate the three columns of one partition or row from each other.
const ROW: u64 = 0;
const ANY: u64 = 0x9E37_79B9_7F4A_7C15;
const WHOLE: u64 = 0xC2B2_AE3D_27D4_EB4F;

/// State of the counters that a read depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    first: u64,
    second: u64,
}

/// The counters.
#[derive(Debug)]
pub(crate) struct Generations {
    counters: Box<[AtomicU64]>,
}

impl Generations {
    /// Makes at least `counters` counters, rounded up to a power of two.
    pub(crate) fn new(counters: usize) -> Self {
        let counters = counters.next_power_of_two();
        Self {
            counters: (0..counters).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn place(&self, hash: u64, column: u64) -> usize {
        // Multiplied, so that the columns of one hash are apart; the upper bits are the good ones.
        let mixed = (hash ^ column).wrapping_mul(ANY);
        (mixed >> 32) as usize & (self.counters.len() - 1)
    }

    /// Returns the stamp of a read that begins now.
    pub(crate) fn stamp(&self, key: &KeyRef<'_>) -> Stamp {
        // Sequentially consistent, like the counting: a client that has the answer of a write sees its count.
        let read = |hash, column| self.counters[self.place(hash, column)].load(Ordering::SeqCst);
        match key.kind() {
            KeyKind::Row => Stamp {
                first: read(key.hash(), ROW),
                second: read(key.partition_hash(), WHOLE),
            },
            KeyKind::Range => Stamp {
                first: read(key.partition_hash(), ANY),
                second: 0,
            },
        }
    }

    /// Begins a write.
    pub(crate) fn begin(self: &Arc<Self>) -> WriteGuard {
        WriteGuard {
            generations: Arc::clone(self),
            places: SmallVec::new(),
        }
    }
}

/// A write under way. Ends when it is dropped, for any reason.
///
/// To be dropped after the store has answered and before the writer is told so.
#[derive(Debug)]
#[must_use = "the write ends when this is dropped"]
pub struct WriteGuard {
    generations: Arc<Generations>,
    places: SmallVec<[u32; 4]>,
}

impl WriteGuard {
    /// Counts one row that the write touches.
    pub(crate) fn row(&mut self, row: &KeyRef<'_>) {
        debug_assert_eq!(row.kind(), KeyKind::Row);
        self.touch(row.hash(), ROW);
        self.touch(row.partition_hash(), ANY);
    }

    /// Counts any number of rows of a partition that the write touches.
    pub(crate) fn partition(&mut self, partition_hash: u64) {
        self.touch(partition_hash, WHOLE);
        self.touch(partition_hash, ANY);
    }

    fn touch(&mut self, hash: u64, column: u64) {
        let place = self.generations.place(hash, column);
        self.generations.counters[place].fetch_add(1, Ordering::SeqCst);
        self.places.push(place as u32);
    }

    /// Ends the write; the same as dropping it.
    pub fn end(self) {
        drop(self);
    }
}

impl Drop for WriteGuard {
    fn drop(&mut self) {
        for &place in &self.places {
            self.generations.counters[place as usize].fetch_add(1, Ordering::SeqCst);
        }
    }
}
