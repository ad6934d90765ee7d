//! The ladder of a shard: how hard each tier is penalised, from tick to tick.
//!
//! A rung doubles the price. Callers above their own baseline are one rung ahead of the others: they
//! pay ×2, ×4, ×8 and ×8 where the others pay ×1, ×2, ×4 and ×8. Between two rungs part of the
//! cohorts stands on the higher one. Below the first rung nobody pays more but those above their
//! baseline: there their price is divided, by up to 32, so that what they get grows by steps and not
//! at once. A tick climbs a third of a rung.
//!
//! The lowest tier goes first. The next one follows when all rungs are climbed and
//! - there is next to nothing in the tiers so far, or the ratio has not risen for two seconds; but
//!   `critical` and above follow only
//! - when the ratio keeps falling: to half of what it was when those who can wait had paid.
//!
//! So a slowness that shedding does not cure stays with those who can wait. While the ratio is no
//! trouble and no recovery nothing moves. Recovery divides penalties by 1.1 a tick, by its square
//! once the overload seems over, and by a quarter of that near where the last recovery met trouble;
//! of several tiers the one that came last recovers twice as fast. A tier in which nobody has been
//! shed for a while is lifted at once: its penalty does nothing.

use umbo_types::Criticality;

use super::ratio::Band;

/// Tiers there are.
pub(crate) const TIERS: usize = Criticality::ALL.len();
/// Steps of a rung: one for each cohort.
const RUNG: u16 = 128;
/// Rungs below the first one.
const RUNGS_BELOW: u16 = 5;
/// Highest exponent of a penalty.
const EXPONENT_MAX: i32 = 3;
/// A tier on no rung, and on the highest.
const NONE: f32 = -((RUNGS_BELOW * RUNG) as f32);
const TOP: f32 = (4 * RUNG) as f32;
/// Steps that a tick climbs.
const CLIMB: f32 = 43.0;
/// Steps of a penalty divided by 1.1: 128 · log₂ 1.1.
const DESCENT: f32 = 17.6;
/// Within so many steps of where trouble was met a recovery takes its time: a part of the steps.
const KNEE_STEPS: f32 = 48.0;
const KNEE_PART: f32 = 0.25;
/// Ticks without anybody shed after which a penalty does nothing.
const IDLE_TICKS: u32 = 6;
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
pub(crate) struct Steps(u64);

impl Steps {
    /// Reads what [`Self::word`] has given.
    pub(crate) const fn of_word(word: u64) -> Self {
        Self(word)
    }

    /// Returns the steps as a word; 0 where nobody is penalised.
    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    /// Returns the exponent of the penalty of a caller: its price is multiplied by 2 to this power,
    /// at most 3. None where it passes.
    #[inline]
    pub(crate) fn exponent(self, tier: Criticality, cohort: u8, is_above: bool) -> Option<i32> {
        let lead = if is_above { 0 } else { RUNG };
        let steps = self.of(tier).checked_sub(lead)?;
        let rungs = steps / RUNG + u16::from(cohort < (steps % RUNG) as u8);
        let exponent = i32::from(rungs) - i32::from(RUNGS_BELOW);
        let least = if is_above { i32::MIN } else { 1 };
        (steps > 0 && exponent >= least).then_some(exponent.min(EXPONENT_MAX))
    }

    /// Says whether a tier is penalised.
    #[inline]
    pub(crate) const fn has(self, tier: Criticality) -> bool {
        self.of(tier) > 0
    }

    /// Returns the mean factor on prices of callers above their baseline, and of the others.
    pub(crate) fn factors(self, tier: Criticality) -> (f64, f64) {
        let mean = |is_above| {
            let factor = |at| 2_f64.powi(self.exponent(tier, at, is_above).unwrap_or(0));
            (0..RUNG as u8).map(factor).sum::<f64>() / f64::from(RUNG)
        };
        (mean(true), mean(false))
    }

    const fn of(self, tier: Criticality) -> u16 {
        (self.0 >> (tier as u32 * 16)) as u16
    }
}

/// What the ladder is told by a tick.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    /// Where the ratio lies.
    pub(crate) band: Band,
    pub(crate) ratio: f64,
    /// What each tier asks for, of 1.
    pub(crate) shares: [f64; TIERS],
    /// Requests shed so far, by tier.
    pub(crate) shed: [u64; TIERS],
}

/// How one shard is penalised.
#[derive(Debug)]
pub(crate) struct Ladder {
    tiers: [Rungs; TIERS],
    /// The highest tier that has been reached.
    reach: usize,
    /// Ticks since the overload began.
    ticks: u32,
    /// Whether the last move was down.
    is_recovering: bool,
    /// Ticks in trouble since everything reached was climbed, and the ratio then.
    full_ticks: u32,
    full_ratio: f64,
    /// The ratio of the last second or so.
    recent_ratio: f64,
}

/// Where one tier stands.
#[derive(Debug, Clone, Copy)]
struct Rungs {
    steps: f32,
    /// Where the last recovery met trouble.
    knee: f32,
    shed: u64,
    idle_ticks: u32,
}

impl Ladder {
    /// Nobody is penalised.
    pub(crate) const fn new() -> Self {
        let none = Rungs {
            steps: NONE,
            knee: f32::MAX,
            shed: 0,
            idle_ticks: 0,
        };
        Self {
            tiers: [none; TIERS],
            reach: 0,
            ticks: 0,
            is_recovering: false,
            full_ticks: 0,
            full_ratio: 1.0,
            recent_ratio: 1.0,
        }
    }

    /// Goes on by a tick.
    pub(crate) fn tick(&mut self, weather: &Weather) -> Steps {
        self.recent_ratio = match self.ticks {
            0 => weather.ratio,
            _ => self.recent_ratio + SMOOTHING * (weather.ratio - self.recent_ratio),
        };
        self.ticks += 1;
        for (tier, shed) in self.tiers.iter_mut().zip(weather.shed) {
            let is_idle = shed == std::mem::replace(&mut tier.shed, shed);
            tier.idle_ticks = if is_idle { tier.idle_ticks + 1 } else { 0 };
        }
        if weather.band <= Band::Hold && std::mem::take(&mut self.is_recovering) {
            for tier in &mut self.tiers {
                tier.knee = tier.steps;
            }
        }
        match weather.band {
            Band::Trouble => self.climb(weather.shares),
            Band::Hold => {}
            Band::Mending => self.descend(DESCENT),
            Band::Clear => {
                self.lift();
                self.descend(DESCENT);
            }
            Band::Over => {
                self.lift();
                self.descend(2.0 * DESCENT);
            }
        }
        self.steps()
    }

    /// Says whether nothing is penalised.
    pub(crate) fn is_down(&self) -> bool {
        self.tiers.iter().all(|tier| tier.steps <= NONE)
    }

    fn climb(&mut self, shares: [f64; TIERS]) {
        let mut reached = self.tiers[..=self.reach].iter_mut();
        if let Some(tier) = reached.find(|tier| tier.steps < TOP) {
            tier.climb();
            if self.ticks > LOOK_TICKS && self.is_empty(shares) && self.may_skip() {
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
            self.tiers[self.reach].climb();
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
        self.tiers[self.reach].steps = TOP;
        self.reach += 1;
    }

    /// Lifts what does nothing.
    fn lift(&mut self) {
        let idle = self
            .tiers
            .iter_mut()
            .filter(|tier| tier.idle_ticks >= IDLE_TICKS);
        idle.for_each(|tier| tier.steps = NONE);
    }

    fn descend(&mut self, by: f32) {
        self.is_recovering = true;
        for (at, tier) in self.tiers.iter_mut().enumerate() {
            let is_last_of_several = at > 0 && at == self.reach;
            let by = if is_last_of_several { 2.0 * by } else { by };
            let is_near = (tier.steps - tier.knee).abs() < KNEE_STEPS;
            let by = if is_near { KNEE_PART * by } else { by };
            tier.steps = (tier.steps - by).max(NONE);
        }
        while self.reach > 0 && self.tiers[self.reach].steps <= NONE {
            self.reach -= 1;
        }
        self.full_ticks = 0;
    }

    #[expect(clippy::cast_sign_loss)] // never below none
    fn steps(&self) -> Steps {
        let words = self
            .tiers
            .iter()
            .rev()
            .map(|tier| (tier.steps - NONE).ceil() as u16);
        Steps(words.fold(0, |word, steps| word << 16 | u64::from(steps)))
    }
}

impl Rungs {
    fn climb(&mut self) {
        let from = if self.steps <= NONE { 0.0 } else { self.steps };
        self.steps = (from + CLIMB).min(TOP);
    }
}

#[cfg(test)]
mod tests;
