//! A share of the permits for tiers that higher ones would starve, counted in permit time.
//!
//! A tier earns its share of the permits while it waits behind a higher one. It gets a permit when it has earned the
//! usual time of a request. The time that the request took is settled afterwards, so that a tier of long scans has no
//! more of a shard than a tier of short gets. The invariant: while a tier starves, its floor gives it at most its share
//! and two requests more.

use std::time::{Duration, Instant};

use super::tier_queues::TIERS;

/// The usual time is a mean of so many requests: each new one weighs a 16th.
const USUAL_REQUESTS: i64 = 16;

/// The accounts of all tiers, in nanoseconds of one permit.
#[derive(Debug)]
pub(crate) struct Floors {
    /// Share of each tier in the permits, in percent.
    percent: i64,
    /// Most earnings that a tier can save, as the time that earns them, in nanoseconds.
    saved_ns: i64,
    earned_ns: [i64; TIERS],
    earned_at: Option<Instant>,
    /// The usual time of a request.
    usual_ns: i64,
}

impl Floors {
    /// Makes empty accounts; all tiers together have at most all permits. A tier can save its earnings of the time
    /// `saved`.
    pub(crate) fn new(percent: u32, saved: Duration) -> Self {
        Self {
            percent: i64::from(percent.min(100 / TIERS as u32)),
            saved_ns: nanos(saved),
            earned_ns: [0; TIERS],
            earned_at: None,
            usual_ns: 0,
        }
    }

    /// Adds permit time to the tiers that have starved since the last call.
    pub(crate) fn earn(&mut self, starved: [bool; TIERS], limit: u32, now: Instant) {
        let since = self.earned_at.replace(now).unwrap_or(now);
        let elapsed_ns = nanos(now.saturating_duration_since(since));
        let share = self.percent * i64::from(limit);
        let in_time = |time_ns: i64| share.saturating_mul(time_ns) / 100;
        let saved_max = in_time(self.saved_ns).max(self.usual_ns.saturating_mul(2));
        for (earned_ns, is_starved) in self.earned_ns.iter_mut().zip(starved) {
            if is_starved {
                *earned_ns = earned_ns.saturating_add(in_time(elapsed_ns)).min(saved_max);
            } else if *earned_ns > 0 {
                *earned_ns = 0;
            }
        }
    }

    /// Returns the starved tier that has earned a permit; of several, the tier that has earned most.
    pub(crate) fn entitled(&self, starved: [bool; TIERS]) -> Option<usize> {
        if self.percent == 0 {
            return None;
        }
        let has_earned = |&tier: &usize| {
            starved[tier] && self.earned_ns[tier] > 0 && self.earned_ns[tier] >= self.usual_ns
        };
        (0..TIERS)
            .filter(has_earned)
            .max_by_key(|&tier| self.earned_ns[tier])
    }

    /// Charges a tier the usual time of a request, and returns it.
    pub(crate) fn charge(&mut self, tier: usize) -> u64 {
        let charged_ns = self.usual_ns.max(1);
        self.earned_ns[tier] -= charged_ns;
        charged_ns.unsigned_abs()
    }

    /// Settles the time that a request took: learns from it, and corrects the charge of the tier.
    pub(crate) fn settle(&mut self, tier: usize, charged_ns: u64, took: Option<Duration>) {
        let Some(took) = took else { return };
        let took_ns = nanos(took);
        self.usual_ns = if self.usual_ns == 0 {
            took_ns
        } else {
            self.usual_ns + (took_ns - self.usual_ns) / USUAL_REQUESTS
        };
        if charged_ns > 0 {
            let owed_ns = charged_ns.cast_signed().saturating_sub(took_ns);
            self.earned_ns[tier] = self.earned_ns[tier].saturating_add(owed_ns);
        }
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARVED: [bool; TIERS] = [true, true, false, false];

    fn granted_in_a_second(floors: &mut Floors, permits: u32, took: Duration) -> u32 {
        let begun = Instant::now();
        let mut issued = 0;
        for milli in 0..=1_000 {
            floors.earn(STARVED, permits, begun + Duration::from_millis(milli));
            while floors.entitled(STARVED) == Some(0) {
                let charged = floors.charge(0);
                floors.settle(0, charged, Some(took));
                issued += 1;
            }
            floors.earned_ns[1] = 0; // the other one is not looked at here
        }
        issued
    }

    #[test]
    fn a_starving_tier_gets_its_share_of_the_slot_time_whatever_its_requests_take() {
        for (permits, took_ms) in [(4, 1), (4, 10), (4, 100), (40, 2), (1, 1)] {
            let mut floors = Floors::new(10, Duration::from_millis(100));
            let took = Duration::from_millis(took_ms);
            let issued = granted_in_a_second(&mut floors, permits, took);
            let due = u64::from(permits) * 100 / took_ms;
            assert!(
                u64::from(issued).abs_diff(due) <= 2,
                "{permits} {took_ms}: {issued}"
            );
        }
    }

    #[test]
    fn nothing_is_earned_without_starving_and_little_is_saved() {
        let begun = Instant::now();
        let mut floors = Floors::new(10, Duration::from_millis(100));
        floors.earn([false; TIERS], 10, begun);
        floors.earn([false; TIERS], 10, begun + Duration::from_secs(9));
        assert_eq!(floors.entitled(STARVED), None);
        floors.earn(STARVED, 10, begun + Duration::from_secs(99));
        assert_eq!(floors.earned_ns[0], 100_000_000);
        floors.earn([false; TIERS], 10, begun + Duration::from_secs(100));
        assert_eq!(floors.earned_ns[0], 0);
        let mut none = Floors::new(0, Duration::from_millis(100));
        none.earn(STARVED, 10, begun);
        none.earn(STARVED, 10, begun + Duration::from_secs(1));
        assert_eq!(none.entitled(STARVED), None);
    }
}
