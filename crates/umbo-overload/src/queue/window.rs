//! A running mean with its error, and logarithms that are the same on every machine.

use std::time::Duration;

/// Mean of samples, and its error (Welford 1962).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mean {
    count: u32,
    middle: f64,
    /// Sum of the squares of all distances from the mean.
    squares: f64,
}

impl Mean {
    /// Adds a sample.
    pub(crate) fn add(&mut self, sample: f64) {
        self.count += 1;
        let distance = sample - self.middle;
        self.middle += distance / f64::from(self.count);
        self.squares += distance * (sample - self.middle);
    }

    /// Returns the number of samples.
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// Returns the mean of the samples, or 0 without samples.
    pub(crate) const fn mean(&self) -> f64 {
        self.middle
    }

    /// Returns the standard error of the mean; infinite below two samples.
    pub(crate) fn error(&self) -> f64 {
        if self.count < 2 {
            return f64::INFINITY;
        }
        self.deviation() / f64::from(self.count).sqrt()
    }

    /// Returns the standard deviation of the samples; infinite below two samples.
    pub(crate) fn deviation(&self) -> f64 {
        if self.count < 2 {
            return f64::INFINITY;
        }
        (self.squares / (f64::from(self.count) - 1.0)).sqrt()
    }
}

/// Returns about the logarithm, to base 2, of a duration in nanoseconds; zero counts as one
/// nanosecond.
///
/// Between powers of two it is a straight line, which is off by less than 0.09. It uses no library,
/// because the last bit of a library's result can differ from one machine to another.
pub(crate) fn log2_nanos(duration: Duration) -> f64 {
    let nanos = u64::try_from(duration.as_nanos())
        .unwrap_or(u64::MAX)
        .max(1);
    let whole = nanos.ilog2();
    let rest = (nanos << (63 - whole)) & !(1 << 63);
    // The upper half of the bits of the fraction is plenty.
    let rest = (rest >> 32) as u32;
    f64::from(whole) + f64::from(rest) / f64::from(1_u32 << 31)
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss)] // compared with some slack
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn mean_and_error_are_those_of_the_textbook() {
        let mut mean = Mean::default();
        assert!(mean.error().is_infinite());
        for sample in [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0] {
            mean.add(sample);
        }
        assert!((mean.mean() - 5.0).abs() < 1e-12);
        // The sum of squares is 32.
        assert!((mean.error() - (32.0_f64 / 7.0 / 8.0).sqrt()).abs() < 1e-12);
        assert!((mean.deviation() - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn logarithms_are_close_and_grow(nanos in 1..u64::MAX / 2) {
            let close = log2_nanos(Duration::from_nanos(nanos));
            prop_assert!((close - (nanos as f64).log2()).abs() < 0.09);
            prop_assert!(log2_nanos(Duration::from_nanos(nanos * 2)) - close > 0.999_999);
            prop_assert!(log2_nanos(Duration::from_nanos(nanos + 1)) >= close);
        }
    }
}
