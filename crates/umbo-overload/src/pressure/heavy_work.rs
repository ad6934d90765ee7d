//! Heavy requests keep a shard busy for much longer than others that it serves at the same time.
//!
//! The expected busy time of a request is the usual busy time of its class and size; the size is its estimate in
//! request units. A request is *heavy* if it is expected to take at least twice the time of the lightest one now, and
//! half a millisecond more. Heavy requests have a few separate permits, so that light requests wait for one of them and
//! not for all. While a shard has one caller, nothing is heavy.
//!
//! The usual busy time is a mean of logarithms: a pause of the disk weighs little, and the short end of a long scan
//! does not make the next scan look short. Recording and asking take no lock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use umbo_types::RequestUnits;

use super::pressure_controller::CLASSES;
use crate::class::Class;

/// Sizes that are told apart, by powers of two of an estimate.
const SIZES: usize = 32;
/// The largest estimate of the smallest size, as a power of two of a micro-RU: about 4 milli-RU.
const SIZE_MIN_LOG2: u32 = 12;
/// The usual busy time is a mean of so many calls. With each second without a call, those before weigh half as much: a
/// size with few calls would look light for long after the store became slow.
const CALLS_MAX: u64 = 16;
/// Parts of an octave of busy time, as a power of two.
const FRACTION_BITS: u32 = 20;
/// A heavy request takes at least twice the time of a light one: one octave more.
const HEAVY_OCTAVES: u32 = 1 << FRACTION_BITS;
/// Least time that a heavy request takes beyond a light one: a waiting request does not feel less.
const HEAVY_MORE: Duration = Duration::from_micros(500);
/// Age in seconds at which a size is no longer part of the present.
const SECONDS_MAX: u64 = 2;
/// A bound that nothing exceeds.
const NOTHING: u32 = u32::MAX;

/// Bits of a cell, from the lowest: the mean logarithm, the calls it is a mean of, the second of the last one.
const CALLS_SHIFT: u32 = u32::BITS;
const SECOND_SHIFT: u32 = CALLS_SHIFT + u8::BITS;
/// Numbers of seconds begin again after half a year.
const SECONDS: u64 = 1 << (u64::BITS - SECOND_SHIFT);

/// Ways into a shard: for reads, and for writes.
const WAYS: usize = 2;

/// The usual busy times at one shard, and the bounds of heavy requests now.
#[derive(Debug)]
pub(crate) struct HeavyWork {
    cells: [[AtomicU64; SIZES]; CLASSES],
    /// Logarithm of the least busy time of heavy reads, and of heavy writes.
    bounds: [AtomicU32; WAYS],
    /// Number of the second under way.
    second: AtomicU64,
}

impl HeavyWork {
    pub(crate) fn new() -> Self {
        Self {
            cells: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
            bounds: [const { AtomicU32::new(NOTHING) }; WAYS],
            second: AtomicU64::new(SECONDS_MAX),
        }
    }

    /// Records the busy time of a call.
    #[inline]
    pub(crate) fn record(&self, class: Class, size: RequestUnits, busy: Duration) {
        let cell = self.cell(class, size);
        let known = cell.load(Relaxed);
        let second = self.second.load(Relaxed);
        let age = second.wrapping_sub(known >> SECOND_SHIFT) % SECONDS;
        let calls = (known >> CALLS_SHIFT & u64::from(u8::MAX)) >> age.min(u64::from(u8::BITS));
        let calls = calls.min(CALLS_MAX - 1) + 1;
        let (before, now) = (i64::from(known as u32), i64::from(log2_of(busy)));
        let mean = before + (now - before) / calls.cast_signed();
        let next = second << SECOND_SHIFT | calls << CALLS_SHIFT | mean.cast_unsigned();
        cell.store(next, Relaxed); // a call that is recorded at the same time may be lost
    }

    /// Returns whether a request is heavy now. One relaxed load while nothing is heavy.
    #[inline]
    pub(crate) fn is_heavy(&self, class: Class, size: RequestUnits) -> bool {
        match self.bounds[usize::from(class.is_write())].load(Relaxed) {
            NOTHING => false,
            bound => self.cell(class, size).load(Relaxed) as u32 >= bound,
        }
    }

    /// Returns the usual busy time of a request; zero if it is not known.
    pub(crate) fn expected(&self, class: Class, size: RequestUnits) -> Duration {
        match self.cell(class, size).load(Relaxed) {
            0 => Duration::ZERO,
            known => time_of(known as u32),
        }
    }

    /// Sets the bounds of heavy requests for a number of callers. Only the tick calls it.
    pub(crate) fn tick(&self, callers: u64) {
        for (way, bound) in self.bounds.iter().enumerate() {
            let lightest = self.present(way == 1).map(|known| known as u32).min();
            let lightest = lightest.filter(|_| callers > 1);
            let heavy = lightest.map_or(NOTHING, |lightest| {
                let more = log2_of(time_of(lightest) + HEAVY_MORE);
                more.max(lightest + HEAVY_OCTAVES)
            });
            bound.store(heavy, Relaxed);
        }
    }

    /// Begins the next second. Only the tick calls it.
    pub(crate) fn turn(&self) {
        self.second.fetch_add(1, Relaxed);
    }

    /// Returns the least busy time of heavy reads or writes. `None` while nothing is heavy.
    pub(crate) fn bound(&self, is_write: bool) -> Option<Duration> {
        let bound = self.bounds[usize::from(is_write)].load(Relaxed);
        (bound != NOTHING).then(|| time_of(bound))
    }

    /// Returns the longest usual busy time of heavy reads or writes now; zero while nothing is heavy.
    pub(crate) fn longest(&self, is_write: bool) -> Duration {
        let bound = self.bounds[usize::from(is_write)].load(Relaxed);
        let longest = self.present(is_write).map(|known| known as u32).max();
        let longest = longest.filter(|longest| *longest >= bound);
        longest.map_or(Duration::ZERO, time_of)
    }

    /// Returns the cells of reads or of writes that were used within the last seconds.
    fn present(&self, is_write: bool) -> impl Iterator<Item = u64> {
        let second = self.second.load(Relaxed);
        let classes = Class::ALL.into_iter().zip(&self.cells);
        let classes = classes.filter(move |(class, _)| class.is_write() == is_write);
        let cells = classes.flat_map(|(_, cells)| cells.iter().map(|cell| cell.load(Relaxed)));
        let age = move |known: u64| second.wrapping_sub(known >> SECOND_SHIFT) % SECONDS;
        cells.filter(move |known| *known != 0 && age(*known) < SECONDS_MAX)
    }

    fn cell(&self, class: Class, size: RequestUnits) -> &AtomicU64 {
        let octave = size.as_micros().max(1).ilog2();
        let size = octave.saturating_sub(SIZE_MIN_LOG2) as usize;
        &self.cells[class as usize][size.min(SIZES - 1)]
    }
}

/// Returns the logarithm of a time to the base two, straight between powers of two.
fn log2_of(time: Duration) -> u32 {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
    let octave = nanos.ilog2();
    let mantissa = (nanos << (u64::BITS - 1 - octave)) << 1;
    octave << FRACTION_BITS | (mantissa >> (u64::BITS - FRACTION_BITS)) as u32
}

/// Returns the time of a logarithm.
fn time_of(log2: u32) -> Duration {
    let octave = 1_u64 << (log2 >> FRACTION_BITS);
    let part = u64::from(log2 & ((1 << FRACTION_BITS) - 1));
    Duration::from_nanos(octave + ((u128::from(octave) * u128::from(part)) >> FRACTION_BITS) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: RequestUnits = RequestUnits::from_micros(6_000_000);
    const LARGE: RequestUnits = RequestUnits::from_micros(1_000_000_000);

    fn record(work: &HeavyWork, class: Class, size: RequestUnits, micros: u64) {
        (0..32).for_each(|_| work.record(class, size, Duration::from_micros(micros)));
    }

    #[test]
    fn large_writes_are_heavy_beside_small_ones_of_another_caller() {
        let work = HeavyWork::new();
        record(&work, Class::PointWrite, SMALL, 1_000);
        record(&work, Class::PointWrite, LARGE, 5_000);
        work.tick(1);
        assert!(!work.is_heavy(Class::PointWrite, LARGE), "one caller");
        work.tick(2);
        assert!(work.is_heavy(Class::PointWrite, LARGE));
        assert!(!work.is_heavy(Class::PointWrite, SMALL));
        assert!(!work.is_heavy(Class::Scan, LARGE), "reads are apart");
        let bound = work.bound(true).unwrap().as_micros();
        assert!((1_990..=2_000).contains(&bound), "{bound}");
        let longest = work.longest(true).as_micros();
        assert!((4_990..=5_000).contains(&longest), "{longest}");
        assert_eq!(work.longest(false), Duration::ZERO);
        // Two seconds after the last small one nothing is heavy.
        (0..2).for_each(|_| work.turn());
        record(&work, Class::PointWrite, LARGE, 5_000);
        work.tick(2);
        assert!(!work.is_heavy(Class::PointWrite, LARGE));
    }

    #[test]
    fn a_difference_that_is_not_felt_is_not_heavy() {
        let work = HeavyWork::new();
        record(&work, Class::PointRead, SMALL, 3);
        record(&work, Class::Range, SMALL, 400);
        record(&work, Class::Scan, LARGE, 700);
        work.tick(3);
        assert!(!work.is_heavy(Class::Range, SMALL) && work.is_heavy(Class::Scan, LARGE));
    }

    #[test]
    fn the_usual_time_is_not_that_of_a_pause_or_of_a_short_end() {
        let work = HeavyWork::new();
        record(&work, Class::Scan, LARGE, 4_000);
        work.record(Class::Scan, LARGE, Duration::from_micros(20));
        let expected = work.expected(Class::Scan, LARGE).as_micros();
        assert!((2_500..4_000).contains(&expected), "{expected}");
        record(&work, Class::PointWrite, SMALL, 1_000);
        work.record(Class::PointWrite, SMALL, Duration::from_secs(1));
        let expected = work.expected(Class::PointWrite, SMALL).as_micros();
        assert!((1_000..2_000).contains(&expected), "{expected}");
        assert_eq!(work.expected(Class::Range, SMALL), Duration::ZERO);
    }

    #[test]
    fn a_size_with_few_calls_follows_a_store_that_becomes_slow() {
        let work = HeavyWork::new();
        record(&work, Class::PointRead, SMALL, 1_000);
        record(&work, Class::PointRead, LARGE, 1_000);
        for _ in 0..5 {
            work.turn();
            record(&work, Class::PointRead, LARGE, 8_000);
            work.record(Class::PointRead, SMALL, Duration::from_millis(8));
        }
        work.tick(2);
        assert!(!work.is_heavy(Class::PointRead, LARGE));
    }

    #[test]
    fn logarithms_are_exact_at_powers_of_two_and_close_between() {
        for nanos in [1, 2, 3, 1_000, 1 << 30, u64::MAX] {
            let time = Duration::from_nanos(nanos);
            let back = time_of(log2_of(time)).div_duration_f64(time);
            assert!((back - 1.0).abs() < 1e-5, "{nanos} {back}");
        }
    }
}
