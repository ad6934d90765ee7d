//! Bounds of the latency histograms: two buckets per octave, from 16 µs to 34 s.
//!
//! Bounds are 2^k and 1.5·2^k nanoseconds, so that finding a bucket takes a few bit operations and a quantile
//! read from the histogram is off by less than half. A bound is inclusive, as in the Prometheus format.

use std::time::Duration;

const OCTAVE_FIRST: u32 = 14;
const OCTAVE_LAST: u32 = 35;

/// Number of finite bounds.
pub(crate) const BOUNDS: usize = ((OCTAVE_LAST - OCTAVE_FIRST) * 2 + 1) as usize;
/// Number of buckets: one per bound, and one for values above all bounds.
pub(crate) const BUCKETS: usize = BOUNDS + 1;

/// Returns the inclusive upper bound of a bucket in nanoseconds, for `index` under [`BOUNDS`].
pub(crate) const fn bound_nanos(index: usize) -> u64 {
    let base = 1_u64 << (OCTAVE_FIRST as usize + index / 2);
    if index.is_multiple_of(2) {
        base
    } else {
        base + base / 2
    }
}

/// The inclusive upper bounds of all buckets in nanoseconds; `None` for the last one, which is open.
pub(crate) static HISTOGRAM_BOUNDS: [Option<u64>; BUCKETS] = {
    let mut bounds = [None; BUCKETS];
    let mut index = 0;
    while index < BOUNDS {
        bounds[index] = Some(bound_nanos(index));
        index += 1;
    }
    bounds
};

/// Returns a duration in nanoseconds; saturates after 584 years.
pub(crate) fn nanos(elapsed: Duration) -> u64 {
    elapsed
        .as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::from(elapsed.subsec_nanos()))
}

/// Returns the bucket that an observation falls into.
pub(crate) fn bucket(nanos: u64) -> usize {
    if nanos <= 1 << OCTAVE_FIRST {
        return 0;
    }
    // One less, because bounds are inclusive.
    let below = nanos - 1;
    let octave = below.ilog2();
    if octave >= OCTAVE_LAST {
        return BOUNDS;
    }
    let upper_half = (below >> (octave - 1)) & 1;
    ((octave - OCTAVE_FIRST) * 2) as usize + upper_half as usize + 1
}

/// Returns a quantile in nanoseconds of counts by bucket, or `None` without any. Observations count as spread evenly
/// within their bucket; of the open bucket only the lower bound is known.
pub(crate) fn quantile(counts: &[f64], part: f64) -> Option<f64> {
    let all: f64 = counts.iter().sum();
    let mut left = all * part;
    for (bucket, &count) in counts.iter().enumerate() {
        if left <= count && count > 0.0 {
            let lower = bucket.checked_sub(1).map_or(0, bound_nanos);
            let upper = bound_nanos(bucket.min(BOUNDS - 1)).max(lower);
            return Some(as_f64(lower) + as_f64(upper - lower) * left / count);
        }
        left -= count;
    }
    (all > 0.0).then(|| as_f64(bound_nanos(BOUNDS - 1)))
}

/// Returns a count or a bound as a number.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts and nanoseconds stay below 2^53"
)]
pub(crate) fn as_f64(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn by_search(nanos: u64) -> usize {
        (0..BOUNDS)
            .find(|&index| nanos <= bound_nanos(index))
            .unwrap_or(BOUNDS)
    }

    #[test]
    fn bounds_grow_and_are_inclusive() {
        for index in 0..BOUNDS {
            let bound = bound_nanos(index);
            assert!(index == 0 || bound > bound_nanos(index - 1));
            assert_eq!(bucket(bound), index);
            assert_eq!(bucket(bound + 1), index + 1);
        }
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(u64::MAX), BOUNDS);
        assert_eq!(nanos(Duration::MAX), u64::MAX);
    }

    #[test]
    fn a_quantile_is_between_the_bounds_of_its_bucket() {
        let mut counts = [0.0; BUCKETS];
        assert_eq!(quantile(&counts, 0.5), None);
        counts[3] = 50.0;
        counts[BOUNDS] = 50.0;
        let (lower, upper) = (as_f64(bound_nanos(2)), as_f64(bound_nanos(3)));
        assert_eq!(quantile(&counts, 0.25), Some(f64::midpoint(lower, upper)));
        assert_eq!(quantile(&counts, 0.5), Some(upper));
        let open = quantile(&counts, 0.99);
        assert_eq!(open, Some(as_f64(bound_nanos(BOUNDS - 1))));
    }

    proptest! {
        #[test]
        fn bit_arithmetic_agrees_with_a_search(octave in 0_u32..64, low in any::<u64>()) {
            let value = (1_u64 << octave) | (low & ((1_u64 << octave) - 1));
            prop_assert_eq!(bucket(value), by_search(value));
        }
    }
}
