//! Who is turned away because the runtime itself is late: where a store answers at once, on the thread
//! that asks it, no queue forms at the gate, however long the tasks wait for a thread.
//!
//! A level rises while the least lag over an interval is above the target, and everybody below it is
//! turned away: the lowest tier first, and within a tier by cohorts of callers, so that a part of
//! the callers is served whole instead of all in part; for a minute, and then another part. Each tier below it keeps a floor of what the
//! pod can do. The level falls in small steps while there is no lag, and at once where all that is
//! asked for is no more than what could be done at the worst. (After DAGOR, Zhou et al. 2018, with the
//! lag for the queueing time.)

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::codel::CodelSettings;
use super::gate::PerTier;
use super::lanes::TIERS;
use super::verdict::{Entry, tier};
use crate::signal::cohort;

/// Levels of a tier.
const COHORTS: u32 = cohort::COHORTS as u32;
/// For how long callers are in the same cohort: long enough to get something done, and short enough for
/// those who are the first to go.
const EPOCH: Duration = Duration::from_mins(1);
/// The highest level: the highest tier is never turned away.
const LEVEL_MAX: u32 = (TIERS as u32 - 1) * COHORTS;
/// Fewest requests of a half interval that may be why the runtime is late. Where fewer come, something
/// else on the machine is, and turning them away would help nobody.
const ASKED_MIN: u64 = 16;
/// By how much the level rises for each target of lag, and for how many of these at most.
const RISE: u32 = 24;
const RISES_MAX: u32 = 4;
/// By how much it falls: a part of it, and at least so much.
const FALL_PART: u32 = 16;
const FALL_MIN: u32 = 4;
/// How much of what could be done at the worst is remembered from one late half interval to the next.
const REMEMBERED: f64 = 0.95;
/// Longest wait that anybody is told.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// What every request reads.
#[derive(Debug, Default)]
pub(crate) struct LagWords {
    level: AtomicU32,
    /// How many of each tier below the level may pass still, in this half interval.
    floors: PerTier<AtomicU32>,
    shed: PerTier<AtomicU32>,
    wait_ms: AtomicU64,
    /// Minutes since the first tick: cohorts change by it.
    epoch: AtomicU32,
}

impl LagWords {
    /// Says whether a request is turned away, and for how long.
    #[inline]
    pub(crate) fn turns_away(&self, entry: &Entry) -> Option<Duration> {
        let level = self.level.load(Relaxed);
        if level == 0 {
            None
        } else {
            self.weigh(entry, level)
        }
    }

    #[cold]
    fn weigh(&self, entry: &Entry, level: u32) -> Option<Duration> {
        let tier = tier(entry.criticality);
        let cohort = u32::from(cohort::cohort(entry.caller, self.epoch.load(Relaxed)));
        let taken = |floor: u32| floor.checked_sub(1);
        if tier as u32 * COHORTS + cohort >= level
            || self.floors[tier]
                .fetch_update(Relaxed, Relaxed, taken)
                .is_ok()
        {
            return None;
        }
        self.shed[tier].fetch_add(1, Relaxed);
        Some(Duration::from_millis(self.wait_ms.load(Relaxed)))
    }
}

/// What moves the level, under the lock of the gate.
#[derive(Debug, Default)]
pub(crate) struct LagControl {
    begun: Option<Instant>,
    /// When this half interval began.
    since: Option<Instant>,
    /// The least lag in it, and in the one before.
    least: Option<Duration>,
    least_before: Duration,
    left_then: u64,
    /// What was done in a half interval with the runtime late.
    capacity: f64,
    turning_since: Option<Instant>,
}

impl LagControl {
    /// Takes notice of the lag. `left` counts those who have left the gate, and wraps around at `wrap`.
    /// Returns who was turned away since the last time anything was returned, by tier.
    pub(crate) fn tick(
        &mut self,
        words: &LagWords,
        settings: &CodelSettings,
        floor_percent: u32,
        lag: Duration,
        left: (u64, u64),
        now: Instant,
    ) -> PerTier<u64> {
        let least = self.least.map_or(lag, |least| least.min(lag));
        self.least = Some(least);
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) < settings.interval / 2 {
            return PerTier::default();
        }
        let age = now.saturating_duration_since(*self.begun.get_or_insert(now));
        let epoch = age.as_secs() / EPOCH.as_secs();
        // It wraps around after 8,000 years.
        words.epoch.store(epoch as u32, Relaxed);
        let served = left.0.wrapping_sub(self.left_then) % left.1;
        let shed = words
            .shed
            .each_ref()
            .map(|shed| u64::from(shed.swap(0, Relaxed)));
        let level = words.level.load(Relaxed);
        // A thread that is not late tells nothing of what it could do, but that it can do this.
        if least > settings.target {
            self.capacity *= REMEMBERED;
        }
        if level > 0 || least > settings.target {
            self.capacity = self.capacity.max(f64::from(count(served)));
        }
        let asked = served + shed.iter().sum::<u64>();
        let late = least.min(self.least_before);
        let is_rising = least >= self.least_before && asked >= ASKED_MIN;
        let next = if late > settings.target && is_rising {
            risen(level, late, settings.target)
        } else if least > settings.target {
            // It is falling already.
            level
        } else if f64::from(count(asked)) <= self.capacity {
            0
        } else {
            level.saturating_sub((level / FALL_PART).max(FALL_MIN))
        };
        self.turning_since = (next > 0).then(|| self.turning_since.unwrap_or(now));
        let lasted = self
            .turning_since
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let wait = lasted.clamp(settings.interval, WAIT_MAX.max(settings.interval));
        words.wait_ms.store(wait.as_millis() as u64, Relaxed);
        let floor = self.capacity * f64::from(floor_percent.min(25)) / 100.0;
        for words in &words.floors {
            words.store(whole(floor), Relaxed);
        }
        words.level.store(next, Relaxed);
        (self.since, self.least, self.least_before) = (Some(now), None, least);
        self.left_then = left.0;
        shed
    }
}

/// Returns a higher level: by more where it is later, but no further than to the next tier. Whether
/// that one has to go too is seen once all below it have gone.
fn risen(level: u32, late: Duration, target: Duration) -> u32 {
    let times = late.as_nanos() / target.as_nanos().max(1);
    let times = u32::try_from(times).unwrap_or(RISES_MAX).min(RISES_MAX);
    let next_tier = (level / COHORTS + 1) * COHORTS;
    (level + RISE * times).min(next_tier).min(LEVEL_MAX)
}

fn count(requests: u64) -> u32 {
    u32::try_from(requests).unwrap_or(u32::MAX)
}

#[expect(clippy::cast_sign_loss)] // a capacity is not negative
fn whole(amount: f64) -> u32 {
    amount.floor() as u32
}

#[cfg(test)]
#[path = "lag_tests.rs"]
#[expect(clippy::cast_precision_loss, clippy::cast_sign_loss)] // of times, all of them small
mod tests;
