//! Counters of one caller, namespace and operation, and the average that estimates the cost of its next request.
//!
//! A request adds to four counters. Four atomic additions would take half of the time of an admission and its
//! settlement. So a thread takes a mutex, and adds by plain loads and stores while it holds it. Readers take no lock.
//! The mutex is held for a few loads and stores, so that a thread hardly ever waits for it. If the thread that holds it
//! is stopped, perhaps because of its low priority, the others sleep.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};
use umbo_types::{Operation, RequestUnits};

use crate::breakdown::breakdown;
use crate::cost::{ActualUsage, CostByUnit, CostHint, Weights};
use crate::report::{Breakdown, Tally};

/// A new price changes the average by one part in so many: a power of two.
const SMOOTHING: u32 = 32;
/// One request in so many is recorded with its estimate and its price.
const SAMPLE: u32 = 8;

/// The usage of one operation by a caller. Fills a cache line, because loading it is most of the cost of an admission.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct OperationUsage {
    /// Held by the thread that changes any counter but `rejected`. One byte.
    turn: Mutex<()>,
    requests: AtomicU64,
    /// All that was charged, penalties included.
    charged: AtomicU64,
    /// Part of `charged` that overloads added to the plain prices.
    penalty: AtomicU64,
    rows: AtomicU64,
    bytes: AtomicU64,
    rejected: AtomicU64,
    /// Moving average of the part of a price that the hint does not tell, in micro-RU. For a read it is the whole
    /// price. For a write it is the price beyond the price of its length and rows, and negative if bodies are longer
    /// than the bytes written.
    average: AtomicI64,
    /// Requests that the average has learned from; after four billion it begins at [`SMOOTHING`] again.
    samples: AtomicU32,
}

impl OperationUsage {
    /// Adds the counts of another cell.
    pub(crate) fn absorb(&self, other: &Self) {
        let _turn = self.begin();
        add(&self.charged, other.charged.load(Relaxed));
        add(&self.penalty, other.penalty.load(Relaxed));
        add(&self.rows, other.rows.load(Relaxed));
        add(&self.bytes, other.bytes.load(Relaxed));
        add(&self.requests, other.requests());
        let rejected = other.rejected.load(Relaxed);
        self.rejected.fetch_add(rejected, Relaxed);
    }

    pub(crate) fn count_rejected(&self) {
        self.rejected.fetch_add(1, Relaxed);
    }

    /// Returns the probable cost of a request. The hint gives the price of a write, but for the store's time. A read is
    /// estimated by `known`, the remembered price of a similar read in micro-RU, or else by the average. That price is
    /// cut to the bounds of the request, unless the flag in `known` says that it was learned under the same bounds.
    #[inline]
    pub(crate) fn estimate(
        &self,
        weights: &Weights,
        operation: Operation,
        hint: &CostHint,
        known: Option<(u64, bool)>,
    ) -> CostByUnit {
        if operation.is_write() {
            self.estimate_write(weights, operation, hint)
        } else {
            self.estimate_read(weights, operation, hint, known)
        }
    }

    #[inline]
    fn estimate_read(
        &self,
        weights: &Weights,
        operation: Operation,
        hint: &CostHint,
        known: Option<(u64, bool)>,
    ) -> CostByUnit {
        let usual = || (self.usual_price(weights, operation), false);
        let (mut price, is_of_bounds) = known.unwrap_or_else(usual);
        let requests = self.requests().max(1);
        let mut work = ActualUsage {
            reads: 1,
            read_bytes: self.bytes.load(Relaxed) / requests,
            ..ActualUsage::default()
        };
        if let Some(bytes_max) = self.bytes_max(hint) {
            work.read_bytes = work.read_bytes.min(bytes_max);
            if !is_of_bounds {
                price = price.min(price_max(weights, operation, hint, bytes_max));
            }
        }
        if operation == Operation::MultiGet {
            let usual = self.rows.load(Relaxed) / requests;
            work.reads = hint.rows_max.unwrap_or(usual).max(1);
        }
        CostByUnit::of(RequestUnits::from_micros(price), &work)
    }

    /// Returns the average price, or a guess before the first request.
    fn usual_price(&self, weights: &Weights, operation: Operation) -> u64 {
        if self.samples() > 0 {
            return self.average.load(Relaxed).max(0).cast_unsigned();
        }
        let guess = weights.price(operation, &first_guess(operation));
        guess.as_micros()
    }

    fn estimate_write(
        &self,
        weights: &Weights,
        operation: Operation,
        hint: &CostHint,
    ) -> CostByUnit {
        let mut work = certain(operation, hint);
        let exact = weights.price(operation, &work).as_micros();
        let least = weights
            .price(operation, &ActualUsage::default())
            .as_micros();
        let average = self.average.load(Relaxed);
        let price = exact.saturating_add_signed(average).max(least);
        if matches!(operation, Operation::BatchWrite | Operation::DeleteRange) {
            let usual = self.rows.load(Relaxed) / self.requests().max(1);
            work.writes = hint.rows_max.unwrap_or(usual).max(1);
        }
        CostByUnit::of(RequestUnits::from_micros(price), &work)
    }

    /// Returns the most bytes that a read is expected to return: its byte limit, or its row limit times the average
    /// size of a row if that is less. `None` if the hint has no byte limit.
    fn bytes_max(&self, hint: &CostHint) -> Option<u64> {
        let (bytes_max, rows_max) = (hint.bytes_max?, hint.rows_max);
        let seen = self.rows.load(Relaxed);
        let Some(rows) = rows_max.filter(|_| seen > 0) else {
            return Some(bytes_max);
        };
        let each = self.bytes.load(Relaxed).div_ceil(seen);
        Some(bytes_max.min(each.saturating_mul(rows)))
    }

    /// Returns the parts of an estimate.
    pub(crate) fn breakdown(
        &self,
        weights: &Weights,
        operation: Operation,
        hint: &CostHint,
        estimate: RequestUnits,
    ) -> Breakdown {
        let mut like = self.tally(operation);
        if like.requests == 0 {
            let first = if operation.is_write() {
                certain(operation, hint)
            } else {
                first_guess(operation)
            };
            (like.rows, like.read_bytes) = (first.rows, first.read_bytes);
        }
        breakdown(weights, operation, estimate, hint, &like)
    }

    /// Returns the number of requests that the estimate has learned from.
    pub(crate) fn samples(&self) -> u64 {
        u64::from(self.samples.load(Relaxed))
    }

    /// Counts a request that was served, with its plain price and its penalty. `lesson` is the part of the price that
    /// the hint did not tell; the average learns from it. Returns whether the request belongs to the sample that is
    /// recorded with its estimate.
    #[inline]
    pub(crate) fn count_served(
        &self,
        price: u64,
        penalty: u64,
        work: &ActualUsage,
        lesson: Option<i64>,
    ) -> bool {
        let bytes = work.read_bytes + work.write_bytes;
        let _turn = self.begin();
        add(&self.charged, price.saturating_add(penalty));
        if penalty > 0 {
            add(&self.penalty, penalty);
        }
        add(&self.rows, work.rows);
        add(&self.bytes, bytes);
        let samples = self.samples.load(Relaxed);
        if let Some(unknown) = lesson {
            self.learn(unknown, samples);
        }
        add(&self.requests, 1);
        lesson.is_some() && samples.is_multiple_of(SAMPLE)
    }

    /// Moves the average towards `unknown`. The caller of this function has the turn.
    #[inline]
    fn learn(&self, unknown: i64, samples: u32) {
        let average = self.average.load(Relaxed);
        let step = unknown.saturating_sub(average);
        // Rounded down, so that the average comes down to a constant price exactly.
        let step = if samples < SMOOTHING {
            step.div_euclid(i64::from(samples) + 1)
        } else {
            step >> SMOOTHING.ilog2()
        };
        self.average.store(average.wrapping_add(step), Relaxed);
        let samples = samples.checked_add(1).unwrap_or(SMOOTHING);
        self.samples.store(samples, Relaxed);
    }

    /// Loads the cache line.
    #[inline]
    pub(crate) fn touch(&self) {
        self.requests.load(Relaxed);
    }

    /// Waits for the turn and takes it.
    #[inline]
    fn begin(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// Returns the counters as a report.
    pub(crate) fn tally(&self, operation: Operation) -> Tally {
        let bytes = self.bytes.load(Relaxed);
        let (read_bytes, write_bytes) = if operation.is_write() {
            (0, bytes)
        } else {
            (bytes, 0)
        };
        Tally {
            requests: self.requests(),
            rejected: self.rejected.load(Relaxed),
            charged: RequestUnits::from_micros(self.charged.load(Relaxed)),
            penalty: RequestUnits::from_micros(self.penalty.load(Relaxed)),
            rows: self.rows.load(Relaxed),
            read_bytes,
            write_bytes,
        }
    }
}

/// Returns the part of a price that the hint did not tell: the whole price of a read, or the price of a write beyond
/// its length and rows.
#[inline]
pub(crate) fn unknown(weights: &Weights, operation: Operation, hint: &CostHint, price: u64) -> i64 {
    if !operation.is_write() {
        return signed(price);
    }
    let exact = weights.price(operation, &certain(operation, hint));
    signed(price).saturating_sub(signed(exact.as_micros()))
}

/// Adds to a word that no other thread writes.
fn add(word: &AtomicU64, more: u64) {
    word.store(word.load(Relaxed).wrapping_add(more), Relaxed);
}

/// Returns the price of a read that returns `read_bytes` and the most rows that its hint allows; `u64::MAX` if the hint
/// has no row limit.
fn price_max(weights: &Weights, operation: Operation, hint: &CostHint, read_bytes: u64) -> u64 {
    let most = |rows| ActualUsage {
        rows,
        read_bytes,
        ..ActualUsage::default()
    };
    let price = |rows| weights.price(operation, &most(rows)).as_micros();
    hint.rows_max.map_or(u64::MAX, price)
}

/// Returns the work that a request certainly asks for.
fn certain(operation: Operation, hint: &CostHint) -> ActualUsage {
    let mut work = ActualUsage::default();
    match operation {
        Operation::Put => (work.rows, work.writes) = (1, 1),
        Operation::BatchWrite => (work.rows, work.writes) = (hint.rows_max.unwrap_or(0), 1),
        Operation::Delete | Operation::DeleteRange => work.writes = 1,
        _ => work.reads = 1,
    }
    if operation.is_write() {
        work.write_bytes = hint.body_len.unwrap_or(0);
    }
    work
}

/// Prices are far below the range of `i64`; a larger price counts as `i64::MAX`.
fn signed(price: u64) -> i64 {
    i64::try_from(price).unwrap_or(i64::MAX)
}

/// Returns the work assumed for a read before the first read of its operation.
fn first_guess(operation: Operation) -> ActualUsage {
    let (rows, read_bytes) = match operation {
        Operation::Get => (1, 512),
        Operation::MultiGet => (10, 5 << 10),
        _ => (100, 25 << 10),
    };
    ActualUsage {
        rows,
        read_bytes,
        ..ActualUsage::default()
    }
}

const _: () = assert!(size_of::<OperationUsage>() == 64, "a cache line");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_take_turns_lose_nothing() {
        let (cell, total) = (OperationUsage::default(), OperationUsage::default());
        let work = ActualUsage {
            rows: 2,
            read_bytes: 3,
            ..ActualUsage::default()
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        cell.count_served(5, 0, &work, Some(5));
                    }
                });
            }
        });
        total.absorb(&cell);
        total.absorb(&cell);
        for (cell, times) in [(&cell, 1), (&total, 2)] {
            let tally = cell.tally(Operation::Get);
            assert_eq!(tally.requests, times * 40_000);
            assert_eq!(tally.charged, RequestUnits::from_micros(times * 200_000));
            assert_eq!(
                (tally.rows, tally.read_bytes),
                (times * 80_000, times * 120_000)
            );
        }
        assert_eq!(cell.samples(), 40_000);
        let hint = CostHint::default();
        let estimate = cell.estimate(&Weights::default(), Operation::Get, &hint, None);
        assert_eq!(
            estimate.ru, 5,
            "the average reaches what is always the same"
        );
    }
}
