//! How many samples usually lie above the threshold that engages, so that what is usual is no news.
//!
//! A p95 alone cannot tell: where 4 % of the reads miss a cache and take ten times as long, the p95
//! of a hundred samples jumps tenfold by chance, many times a day. So the samples above the threshold
//! must be more than their usual share explains. The usual share is taken from about the last
//! minute, high rather than low while little is known; half as many again as usual are explained by
//! drift; and what is left is measured by its probability (the bound of Chernoff 1952 for Poisson
//! counts, which is ten times too high or more).

use super::tally::Tally;

/// What a tick leaves of the ticks before it: a mean age of one minute.
const KEPT: f32 = 1.0 - 1.0 / 600.0;
/// A usual share this many times as high is explained by drift.
const DRIFT: f64 = 1.5;
/// A baseline below this part of the one that samples were compared with makes them worthless.
const FALL: f64 = 0.85;

/// The usual share of a shard and class.
#[derive(Debug)]
pub(crate) struct Usual {
    samples: f32,
    above: f32,
    /// The highest baseline that they were compared with, in nanoseconds.
    baseline: f32,
}

impl Usual {
    /// Knows nothing, so is surprised by nothing.
    pub(crate) const fn new() -> Self {
        Self {
            samples: 0.0,
            above: 0.0,
            baseline: 0.0,
        }
    }

    /// Takes in a calm tick under a baseline, in nanoseconds.
    #[expect(clippy::cast_precision_loss)] // a share, to two digits
    pub(crate) fn note(&mut self, tally: &Tally, baseline: f64) {
        // Under a lower baseline more of the same samples would have been above it.
        if baseline < FALL * f64::from(self.baseline) {
            *self = Self::new();
        }
        self.baseline = self.baseline.max(baseline as f32);
        self.samples = self.samples * KEPT + tally.samples as f32;
        self.above = self.above * KEPT + tally.above[Tally::ENGAGE] as f32;
    }

    /// Returns how surprising it is that so many are above the engaging threshold: the negative
    /// natural logarithm of a bound of the probability; 0 where it is usual.
    pub(crate) fn surprise(&self, tally: &Tally) -> f64 {
        if self.samples < 1.0 {
            return 0.0;
        }
        let known = f64::from(self.above);
        let share = (known + 2.0 + 2.0 * (known + 1.0).sqrt()) / f64::from(self.samples);
        let expected = share * f64::from(tally.samples);
        let seen = f64::from(tally.above[Tally::ENGAGE]);
        if seen <= DRIFT * expected {
            return 0.0;
        }
        seen * (seen / expected).ln() - (seen - expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(samples: u32, above: u32) -> Tally {
        Tally {
            samples,
            above: [above; 3],
        }
    }

    fn after(ticks: u32, samples: u32, above: u32) -> Usual {
        let mut usual = Usual::new();
        for _ in 0..ticks {
            usual.note(&tally(samples, above), 1e6);
        }
        usual
    }

    fn explains(usual: &Usual, tally: &Tally) -> bool {
        usual.surprise(tally) < 14.0
    }

    #[test]
    fn everything_is_usual_before_anything_is_known() {
        assert!(explains(&Usual::new(), &tally(1_000, 1_000)));
        assert!(explains(&after(5, 1, 0), &tally(100, 20)));
    }

    #[test]
    fn where_nothing_is_slow_a_few_are_news() {
        let usual = after(600, 100, 0);
        assert!(explains(&usual, &tally(100, 3)));
        assert!(!explains(&usual, &tally(100, 8)));
        assert!(!explains(&usual, &tally(7_000, 400)));
    }

    #[test]
    fn where_some_are_always_slow_more_are_needed() {
        let usual = after(3_000, 100, 4);
        assert!(explains(&usual, &tally(100, 12)));
        assert!(explains(&usual, &tally(7_000, 420)), "half as many again");
        assert!(!explains(&usual, &tally(7_000, 700)));
        assert!(!explains(&usual, &tally(100, 40)));
    }

    #[test]
    fn a_baseline_that_falls_takes_what_was_known_along() {
        let mut usual = after(600, 100, 0);
        usual.note(&tally(100, 0), 0.9e6);
        assert!(!explains(&usual, &tally(100, 10)));
        usual.note(&tally(100, 0), 0.8e6);
        assert!(explains(&usual, &tally(100, 10)));
    }

    #[test]
    fn chance_does_not_pass_a_day_long() {
        // Binomial samples of 4 % against what 4 % explain.
        let usual = after(3_000, 50, 2);
        let mut state = 7_u64;
        for window in 0..200_000 {
            let mut above = 0;
            for _ in 0..100 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(11);
                above += u32::from(state >> 32 < (1_u64 << 32) / 25);
            }
            assert!(explains(&usual, &tally(100, above)), "{above} in {window}");
        }
    }
}
