//! The penalty of a shard: who pays more, and who is held to a part of its share, while the shard is under pressure.
//!
//! Callers above their fair share come first, lowest tier first. In each tier their price rises up to 8 times. Then
//! they are held to their share, and while the pressure lasts to a smaller and smaller part of it, down to a tenth. If
//! the pressure has not ended by then, the next tier that has such callers follows. Other callers pay more, and are
//! held, only after two seconds of pressure without a caller above its share, lowest tier first.
//!
//! One heavy request can explain a latency, also at a shard without a flood. While one heavy request explains the
//! pressure, callers above their share are held to their share and to no less, and no other caller is reached.
//!
//! Without pressure prices are plain within a second. Callers who still ask for more than their share keep their price
//! and are held to the share for a minute: if they were let go at once, the pressure would return with them.
//!
//! Requests read all multipliers in one word, 0 if no caller pays more.

use std::time::Duration;

use umbo_types::{Criticality, PriceMultiplier};

use super::fair_shares::{Excess, HeldParts};
use super::settings::TICK;

const TIERS: usize = Criticality::ALL.len();
/// The highest multiplier, as a power of two: the price of the whole class drains an eighth of the work out
/// of the same bucket.
pub(crate) const EXPONENT_MAX: u8 = 3;
/// Part of a tier's stage that a tick climbs under full pressure: the first multiplier is felt within half a second.
const RISE: f64 = 0.25;
/// Part of a stage that a tick without pressure takes back: twice as fast as full pressure climbs.
const FALL: f64 = 2.0 * RISE;
/// Part of a stage that raises the price of its callers; in the rest they are held to a smaller and smaller part.
const PRICE_PART: f64 = 0.25;
/// The smallest part of their share that callers are held to.
const PART_MIN: f64 = 0.1;
/// Ticks of pressure without a caller above its share, after which others pay more: two seconds, to tell callers apart.
const GRACE_TICKS: u32 = ticks(Duration::from_secs(2));
/// Ticks that a tier is held to the least part before the next tier is reached: four seconds, because the end of an
/// overload is found within three.
const SETTLE_TICKS: u32 = ticks(Duration::from_secs(4));
/// Ticks without pressure after which callers above their share are let go, to see whether the pressure returns: a
/// minute, so that it is felt for a fiftieth of the time.
const HELD_TICKS: u32 = ticks(Duration::from_mins(1));
/// Parts of an exponent in the word: the most that a byte has room for, and a power of two so that halves are exact.
const PARTS: f64 = (1_u32 << (u8::MAX / EXPONENT_MAX).ilog2()) as f64;
/// Multipliers of a tier: of callers above their fair share, and of the others.
const STAGES: usize = 2;

const fn ticks(time: Duration) -> u32 {
    (time.as_millis() / TICK.as_millis()) as u32
}

/// Price multipliers of all tiers in one word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Prices(u64);

impl Prices {
    /// Reads a word that [`Self::word`] has returned.
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
        (tier as u32 * STAGES as u32 + is_above as u32) * u8::BITS
    }
}

#[expect(clippy::cast_sign_loss)] // a power of two is not negative
fn hundredths(exponent: f64) -> u16 {
    (exponent.exp2() * 100.0).round() as u16
}

/// The pressure of a shard, as the penalty sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct PressureNow {
    /// From 0 to 1.
    pub(crate) pressure: f64,
    /// Whether one heavy request explains it.
    pub(crate) is_explained: bool,
}

/// The measures that follow from the pressure of a shard.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Measures {
    /// Price multipliers.
    pub(crate) prices: Prices,
    /// The parts of the fair share that callers are held to.
    pub(crate) parts: HeldParts,
}

/// How far the penalty of one shard has gone.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Penalty {
    /// How far callers above their share are reached, by tier, from 0 to 1.
    above: [f64; TIERS],
    /// Tiers whose other callers are reached, and how far the next one is.
    others: f64,
    /// Ticks of pressure without a caller above its share.
    without_above: u32,
    /// Ticks of pressure since a tier was held to the least, while the next one waits.
    settled: u32,
    /// Ticks without pressure.
    calm: u32,
}

impl Penalty {
    /// Advances by a tick. The class that pays more has the tiers up to `tier_max`.
    pub(crate) fn tick(
        &mut self,
        pressed: PressureNow,
        tier_max: Criticality,
        excess: Excess,
    ) -> Measures {
        if pressed.pressure > 0.0 && pressed.is_explained {
            self.hold(pressed.pressure, excess);
        } else if pressed.pressure > 0.0 {
            self.rise(pressed.pressure, tier_max, excess);
        } else {
            self.fall(excess);
        }
        self.measures(tier_max)
    }

    /// Holds callers above their share to their share, in the lowest tier that has such callers.
    fn hold(&mut self, pressure: f64, excess: Excess) {
        (self.calm, self.without_above) = (0, 0);
        self.others = self.fallen(self.others, excess.refused.contains(&true));
        let mut tiers = self.above.iter_mut().zip(excess.above);
        match tiers.find(|(_, has_above)| *has_above) {
            Some((reached, _)) if *reached < PRICE_PART => {
                *reached = (*reached + RISE * pressure).min(PRICE_PART);
            }
            _ => self.relax(excess),
        }
    }

    fn rise(&mut self, pressure: f64, tier_max: Criticality, excess: Excess) {
        let tiers_above = excess.above;
        self.calm = 0;
        let step = RISE * pressure;
        let next = (0..TIERS).find(|&tier| tiers_above[tier] && self.above[tier] < 1.0);
        if let Some(next) = next {
            let is_first = !tiers_above[..next].contains(&true);
            if is_first || self.above[next] > 0.0 || self.settled >= SETTLE_TICKS {
                self.above[next] = (self.above[next] + step).min(1.0);
                self.settled = 0;
            } else {
                self.settled += 1;
            }
        }
        if tiers_above.contains(&true) {
            self.without_above = 0;
            self.others = self.fallen(self.others, false);
        } else {
            self.without_above = self.without_above.saturating_add(1);
            if self.without_above > GRACE_TICKS {
                self.others = (self.others + step).min(f64::from(tier_max as u8 + 1));
            }
        }
    }

    fn fall(&mut self, excess: Excess) {
        self.calm = self.calm.saturating_add(1);
        if self.calm > GRACE_TICKS {
            self.without_above = 0;
        }
        self.others = self.fallen(self.others, excess.refused.contains(&true));
        self.relax(excess);
    }

    fn relax(&mut self, excess: Excess) {
        for (tier, has_above) in excess.above.into_iter().enumerate() {
            self.above[tier] = self.fallen(self.above[tier], has_above);
        }
    }

    /// Returns how far a stage is reached after a tick without pressure. While callers ask for too much they are held
    /// to their share.
    fn fallen(&self, reached: f64, is_asked_for: bool) -> f64 {
        if is_asked_for && reached >= PRICE_PART && self.calm < HELD_TICKS {
            (reached - RISE * PART_MIN).max(PRICE_PART)
        } else {
            (reached - FALL).max(0.0)
        }
    }

    #[expect(clippy::cast_sign_loss)] // an exponent is not negative
    fn measures(&self, tier_max: Criticality) -> Measures {
        let mut word = 0;
        let mut add = |tier: Criticality, is_above: bool, part: f64| {
            let part = part.clamp(0.0, 1.0);
            let parts = (part * f64::from(EXPONENT_MAX) * PARTS).round() as u64;
            word |= parts << Prices::shift(tier, is_above);
        };
        for tier in Criticality::ALL {
            if tier <= tier_max {
                add(tier, true, self.above[tier as usize] / PRICE_PART);
                add(tier, false, self.of_others(tier) / PRICE_PART);
            }
        }
        let part = |reached: f64| {
            let climbed = (reached - PRICE_PART) / (1.0 - PRICE_PART);
            (climbed >= 0.0).then(|| PART_MIN.powf(climbed))
        };
        Measures {
            prices: Prices(word),
            parts: HeldParts {
                above: self.above.map(part),
                all: Criticality::ALL.map(|tier| part(self.of_others(tier))),
            },
        }
    }

    /// Returns how far the others of a tier are reached, from 0 to 1.
    fn of_others(&self, tier: Criticality) -> f64 {
        (self.others - f64::from(tier as u8)).clamp(0.0, 1.0)
    }

    /// Returns whether no caller pays more or is held to its share.
    pub(crate) fn is_none(self) -> bool {
        self.others <= 0.0 && self.above.iter().all(|reached| *reached <= 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_TIER: [bool; TIERS] = [false; TIERS];

    const fn pressed(pressure: f64) -> PressureNow {
        PressureNow {
            pressure,
            is_explained: false,
        }
    }

    fn above(above: [bool; TIERS]) -> Excess {
        Excess {
            above,
            ..Excess::default()
        }
    }
    const TIER_MAX: Criticality = Criticality::SheddablePlus;

    fn of(measures: Measures, tier: Criticality) -> (u16, u16) {
        let hundredths = |is_above| measures.prices.multiplier(tier, is_above).as_hundredths();
        (hundredths(true), hundredths(false))
    }

    fn ticks(penalty: &mut Penalty, ticks: u32, pressure: f64, tiers: [bool; TIERS]) -> Measures {
        let tick = |_, _| penalty.tick(pressed(pressure), TIER_MAX, above(tiers));
        (0..ticks).fold(Measures::default(), tick)
    }

    #[test]
    fn callers_above_their_share_pay_first_and_are_held_to_it_then() {
        let mut penalty = Penalty::default();
        let above = [true, false, true, false];
        let measures = ticks(&mut penalty, 1, 0.5, above);
        assert_eq!(of(measures, Criticality::Sheddable), (283, 100));
        assert_eq!(measures.parts, HeldParts::default());
        let measures = ticks(&mut penalty, 1, 0.5, above);
        assert_eq!(of(measures, Criticality::Sheddable), (800, 100));
        assert_eq!(measures.parts.above, [Some(1.0), None, None, None]);
        let measures = ticks(&mut penalty, 3, 1.0, above);
        let parts = measures
            .parts
            .above
            .map(|part| part.map(|part| (part * 100.0).round()));
        assert_eq!(parts, [Some(10.0), None, None, None]);
        let measures = ticks(&mut penalty, SETTLE_TICKS - 1, 1.0, above);
        assert_eq!(measures.parts.above[2], None);
        // The next tier that has some; its price stays, as it is above the class.
        let measures = ticks(&mut penalty, 5, 1.0, above);
        assert_eq!(measures.parts.above[2], measures.parts.above[0]);
        assert_eq!(of(measures, Criticality::Critical), (100, 100));
        assert_eq!(
            of(measures, Criticality::Sheddable),
            (800, 100),
            "no other caller pays"
        );
    }

    #[test]
    fn others_pay_after_two_seconds_without_a_caller_above() {
        let mut penalty = Penalty::default();
        let measures = ticks(&mut penalty, GRACE_TICKS, 1.0, NO_TIER);
        assert_eq!(measures, Measures::default());
        let measures = ticks(&mut penalty, 1, 1.0, NO_TIER);
        assert_eq!(of(measures, Criticality::Sheddable), (100, 800));
        assert!(!measures.prices.has(Criticality::SheddablePlus));
        assert_eq!(measures.parts.all, [Some(1.0), None, None, None]);
        let measures = ticks(&mut penalty, 100, 1.0, NO_TIER);
        assert_eq!(of(measures, Criticality::SheddablePlus), (100, 800));
        assert_eq!(of(measures, Criticality::Critical), (100, 100));
        assert_eq!(measures.parts.above, [None; TIERS]);
        // As soon as one is above its share the others pay no more.
        let measures = ticks(&mut penalty, 8, 1.0, [true, false, false, false]);
        assert_eq!(of(measures, Criticality::Sheddable), (800, 100));
        assert_eq!(measures.parts.all, [None; TIERS]);
    }

    #[test]
    fn it_ends_with_the_pressure_and_with_those_who_ask_for_too_much() {
        let mut penalty = Penalty::default();
        let above = [true, false, false, false];
        ticks(&mut penalty, 100, 1.0, above);
        // They go on asking: they are held to their share, and no longer to less.
        let measures = ticks(&mut penalty, 100, 0.0, above);
        assert_eq!(measures.parts.above, [Some(1.0), None, None, None]);
        assert!(!penalty.is_none());
        let measures = ticks(&mut penalty, 2, 0.0, NO_TIER);
        assert!(penalty.is_none() && measures == Measures::default());
        // The same for others: as long as they are refused.
        ticks(&mut penalty, GRACE_TICKS + 4, 1.0, NO_TIER);
        let crowd = Excess {
            refused: [true, false, false, false],
            ..Excess::default()
        };
        let measures = (0..100)
            .map(|_| penalty.tick(pressed(0.0), TIER_MAX, crowd))
            .last();
        assert_eq!(measures.unwrap().parts.all[0], Some(1.0));
        assert!(ticks(&mut penalty, 2, 0.0, NO_TIER) == Measures::default());
        ticks(&mut penalty, 10, 1.0, above);
        let held = (1..=2 * HELD_TICKS)
            .find(|_| ticks(&mut penalty, 1, 0.0, above).parts.above[0].is_none());
        assert_eq!(held, Some(HELD_TICKS));
    }

    #[test]
    fn a_class_of_one_tier_leaves_the_others_alone() {
        let mut penalty = Penalty::default();
        let tick = |_, _| penalty.tick(pressed(1.0), Criticality::Sheddable, above(NO_TIER));
        let measures = (0..100).fold(Measures::default(), tick);
        assert_eq!(of(measures, Criticality::Sheddable), (100, 800));
        assert!(!measures.prices.has(Criticality::SheddablePlus));
        assert_eq!(Prices::of_word(measures.prices.word()), measures.prices);
    }

    #[test]
    fn what_one_heavy_request_explains_holds_to_the_share_and_reaches_no_other_caller() {
        let mut penalty = Penalty::default();
        let explained = PressureNow {
            pressure: 0.6,
            is_explained: true,
        };
        let both = above([true, false, true, false]);
        let tick = |_| penalty.tick(explained, TIER_MAX, both);
        let measures = (0..100).map(tick).last().unwrap();
        assert_eq!(measures.parts.above, [Some(1.0), None, None, None]);
        // More of it is not explained, and then it is again.
        ticks(&mut penalty, 4, 1.0, both.above);
        let measures = (0..100)
            .map(|_| penalty.tick(explained, TIER_MAX, both))
            .last();
        assert_eq!(measures.unwrap().parts.above, [Some(1.0), None, None, None]);
        let mut penalty = Penalty::default();
        let calm = above(NO_TIER);
        let measures = (0..100)
            .map(|_| penalty.tick(explained, TIER_MAX, calm))
            .last();
        assert_eq!(measures.unwrap(), Measures::default());
    }
}
