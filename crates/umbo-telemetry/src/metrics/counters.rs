//! Counters of one slot, updated by one thread or by many.
//!
//! A slot with one owner is updated with a plain load and store, which costs about a fifth of an atomic
//! addition; the shared slot with an atomic addition. Readers may read at any time and see each counter no
//! older than the last update that happened before. Counters wrap after 2^64.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use umbo_types::{Criticality, Operation};

use super::buckets::BUCKETS;
use super::outcome::RequestOutcome;
use super::statuses::STATUSES;

pub(super) const OPERATIONS: usize = Operation::ALL.len();
/// One series per listed status, and one for all others.
pub(super) const STATUS_SERIES: usize = STATUSES.len() + 1;

const TIERS: usize = Criticality::ALL.len();
/// Index of the requests whose tier was not known yet.
pub(super) const NO_TIER: usize = TIERS;
const OUTCOMES: usize = RequestOutcome::ALL.len();

/// How a slot may be updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Only the calling thread updates the slot.
    Owned,
    /// Any thread may.
    Shared,
}

/// A counter that its slot's owner updates without an atomic addition.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(super) fn add(&self, access: Access, n: u64) {
        match access {
            Access::Owned => self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed),
            Access::Shared => {
                self.0.fetch_add(n, Relaxed);
            }
        }
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counts of observations by size, and their sum in nanoseconds.
#[derive(Debug)]
pub(super) struct Histogram {
    pub(super) buckets: [Counter; BUCKETS],
    pub(super) sum_nanos: Counter,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| Counter::default()),
            sum_nanos: Counter::default(),
        }
    }
}

impl Histogram {
    #[inline]
    pub(super) fn observe(&self, access: Access, nanos: u64) {
        self.buckets[super::buckets::bucket(nanos)].add(access, 1);
        self.sum_nanos.add(access, nanos);
    }
}

/// Counters of one operation.
#[derive(Debug)]
pub(super) struct OperationCounters {
    pub(super) requests: [Counter; STATUS_SERIES],
    /// By tier, the last for requests without a known tier, and outcome.
    pub(super) outcomes: [[Counter; OUTCOMES]; TIERS + 1],
    pub(super) request_bytes: Counter,
    pub(super) response_bytes: Counter,
    pub(super) begun: Counter,
    pub(super) ended: Counter,
    pub(super) admitted: Counter,
    pub(super) rejected: Counter,
    pub(super) repeated: Counter,
    pub(super) charged_micros: Counter,
    pub(super) duration: Histogram,
    pub(super) store_duration: Histogram,
}

impl Default for OperationCounters {
    fn default() -> Self {
        Self {
            requests: std::array::from_fn(|_| Counter::default()),
            outcomes: std::array::from_fn(|_| Default::default()),
            request_bytes: Counter::default(),
            response_bytes: Counter::default(),
            begun: Counter::default(),
            ended: Counter::default(),
            admitted: Counter::default(),
            rejected: Counter::default(),
            repeated: Counter::default(),
            charged_micros: Counter::default(),
            duration: Histogram::default(),
            store_duration: Histogram::default(),
        }
    }
}

/// All counters of one slot, on separate cache lines.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct CounterSlot {
    operations: Box<[OperationCounters]>,
    pub(super) refused: Box<[Counter]>,
    pub(super) streams_aborted: Counter,
}

impl CounterSlot {
    pub(super) fn new(refused: usize) -> Self {
        Self {
            operations: (0..OPERATIONS)
                .map(|_| OperationCounters::default())
                .collect(),
            refused: (0..refused).map(|_| Counter::default()).collect(),
            streams_aborted: Counter::default(),
        }
    }

    #[inline]
    pub(super) fn operation(&self, operation: Operation) -> &OperationCounters {
        &self.operations[operation as usize]
    }
}
