//! The long window: what p95 is normal for a shard and class.
//!
//! The median of the p95s of the slices of the last five minutes, in periods of five seconds: a
//! period keeps the median of its slices, and the baseline is the median of the periods. So whatever
//! fills less than half of a period or of five minutes moves it little or not at all.
//!
//! Its clock is the shard's *calm* time, which stands still while the shard is overloaded: nothing
//! that is seen then becomes normal, and what was normal before does not grow old.

use super::scale::Place;

/// Length of a period, in milliseconds.
const PERIOD_MS: u64 = 5_000;
/// Periods that are kept: five minutes.
const PERIODS: usize = 60;
/// Slices of a period that are remembered, the last ones.
const SLICES: usize = 5;
/// Periods without which there is no baseline.
const PERIODS_MIN: usize = 2;

/// The normal p95.
#[derive(Debug)]
pub(crate) struct Baseline {
    /// Medians by the number of their period; words of [`Place`].
    periods: [u16; PERIODS],
    slices: [u16; SLICES],
    slices_seen: u8,
    /// Number of the period under way.
    period: u32,
    value: u16,
}

impl Baseline {
    /// Knows nothing.
    pub(crate) const fn new() -> Self {
        Self {
            periods: [0; PERIODS],
            slices: [0; SLICES],
            slices_seen: 0,
            period: 0,
            value: 0,
        }
    }

    /// Returns the normal p95; none until two periods have told.
    pub(crate) const fn value(&self) -> Option<Place> {
        Place::of_word(self.value)
    }

    /// Notes the p95 of a slice.
    pub(crate) fn note(&mut self, p95: Place) {
        self.slices[usize::from(self.slices_seen) % SLICES] = p95.word();
        // Beyond the first round only the place in it matters.
        self.slices_seen = match self.slices_seen + 1 {
            seen if usize::from(seen) == 2 * SLICES => SLICES as u8,
            seen => seen,
        };
    }

    /// Goes on to `calm_ms`, the milliseconds for which the shard has been calm.
    pub(crate) fn advance(&mut self, calm_ms: u64) {
        let period = (calm_ms / PERIOD_MS) as u32;
        if period <= self.period {
            return;
        }
        let seen = usize::from(self.slices_seen).min(SLICES);
        self.periods[self.period as usize % PERIODS] = median(&mut self.slices[..seen]);
        self.slices_seen = 0;
        // The place of the period that begins holds the one of five minutes ago, until it ends.
        for passed in (self.period + 1..period).take(PERIODS) {
            self.periods[passed as usize % PERIODS] = 0;
        }
        self.period = period;
        let mut told = [0; PERIODS];
        let mut told_len = 0;
        for &word in self.periods.iter().filter(|word| **word > 0) {
            told[told_len] = word;
            told_len += 1;
        }
        self.value = if told_len >= PERIODS_MIN {
            median(&mut told[..told_len])
        } else {
            0
        };
    }
}

/// Returns the middle word, the upper one of two; 0 where there is none.
fn median(words: &mut [u16]) -> u16 {
    words.sort_unstable();
    words.get(words.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss)] // far below 2⁵³
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn place(micros: u64) -> Place {
        Place::of_nanos(micros as f64 * 1_000.0)
    }

    /// Notes one p95 a second.
    fn feed(baseline: &mut Baseline, seconds: std::ops::Range<u64>, micros: u64) {
        for second in seconds {
            baseline.note(place(micros));
            baseline.advance((second + 1) * 1_000);
        }
    }

    #[test]
    fn there_is_none_before_ten_seconds() {
        let mut baseline = Baseline::new();
        feed(&mut baseline, 0..9, 100);
        assert_eq!(baseline.value(), None);
        feed(&mut baseline, 9..10, 100);
        assert_eq!(baseline.value(), Some(place(100)));
    }

    #[test]
    fn less_than_half_of_the_time_moves_nothing() {
        let mut baseline = Baseline::new();
        feed(&mut baseline, 0..300, 100);
        feed(&mut baseline, 300..445, 900);
        assert_eq!(baseline.value(), Some(place(100)));
        feed(&mut baseline, 445..455, 900);
        assert_eq!(baseline.value(), Some(place(900)));
    }

    #[test]
    fn it_grows_old_with_calm_time_alone() {
        let mut baseline = Baseline::new();
        feed(&mut baseline, 0..300, 100);
        baseline.advance(300_000);
        assert_eq!(baseline.value(), Some(place(100)));
        baseline.advance(590_000);
        assert_eq!(baseline.value(), Some(place(100)), "two periods are left");
        baseline.advance(595_000);
        assert_eq!(baseline.value(), None);
        baseline.advance(9_000_000);
        feed(&mut baseline, 9_000..9_010, 300);
        assert_eq!(baseline.value(), Some(place(300)));
    }

    proptest! {
        /// Against a twin that keeps everything.
        #[test]
        fn it_is_the_median_of_medians(
            seconds in prop::collection::vec((1..4_000_u64, prop::bool::weighted(0.8)), 1..900),
        ) {
            let mut baseline = Baseline::new();
            let mut periods: VecDeque<Option<Place>> = VecDeque::new();
            for (at, second) in seconds.chunks(5).enumerate() {
                let mut told = Vec::new();
                for (micros, _) in second.iter().filter(|(_, is_told)| *is_told) {
                    told.push(place(*micros));
                    baseline.note(place(*micros));
                }
                baseline.advance((at as u64 + 1) * PERIOD_MS);
                told.sort();
                periods.push_back(told.get(told.len() / 2).copied());
                if periods.len() > PERIODS {
                    periods.pop_front();
                }
                let mut known: Vec<Place> = periods.iter().flatten().copied().collect();
                known.sort();
                let expected = (known.len() >= PERIODS_MIN).then(|| known[known.len() / 2]);
                prop_assert_eq!(baseline.value(), expected);
            }
        }
    }
}
