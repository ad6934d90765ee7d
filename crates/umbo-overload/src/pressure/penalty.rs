//! The penalty of a shard: by how much the pressure multiplies the prices of the designated class.
//!
//! A *level* from 0 rises with the pressure and falls without it. Each tier of the class has two stages,
//! lowest tier first: callers above their fair share, then all. A stage multiplies prices by up to 8; the
//! level says how many stages are climbed, and how much of the next one. Without pressure the level is gone
//! within a second: the penalty ends with what caused it.
//!
//! Requests read all multipliers in one word, 0 if no caller pays more.

use umbo_types::{Criticality, PriceMultiplier};

/// The highest multiplier, as a power of two: the price of the whole class drains an eighth of the work out
/// of the same bucket.
pub(crate) const EXPONENT_MAX: u8 = 3;
/// Stages that a tick climbs under full pressure: the first multiplier is felt within half a second.
const RISE: f64 = 0.25;
/// Stages that a tick without pressure takes back: twice as fast as full pressure climbs.
const FALL: f64 = 2.0 * RISE;
/// Parts of an exponent in the word: as many as a byte has room for, a power of two so that halves are exact.
const PARTS: f64 = (1_u32 << (u8::MAX / EXPONENT_MAX).ilog2()) as f64;
/// Stages of a tier: callers above their fair share, then all.
const STAGES: [bool; 2] = [true, false];

/// Price multipliers of all tiers in one word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Prices(u64);

impl Prices {
    /// Reads what [`Self::word`] has returned.
    pub(crate) const fn of_word(word: u64) -> Self {
        Self(word)
    }

    /// Returns the multipliers as a word; 0 if no caller pays more.
    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    /// Returns the multiplier of a tier's callers above their fair share, or of the others.
    pub(crate) fn multiplier(self, tier: Criticality, is_above: bool) -> PriceMultiplier {
        let shift = Self::shift(tier, is_above);
        let exponent = f64::from((self.0 >> shift) as u8) / PARTS;
        PriceMultiplier::from_hundredths(hundredths(exponent))
    }

    /// Returns whether a caller of a tier pays more.
    pub(crate) const fn has(self, tier: Criticality) -> bool {
        (self.0 >> Self::shift(tier, false)) as u16 > 0
    }

    const fn shift(tier: Criticality, is_above: bool) -> u32 {
        (tier as u32 * STAGES.len() as u32 + is_above as u32) * u8::BITS
    }
}

#[expect(clippy::cast_sign_loss)] // a power of two is not negative
fn hundredths(exponent: f64) -> u16 {
    (exponent.exp2() * 100.0).round() as u16
}

/// How far the prices of one shard have risen.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Penalty {
    level: f64,
}

impl Penalty {
    /// Advances by a tick with a pressure from 0 to 1; the class has the tiers up to `tier_max`.
    #[expect(clippy::cast_sign_loss)] // an exponent is not negative
    pub(crate) fn tick(&mut self, pressure: f64, tier_max: Criticality) -> Prices {
        let stages_of = STAGES.len() as u8;
        let stages = f64::from(stages_of * (tier_max as u8 + 1));
        self.level = if pressure > 0.0 {
            (self.level + RISE * pressure).min(stages)
        } else {
            (self.level - FALL).max(0.0)
        };
        let mut word = 0;
        for tier in Criticality::ALL {
            for (stage, is_above) in (0..).zip(STAGES) {
                let before = f64::from(stages_of * tier as u8 + stage);
                let climbed = (self.level - before).clamp(0.0, 1.0);
                let parts = (climbed * f64::from(EXPONENT_MAX) * PARTS).round() as u64;
                word |= parts << Prices::shift(tier, is_above);
            }
        }
        Prices(word)
    }

    /// Returns whether no caller pays more.
    pub(crate) fn is_none(self) -> bool {
        self.level <= 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(prices: Prices, tier: Criticality) -> (u16, u16) {
        let hundredths = |is_above| prices.multiplier(tier, is_above).as_hundredths();
        (hundredths(true), hundredths(false))
    }

    #[test]
    fn the_lowest_tier_pays_first_and_within_it_who_is_above_its_share() {
        let mut penalty = Penalty::default();
        let mut prices = Prices::default();
        for _ in 0..2 {
            prices = penalty.tick(1.0, Criticality::SheddablePlus);
        }
        assert_eq!(of(prices, Criticality::Sheddable), (283, 100));
        for _ in 0..6 {
            prices = penalty.tick(1.0, Criticality::SheddablePlus);
        }
        assert_eq!(of(prices, Criticality::Sheddable), (800, 800));
        assert_eq!(of(prices, Criticality::SheddablePlus), (100, 100));
        for _ in 0..100 {
            prices = penalty.tick(0.5, Criticality::SheddablePlus);
        }
        assert_eq!(of(prices, Criticality::SheddablePlus), (800, 800));
        assert_eq!(of(prices, Criticality::Critical), (100, 100));
        assert!(!prices.has(Criticality::Critical) && prices.has(Criticality::SheddablePlus));
    }

    #[test]
    fn it_ends_with_the_pressure() {
        let mut penalty = Penalty::default();
        (0..100).for_each(|_| _ = penalty.tick(1.0, Criticality::SheddablePlus));
        let ticks = (1..=100).find(|_| penalty.tick(0.0, Criticality::SheddablePlus).word() == 0);
        assert!(ticks.is_some_and(|ticks| ticks <= 10), "{ticks:?}");
        assert!(penalty.is_none());
    }

    #[test]
    fn a_class_of_one_tier_leaves_the_others_alone() {
        let mut penalty = Penalty::default();
        let prices = (0..100).fold(Prices::default(), |_, _| {
            penalty.tick(1.0, Criticality::Sheddable)
        });
        assert_eq!(of(prices, Criticality::Sheddable), (800, 800));
        assert!(!prices.has(Criticality::SheddablePlus));
        assert_eq!(Prices::of_word(prices.word()), prices);
    }
}
