//! A histogram of service times on a logarithmic scale: eight buckets of equal width for each octave.
//!
//! A bucket is between 1/16 and 1/8 of its times wide, from one microsecond to 4.3 seconds. Faster and slower times
//! count in the first and the last bucket. Times within a bucket are taken to be spread evenly, so that a quantile is
//! mostly much nearer than a bucket's width.

use std::time::Duration;

/// One in so many samples exceeds the p95.
pub(crate) const P95_ONE_IN: u32 = 20;
/// One in so many samples exceeds the p99.
pub(crate) const P99_ONE_IN: u32 = 100;
/// Buckets of the scale.
pub(crate) const BUCKETS: usize = OCTAVES * PER_OCTAVE as usize;
/// Octaves of the scale: up to 4.3 seconds.
const OCTAVES: usize = 22;
/// Buckets of an octave: the longest time in a bucket is an eighth longer than the shortest.
const PER_OCTAVE: u64 = 8;
/// All times shorter than two to this power, in nanoseconds, count as one.
const FIRST_EXPONENT: u32 = 10;
const NANOS_MIN: u64 = 1 << FIRST_EXPONENT;
const NANOS_MAX: u64 = (NANOS_MIN << OCTAVES) - 1;
/// Parts of a bucket that a place tells apart: the most that its word has room for.
const PARTS: u16 = u16::MAX / BUCKETS as u16;

/// Returns the bucket of a time.
#[inline]
pub(crate) const fn bucket(time: Duration) -> usize {
    let nanos = nanos(time);
    let exponent = nanos.ilog2();
    let within = (nanos >> (exponent - PER_OCTAVE.ilog2())) - PER_OCTAVE;
    ((exponent - FIRST_EXPONENT) as u64 * PER_OCTAVE + within) as usize
}

/// Returns a time in nanoseconds, within the scale.
const fn nanos(time: Duration) -> u64 {
    const SECOND: u64 = 1_000_000_000;
    if time.as_secs() > NANOS_MAX / SECOND {
        return NANOS_MAX;
    }
    let nanos = time.as_secs() * SECOND + time.subsec_nanos() as u64;
    if nanos < NANOS_MIN {
        NANOS_MIN
    } else if nanos > NANOS_MAX {
        NANOS_MAX
    } else {
        nanos
    }
}

/// Returns the lower end and the width of a bucket, in nanoseconds.
const fn bounds(bucket: usize) -> (u64, u64) {
    let octave = bucket as u64 / PER_OCTAVE;
    let width = (NANOS_MIN / PER_OCTAVE) << octave;
    ((PER_OCTAVE + bucket as u64 % PER_OCTAVE) * width, width)
}

/// A point on the scale, within a bucket too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(u16);

impl Place {
    /// Returns the place of the sample that is number `nth` (from 1) of `count` in a bucket.
    pub(crate) const fn within(bucket: usize, nth: u32, count: u32) -> Self {
        let part = ((2 * nth as u64 - 1) * PARTS as u64) / (2 * count as u64);
        Self(bucket as u16 * PARTS + part as u16)
    }

    /// Returns the place of a time.
    #[expect(clippy::cast_sign_loss)] // a time is not negative
    pub(crate) fn of_nanos(nanos: f64) -> Self {
        let time = Duration::from_nanos(nanos as u64);
        let bucket = bucket(time);
        let (low, width) = bounds(bucket);
        let part = (self::nanos(time) - low) * u64::from(PARTS) / width;
        Self(bucket as u16 * PARTS + part as u16)
    }

    /// Returns the time at this place, in nanoseconds.
    #[expect(clippy::cast_precision_loss)] // at most 2³²
    pub(crate) fn nanos(self) -> f64 {
        let (low, width) = bounds(self.bucket());
        low as f64 + width as f64 * f64::from(self.part()) / f64::from(PARTS)
    }

    /// Returns the time at this place.
    #[expect(clippy::cast_sign_loss)]
    pub(crate) fn time(self) -> Duration {
        Duration::from_nanos(self.nanos() as u64)
    }

    /// Returns the bucket that it lies in.
    pub(crate) const fn bucket(self) -> usize {
        (self.0 / PARTS) as usize
    }

    /// Returns how many of the `count` samples of its bucket lie above it.
    pub(crate) fn above(self, count: u32) -> u32 {
        (u64::from(count) * u64::from(PARTS - self.part()) / u64::from(PARTS)) as u32
    }

    /// Returns the place as a word that is never 0; 0 stands for no place.
    pub(crate) const fn word(self) -> u16 {
        self.0 + 1
    }

    /// Returns the place of a word, or `None` for 0.
    pub(crate) const fn of_word(word: u16) -> Option<Self> {
        match word.checked_sub(1) {
            Some(place) => Some(Self(place)),
            None => None,
        }
    }

    const fn part(self) -> u16 {
        self.0 % PARTS
    }
}

/// Counts on the scale that can be forgotten gradually.
#[derive(Debug)]
pub(crate) struct LogHistogram {
    counts: [f32; BUCKETS],
}

impl LogHistogram {
    pub(crate) const fn new() -> Self {
        Self {
            counts: [0.0; BUCKETS],
        }
    }

    /// Multiplies all counts by `kept`, and adds `more` to each bucket.
    #[expect(clippy::cast_precision_loss)] // counts of a second
    pub(crate) fn add(&mut self, kept: f32, more: impl Fn(usize) -> u32) {
        for (bucket, count) in self.counts.iter_mut().enumerate() {
            *count = *count * kept + more(bucket) as f32;
        }
    }

    /// Returns the number of samples.
    pub(crate) fn samples(&self) -> f64 {
        self.counts.iter().copied().map(f64::from).sum()
    }

    /// Returns the time that one in `one_in` samples exceeds, or `None` without samples.
    #[expect(clippy::cast_sign_loss)] // a part of a bucket is not negative
    pub(crate) fn exceeded_by(&self, one_in: u32) -> Option<Place> {
        let samples = self.samples();
        let rank = samples - samples / f64::from(one_in);
        let mut before = 0.0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            let count = f64::from(count);
            if count > 0.0 && before + count >= rank {
                let part = ((rank - before) / count * f64::from(PARTS)) as u16;
                return Some(Place(bucket as u16 * PARTS + part.min(PARTS - 1)));
            }
            before += count;
        }
        None
    }

    /// Returns how many samples lie above a place.
    pub(crate) fn above(&self, place: Place) -> f64 {
        let own = place.bucket();
        let above: f64 = self.counts[own + 1..].iter().copied().map(f64::from).sum();
        let part = 1.0 - f64::from(place.part()) / f64::from(PARTS);
        above + f64::from(self.counts[own]) * part
    }
}

const _: () = assert!(BUCKETS * (PARTS as usize) < u16::MAX as usize);

#[cfg(test)]
#[expect(clippy::cast_precision_loss)] // far below 2⁵³
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_ends_hold_what_lies_beyond() {
        assert_eq!(bucket(Duration::ZERO), 0);
        assert_eq!(bucket(Duration::from_nanos(1_024)), 0);
        assert_eq!(bucket(Duration::from_nanos(1_152)), 1);
        assert_eq!(bucket(Duration::from_nanos(2_048)), 8);
        assert_eq!(bucket(Duration::from_nanos((1 << 32) - 1)), BUCKETS - 1);
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_word_is_none_or_the_place() {
        assert_eq!(Place::of_word(0), None);
        let last = Place::within(BUCKETS - 1, 9, 9);
        assert_eq!(Place::of_word(last.word()), Some(last));
    }

    proptest! {
        #[test]
        fn a_time_lies_in_its_bucket(nanos in NANOS_MIN..=NANOS_MAX) {
            let bucket = bucket(Duration::from_nanos(nanos));
            let (low, width) = bounds(bucket);
            prop_assert!(low <= nanos && nanos < low + width);
            prop_assert!(width * 8 <= low, "an eighth of the time at most");
        }

        #[test]
        fn a_place_is_read_back(nanos in NANOS_MIN..=NANOS_MAX) {
            let place = Place::of_nanos(nanos as f64);
            let error = place.nanos() / nanos as f64 - 1.0;
            prop_assert!((-0.0006..=0.0).contains(&error), "{error}");
        }

        #[test]
        fn those_above_are_the_rest(place in 0..45_000_u16, count: u16) {
            let place = Place(place);
            let above = place.above(u32::from(count));
            prop_assert!(above <= u32::from(count));
            prop_assert_eq!(Place::within(place.bucket(), 1, 1).above(8), 4);
        }
    }
}
