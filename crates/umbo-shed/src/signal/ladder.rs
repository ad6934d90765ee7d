//! The ladder of a shard: how hard each tier is penalised, from tick to tick.
//!
//! A tier climbs four rungs. On the first one the price is doubled for callers above their own
//! baseline, on the second, third and fourth it is ×4, ×8 and ×8 for those and ×2, ×4 and ×8 for the
//! others. Between two rungs part of the cohorts stands on the higher one. A tick climbs half a rung.
//!
//! The lowest tier goes first. The next one follows when all rungs are climbed and
//! - there is next to nothing in the tiers so far, or the ratio has not risen for two seconds; but
//!   `critical` and above follow only
//! - when the ratio keeps falling: to half of what it was when those who can wait had paid.
//!
//! So a slowness that shedding does not cure stays with those who can wait. While the ratio is no
//! trouble and no recovery nothing moves. Recovery divides penalties by 1.1 a tick, by its square
//! once the overload is over; of several tiers the one that came last recovers twice as fast.

use umbo_types::Criticality;

use super::ratio::Band;

/// Tiers there are.
pub(crate) const TIERS: usize = Criticality::ALL.len();
/// Steps of a rung: one for each cohort.
const RUNG: u16 = 128;
/// Steps of a tier.
const TOP: f32 = 4.0 * RUNG as f32;
/// Steps that a tick climbs.
const CLIMB: f32 = 64.0;
/// Steps of a penalty divided by 1.1: 128 · log₂ 1.1.
const DESCENT: f32 = 17.6;
/// A tier that asks for less than this part of all is no relief.
const EMPTY_SHARE: f64 = 0.05;
/// Ticks after which the next tier follows though the ratio does not fall.
const PATIENCE_TICKS: u32 = 20;
/// A ratio below this part of what it was keeps falling.
const FALL: f64 = 0.5;
/// Part of the ratio of a tick in the ratio that is compared: p95s scatter.
const SMOOTHING: f64 = 0.1;
/// Ticks after which it is known what the ratio was.
const MARK_TICKS: u32 = 10;
/// Ticks before it is known who asks for how much.
const LOOK_TICKS: u32 = 2;

/// Steps of all tiers in one word, so that a request reads them at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Steps(pub(crate) u64);

impl Steps {
    /// Returns the exponent of the penalty of a caller: its price is multiplied by 2 to this power.
    #[inline]
    pub(crate) const fn exponent(self, tier: Criticality, cohort: u8, is_above: bool) -> u32 {
        let lead = if is_above { 0 } else { RUNG };
        let steps = self.of(tier).saturating_sub(lead);
        let rungs = steps / RUNG + (cohort < (steps % RUNG) as u8) as u16;
        if rungs > 3 { 3 } else { rungs as u32 }
    }

    /// Says whether a tier is penalised.
    #[inline]
    pub(crate) const fn has(self, tier: Criticality) -> bool {
        self.of(tier) > 0
    }

    /// Returns the mean factor on prices of callers above their baseline, and of the others.
    pub(crate) fn factors(self, tier: Criticality) -> (f64, f64) {
        let mean = |is_above| {
            let cohorts = 0..RUNG as u8;
            let factors = cohorts.map(|at| f64::from(1 << self.exponent(tier, at, is_above)));
            factors.sum::<f64>() / f64::from(RUNG)
        };
        (mean(true), mean(false))
    }

    const fn of(self, tier: Criticality) -> u16 {
        (self.0 >> (tier as u32 * 16)) as u16
    }
}

/// How one shard is penalised.
#[derive(Debug, Default)]
pub(crate) struct Ladder {
    steps: [f32; TIERS],
    /// The highest tier that has been reached.
    reach: usize,
    /// Ticks since the overload began.
    ticks: u32,
    /// Ticks in trouble since everything reached was climbed, and the ratio then.
    full_ticks: u32,
    full_ratio: f64,
    /// The ratio of the last second or so.
    recent_ratio: f64,
}

impl Ladder {
    /// Goes on by a tick. `band` is where the ratio lies, none once the overload is over; `shares`
    /// is what each tier asks for, of 1.
    pub(crate) fn tick(&mut self, band: Option<Band>, ratio: f64, shares: [f64; TIERS]) -> Steps {
        self.recent_ratio = match self.ticks {
            0 => ratio,
            _ => self.recent_ratio + SMOOTHING * (ratio - self.recent_ratio),
        };
        self.ticks += 1;
        match band {
            Some(Band::Trouble) => self.climb(shares),
            Some(Band::Hold) => {}
            Some(Band::Mending | Band::Clear) => self.descend(DESCENT),
            None => self.descend(2.0 * DESCENT),
        }
        self.steps()
    }

    /// Says whether nothing is penalised.
    pub(crate) fn is_down(&self) -> bool {
        self.steps.iter().all(|steps| *steps <= 0.0)
    }

    fn climb(&mut self, shares: [f64; TIERS]) {
        if let Some(steps) = self.steps[..=self.reach].iter_mut().find(|at| **at < TOP) {
            *steps = (*steps + CLIMB).min(TOP);
            let is_empty = self.ticks > LOOK_TICKS && self.is_empty(shares);
            if is_empty && self.may_skip() {
                self.reach_next();
            }
            self.full_ticks = 0;
            return;
        }
        self.full_ticks += 1;
        if self.full_ticks <= MARK_TICKS {
            self.full_ratio = self.recent_ratio;
        }
        let is_falling = self.recent_ratio < FALL * self.full_ratio;
        let is_late = self.full_ticks >= PATIENCE_TICKS || self.is_empty(shares);
        if self.reach + 1 < TIERS && (is_falling || is_late && self.may_skip()) {
            self.reach_next();
            self.steps[self.reach] = CLIMB;
            self.full_ticks = 0;
        }
    }

    /// Says whether the next tier may follow without the ratio falling.
    const fn may_skip(&self) -> bool {
        self.reach < Criticality::SheddablePlus as usize
    }

    fn is_empty(&self, shares: [f64; TIERS]) -> bool {
        shares[..=self.reach].iter().sum::<f64>() < EMPTY_SHARE
    }

    fn reach_next(&mut self) {
        self.steps[self.reach] = TOP;
        self.reach += 1;
    }

    fn descend(&mut self, by: f32) {
        for (tier, steps) in self.steps.iter_mut().enumerate() {
            let is_last_of_several = tier > 0 && tier == self.reach;
            let by = if is_last_of_several { 2.0 * by } else { by };
            *steps = (*steps - by).max(0.0);
        }
        while self.reach > 0 && self.steps[self.reach] <= 0.0 {
            self.reach -= 1;
        }
        self.full_ticks = 0;
    }

    #[expect(clippy::cast_sign_loss)] // never below zero
    fn steps(&self) -> Steps {
        let words = self.steps.iter().rev();
        Steps(words.fold(0, |word, steps| word << 16 | u64::from(steps.ceil() as u16)))
    }
}

#[cfg(test)]
mod tests;
