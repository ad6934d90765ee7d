//! Shedding at the entry while the runtime is late. A store that answers at once, on the thread that asks it, never has
//! a queue, even if tasks wait long for a thread.
//!
//! The lag of the runtime is a delay that a request has behind it when it arrives. So it has the same target as a delay
//! in the queue: a request whose deadline allows the lag is never shed for it. The others are shed by rank, lowest tier
//! first. Within a tier callers above their fair share come first, so that some callers are served whole instead of all
//! in part. Requests below a limit of rank are shed. The limit rises while the least lag of an interval is above the
//! target, and falls while it is not (after DAGOR, Zhou et al. 2018, with the lag for the queueing time). Each tier
//! keeps its floor.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::PerTier;
use super::admission::{Entry, tier};
use super::codel::CodelSettings;
use super::tier_queues::TIERS;
use crate::estimate::SAMPLES_MIN;
use crate::flow::FLOWS;

/// Ranks of a tier: one for each flow of callers.
const RANKS: u32 = FLOWS as u32;
/// The highest tier is never shed for lag.
const RANK_MAX: u32 = (TIERS as u32 - 1) * RANKS;
/// One late interval raises the limit by so many ranks for each target of lag.
const RISE: u32 = 48;
/// An interval without lag takes back this part of the rank, and at least this many ranks.
const FALL_PART: u32 = 8;

/// The words that every request reads.
#[derive(Debug, Default)]
pub(crate) struct LateRuntime {
    /// Requests of lower ranks are shed; 0 while the runtime is in time.
    rank: AtomicU32,
    lag_micros: AtomicU64,
    /// Requests of each tier that may still pass in this interval.
    floors: PerTier<AtomicU32>,
    shed: PerTier<AtomicU32>,
}

impl LateRuntime {
    /// Returns whether a request is shed at its entry, and counts it.
    #[inline]
    pub(crate) fn sheds(&self, entry: &Entry, codel: &CodelSettings, now: Instant) -> bool {
        let rank = self.rank.load(Relaxed);
        rank > 0 && self.is_below(rank, entry, codel, now)
    }

    #[cold]
    fn is_below(&self, rank: u32, entry: &Entry, codel: &CodelSettings, now: Instant) -> bool {
        let lag = Duration::from_micros(self.lag_micros.load(Relaxed));
        let tier = tier(entry.criticality);
        if tier as u32 * RANKS + rank_in_tier(entry) >= rank
            || lag <= codel.target_until(entry.deadline.instant(), now)
        {
            return false;
        }
        let taken = |floor: u32| floor.checked_sub(1);
        let has_floor = self.floors[tier].fetch_update(Relaxed, Relaxed, taken);
        if has_floor.is_ok() {
            return false;
        }
        self.shed[tier].fetch_add(1, Relaxed);
        true
    }
}

/// Callers above their fair share have the lower half of the ranks.
const fn rank_in_tier(entry: &Entry) -> u32 {
    let part = (entry.caller >> 32) as u32 % (RANKS / 2);
    if entry.is_above_share {
        part
    } else {
        part + RANKS / 2
    }
}

/// The state that sets the rank, under the lock of the queue.
#[derive(Debug, Default)]
pub(crate) struct LateRuntimeControl {
    since: Option<Instant>,
    /// The least lag of this interval.
    least: Option<Duration>,
    left: u32,
    late_since: Option<Instant>,
    /// Whether anything was shed in the last interval.
    is_shedding: bool,
}

impl LateRuntimeControl {
    /// Records the lag; `left` counts the requests that have ended. At the end of an interval, returns how many
    /// requests of each tier were shed in it; before the end, zeros.
    pub(crate) fn tick(
        &mut self,
        late: &LateRuntime,
        (codel, floor_percent): (&CodelSettings, u32),
        lag: Duration,
        left: u32,
        now: Instant,
    ) -> PerTier<u64> {
        let lag_micros = u64::try_from(lag.as_micros()).unwrap_or(u64::MAX);
        late.lag_micros.store(lag_micros, Relaxed);
        let least = self.least.map_or(lag, |least| least.min(lag));
        self.least = Some(least);
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) < codel.interval {
            return PerTier::default();
        }
        let served = u64::from(left.wrapping_sub(self.left));
        let shed = late
            .shed
            .each_ref()
            .map(|shed| u64::from(shed.swap(0, Relaxed)));
        self.is_shedding = shed.iter().any(|&shed| shed > 0);
        let asked = served + shed.iter().sum::<u64>();
        let rank = late.rank.load(Relaxed);
        let next = if least <= codel.target {
            rank.saturating_sub((rank / FALL_PART).max(FALL_PART))
        } else if asked >= u64::from(SAMPLES_MIN) {
            // If fewer requests come, something else on the machine makes the runtime late, and shedding does not help.
            risen(rank, least, codel.target)
        } else {
            rank
        };
        late.rank.store(next, Relaxed);
        self.late_since = (next > 0).then(|| self.late_since.unwrap_or(now));
        let floor = served * u64::from(floor_percent) / 100;
        for word in &late.floors {
            word.store(u32::try_from(floor).unwrap_or(u32::MAX), Relaxed);
        }
        (self.since, self.least, self.left) = (Some(now), None, left);
        shed
    }

    /// Returns whether anything was shed for lag in the last interval.
    pub(crate) const fn is_shedding(&self) -> bool {
        self.is_shedding
    }

    /// Returns for how long requests have been shed for lag, or `None` while they are not.
    pub(crate) fn lasted(&self, now: Instant) -> Option<Duration> {
        self.late_since
            .map(|since| now.saturating_duration_since(since))
    }
}

/// Returns a higher rank, at most the first rank of the next tier. Whether the next tier has to be shed too shows once
/// all ranks below it are.
fn risen(rank: u32, lag: Duration, target: Duration) -> u32 {
    let times = lag.as_nanos() / target.as_nanos().max(1);
    let rise = RISE.saturating_mul(u32::try_from(times).unwrap_or(u32::MAX));
    let next_tier = (rank / RANKS + 1) * RANKS;
    rank.saturating_add(rise).min(next_tier).min(RANK_MAX)
}

#[cfg(test)]
#[path = "late_runtime_tests.rs"]
mod tests;
