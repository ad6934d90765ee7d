//! The last ticks of a shard and class: how many samples there were, and how many lay above what.
//!
//! A p95 exceeds a threshold exactly where more than 5 % of the samples do. So a window that slides
//! by a tick needs no more than a few numbers a tick, and the ratio can be judged long before a
//! slice has ended.

use std::cmp::Ordering;

/// Ticks that are remembered.
const TICKS: usize = 16;
/// Ticks of the shorter window.
const WINDOW: usize = 7;
/// Ticks of the shortest window of a recovery. The penalty follows it, so it has to be short.
const RECOVERY_WINDOW: usize = 3;
/// Samples without which nobody is penalised: the p95 of fewer is chance.
const SAMPLES_ENGAGE_MIN: u32 = 100;
/// Negative natural logarithm of how improbable a whole window has to be, because it is asked a
/// million times a day; and of how improbable the rest without a pause.
const SURPRISE: f64 = 14.0;
const SURPRISE_OF_REST: f64 = 8.0;
/// Samples with which a window need not be longer, to see a recovery.
const SAMPLES_RELEASE: u32 = 50;
/// Samples without which nothing is said of a recovery.
const SAMPLES_RELEASE_MIN: u32 = 20;

/// The samples of one tick, or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) samples: u32,
    /// Samples above the baseline over the ratio that engages, that holds and that releases.
    pub(crate) above: [u32; 3],
}

impl Tally {
    /// Index of what is above the baseline over the ratio that engages.
    pub(crate) const ENGAGE: usize = 0;
    /// Index of what is above the baseline over the ratio that holds.
    pub(crate) const HOLD: usize = 1;
    /// Index of what is above the baseline over the ratio that releases.
    pub(crate) const RELEASE: usize = 2;

    /// Says whether the p95 exceeds a threshold.
    pub(crate) const fn is_p95_above(&self, threshold: usize) -> bool {
        self.above[threshold] as u64 * 20 > self.samples as u64
    }

    /// Orders by the share above the engaging threshold.
    fn by_share(&self, other: &Self) -> Ordering {
        let product = |one: &Self, two: &Self| {
            u64::from(one.above[Self::ENGAGE]) * u64::from(two.samples.max(1))
        };
        product(self, other).cmp(&product(other, self))
    }

    fn sum(parts: &[Self]) -> Self {
        parts
            .iter()
            .fold(Self::default(), |sum, part| sum.plus(part))
    }

    const fn plus(&self, other: &Self) -> Self {
        Self {
            samples: self.samples + other.samples,
            above: [
                self.above[0] + other.above[0],
                self.above[1] + other.above[1],
                self.above[2] + other.above[2],
            ],
        }
    }

    /// Returns part number `part` of `parts`; all parts together are the whole.
    pub(crate) fn part(&self, part: u32, parts: u32) -> Self {
        let share = |count: u32| {
            let upto = |part: u32| u64::from(count) * u64::from(part) / u64::from(parts);
            (upto(part + 1) - upto(part)) as u32
        };
        Self {
            samples: share(self.samples),
            above: self.above.map(share),
        }
    }
}

/// The tallies of the last ticks.
#[derive(Debug)]
pub(crate) struct Tallies {
    /// Samples, and those above; in 16 bits, in proportion where there are more.
    ticks: [[u16; 4]; TICKS],
    newest: u8,
}

impl Tallies {
    /// Remembers nothing.
    pub(crate) const fn new() -> Self {
        Self {
            ticks: [[0; 4]; TICKS],
            newest: 0,
        }
    }

    /// Takes in a tick.
    pub(crate) fn push(&mut self, tally: Tally) {
        self.newest = (self.newest + 1) % TICKS as u8;
        let shift = 16_u32.saturating_sub(tally.samples.leading_zeros());
        let word = |count: u32| u16::try_from(count >> shift).unwrap_or(u16::MAX);
        let [engage, hold, release] = tally.above.map(word);
        self.ticks[usize::from(self.newest)] = [word(tally.samples), engage, hold, release];
    }

    /// Says whether there is trouble: whether the p95 of the last ticks, or of twice as many, is above
    /// the engaging threshold, and chance does not explain the samples above it, not even without
    /// the worst 300 ms of the shorter window or 800 ms of the longer one. Chance is what
    /// `surprise` says: the negative logarithm of the probability of as many.
    ///
    /// So a pause of up to 200 ms is no trouble, at whatever phase: it ends by itself, and sooner
    /// than anything that is done about it.
    pub(crate) fn is_trouble(&self, surprise: impl Fn(&Tally) -> f64) -> bool {
        let is_trouble = |parts: &mut [Tally], worst: usize| {
            let whole = Tally::sum(parts);
            if whole.samples < SAMPLES_ENGAGE_MIN || !whole.is_p95_above(Tally::ENGAGE) {
                return false;
            }
            parts.sort_unstable_by(Tally::by_share);
            let rest = Tally::sum(&parts[..parts.len() - worst]);
            surprise(&whole) >= SURPRISE && surprise(&rest) >= SURPRISE_OF_REST
        };
        let mut ticks: [Tally; WINDOW] = std::array::from_fn(|back| self.tick(back));
        // Where samples are few, a tick has hardly any.
        let four = |at: usize| [0, 1, 2, 3].map(|back| self.tick(4 * at + back));
        let mut fours: [Tally; TICKS / 4] = std::array::from_fn(|at| Tally::sum(&four(at)));
        is_trouble(&mut ticks, 3) || is_trouble(&mut fours, 2)
    }

    /// Returns the window in which a recovery is looked for. None where hardly anything was asked.
    pub(crate) fn recovery(&self) -> Option<Tally> {
        let mut windows = [RECOVERY_WINDOW, WINDOW]
            .map(|ticks| self.last(ticks))
            .into_iter();
        let window = windows.find(|window| window.samples >= SAMPLES_RELEASE);
        let window = window.unwrap_or_else(|| self.last(TICKS));
        (window.samples >= SAMPLES_RELEASE_MIN).then_some(window)
    }

    /// Returns the last ticks together.
    fn last(&self, ticks: usize) -> Tally {
        (0..ticks).fold(Tally::default(), |sum, back| sum.plus(&self.tick(back)))
    }

    /// Returns the tick that was `back` ticks ago.
    fn tick(&self, back: usize) -> Tally {
        let at = (usize::from(self.newest) + TICKS - back) % TICKS;
        let [samples, engage, hold, release] = self.ticks[at].map(u32::from);
        Tally {
            samples,
            above: [engage, hold, release],
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tally(samples: u32, above: u32) -> Tally {
        Tally {
            samples,
            above: [above; 3],
        }
    }

    /// Whether there is trouble where ten in a hundred are no chance and one is.
    fn trouble(tallies: &Tallies) -> bool {
        tallies.is_trouble(|tally| {
            let is_news = tally.above[0] * 30 > tally.samples;
            if is_news {
                f64::from(tally.above[0])
            } else {
                0.0
            }
        })
    }

    fn pushed(tick: Tally, times: u32) -> Tallies {
        let mut tallies = Tallies::new();
        (0..times).for_each(|_| tallies.push(tick));
        tallies
    }

    #[test]
    fn a_busy_class_is_judged_by_seven_ticks() {
        assert_eq!(Tallies::new().recovery(), None);
        let mut tallies = pushed(tally(1_000, 10), 20);
        assert_eq!(tallies.recovery(), Some(tally(3_000, 30)));
        assert!(!trouble(&tallies));
        for at in 1..=5 {
            tallies.push(tally(1_000, 200));
            assert_eq!(trouble(&tallies), at >= 4, "{at}");
        }
        assert!(!tallies.is_trouble(|_| 0.0), "explained");
    }

    #[test]
    fn a_slow_class_is_judged_by_more() {
        assert!(trouble(&pushed(tally(7, 3), 16)));
        let mut tallies = pushed(tally(6, 3), 16);
        assert!(!trouble(&tallies), "96 samples");
        assert_eq!(tallies.recovery(), Some(tally(96, 48)));
        (0..13).for_each(|_| tallies.push(tally(0, 0)));
        assert_eq!(tallies.recovery(), None, "18 samples");
    }

    #[test]
    fn a_pause_is_no_trouble() {
        for samples in [7, 100, 1_000] {
            let mut tallies = pushed(tally(samples, 0), 16);
            for _ in 0..3 {
                tallies.push(tally(samples, samples));
                assert!(!trouble(&tallies));
            }
            for _ in 0..16 {
                tallies.push(tally(samples, 0));
                assert!(!trouble(&tallies));
            }
        }
    }

    #[test]
    fn where_samples_are_few_ticks_are_taken_together() {
        let mut tallies = pushed(tally(8, 0), 16);
        for at in 1..=16 {
            tallies.push(tally(8, if at % 2 == 0 { 5 } else { 0 }));
            assert_eq!(trouble(&tallies), at >= 12, "{at}");
        }
    }

    #[test]
    fn five_percent_exactly_are_not_above() {
        assert!(!tally(100, 5).is_p95_above(Tally::ENGAGE));
        assert!(tally(100, 6).is_p95_above(Tally::RELEASE));
        assert!(!tally(0, 0).is_p95_above(Tally::HOLD));
    }

    proptest! {
        #[test]
        fn parts_are_the_whole(samples: u32, above in 0..1_000_u32, parts in 1..20_u32) {
            let whole = tally(samples / 2, above);
            let sum = (0..parts).fold(Tally::default(), |sum, part| sum.plus(&whole.part(part, parts)));
            prop_assert_eq!(sum, whole);
        }

        #[test]
        fn large_counts_keep_their_proportion(samples in 100..4_000_000_u32, percent in 0..=100_u32) {
            let mut tallies = Tallies::new();
            for _ in 0..WINDOW {
                tallies.push(tally(samples, (u64::from(samples) * u64::from(percent) / 100) as u32));
            }
            let Tally { samples, above } = tallies.last(TICKS);
            let share = f64::from(above[0]) / f64::from(samples) * 100.0;
            prop_assert!((share - f64::from(percent)).abs() <= 1.0, "{share}");
        }
    }
}
