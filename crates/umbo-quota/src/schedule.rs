//! How a bucket refills: the axis that counts what has flowed in since the beginning.
//!
//! The axis counts atoms, not time, so that nothing is ever rounded away: at each point of the grid
//! it stands at `base + floor(rate × elapsed)`, computed afresh from the beginning and never from
//! the point before. It steps on an absolute grid of one refill quantum, shifted by a phase of the
//! bucket's own, so that thousands of buckets do not refill in the same millisecond. A new rate
//! begins where the axis stands, so that a change moves no balance.
//!
//! Positions on the axis wrap around at 2⁶⁴ and are compared by their difference, which must stay
//! below 2⁶³: at the highest rate that is two hours, and `Bucket::roll` looks after idle buckets.

use std::time::Duration;

use crate::policy::Limit;

/// Milliseconds since the limiter began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) u64);

impl Moment {
    pub(crate) const fn until(self, later: Self) -> Duration {
        Duration::from_millis(later.0.saturating_sub(self.0))
    }
}

/// The refill of one bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) limit: Limit,
    pub(crate) quantum_ms: u64,
    phase_ms: u64,
    base_ms: u64,
    base_level: u64,
}

impl Schedule {
    /// Begins an axis at zero. The phase may be any number.
    pub(crate) fn begin(limit: Limit, refill: Duration, phase: u64, now: Moment) -> Self {
        let quantum_ms = u64::try_from(refill.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut schedule = Self {
            limit,
            quantum_ms,
            phase_ms: phase % quantum_ms,
            base_ms: 0,
            base_level: 0,
        };
        schedule.base_ms = schedule.step_before(now);
        schedule
    }

    /// Continues the axis with another limit from where it stands.
    pub(crate) fn changed(&self, limit: Limit, refill: Duration, now: Moment) -> Self {
        let mut next = Self::begin(limit, refill, self.phase_ms, now);
        // The two grids need not meet: the new one begins where the old one last stepped, at most.
        next.base_ms = self.step_before(now).max(self.base_ms);
        next.base_level = self.level_at(now);
        next
    }

    /// Says whether this refills as given.
    pub(crate) fn is(&self, limit: Limit, refill: Duration) -> bool {
        self.limit == limit && u128::from(self.quantum_ms) == refill.as_millis().max(1)
    }

    /// Returns the position of the axis.
    pub(crate) fn level_at(&self, now: Moment) -> u64 {
        let elapsed_ms = self.step_before(now).saturating_sub(self.base_ms);
        let (seconds, millis) = (elapsed_ms / 1_000, elapsed_ms % 1_000);
        // A rate has at most 10^15 atoms a second: times 999 it is below 2^63.
        let part = self.limit.rate * millis / 1_000;
        self.base_level
            .wrapping_add(self.limit.rate.wrapping_mul(seconds))
            .wrapping_add(part)
    }

    /// Returns what flows in during two quanta: for that long after it was due a promise still counts,
    /// because those who come back come with a quantum of jitter.
    pub(crate) fn grace(&self) -> u64 {
        self.limit.rate / 1_000 * (2 * self.quantum_ms)
            + self.limit.rate % 1_000 * (2 * self.quantum_ms) / 1_000
    }

    /// Returns the first point of the grid at which the axis stands beyond `level`.
    pub(crate) fn first_beyond(&self, level: u64) -> Moment {
        let ahead = level.wrapping_sub(self.base_level).cast_signed();
        let Ok(ahead) = u64::try_from(ahead) else {
            return Moment(self.base_ms);
        };
        let rate = u128::from(self.limit.rate.max(1));
        let elapsed_ms = ((u128::from(ahead) + 1) * 1_000).div_ceil(rate);
        let elapsed_ms = u64::try_from(elapsed_ms)
            .unwrap_or(u64::MAX / 4)
            .min(u64::MAX / 4);
        let steps = (self.base_ms + elapsed_ms + self.phase_ms).div_ceil(self.quantum_ms);
        Moment((steps * self.quantum_ms).saturating_sub(self.phase_ms))
    }

    /// Returns the last point of the grid, in milliseconds.
    fn step_before(&self, now: Moment) -> u64 {
        let steps = (now.0 + self.phase_ms) / self.quantum_ms;
        (steps * self.quantum_ms).saturating_sub(self.phase_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REFILL: Duration = Duration::from_millis(50);

    fn limit(rate: u64) -> Limit {
        Limit {
            rate,
            burst: rate.max(1),
        }
    }

    #[test]
    fn a_small_rate_is_not_rounded_up() {
        let schedule = Schedule::begin(limit(1), REFILL, 0, Moment(0));
        assert_eq!(schedule.level_at(Moment(999)), 0);
        assert_eq!(schedule.level_at(Moment(1_000)), 1);
        assert_eq!(schedule.level_at(Moment(3_600_000)), 3_600);
    }

    #[test]
    fn the_axis_steps_on_the_grid_of_its_phase() {
        let schedule = Schedule::begin(limit(1_000), REFILL, 20, Moment(0));
        assert_eq!(schedule.level_at(Moment(29)), 0);
        assert_eq!(schedule.level_at(Moment(30)), 30);
        assert_eq!(schedule.level_at(Moment(79)), 30);
        assert_eq!(schedule.level_at(Moment(80)), 80);
    }

    proptest! {
        #[test]
        fn any_second_brings_the_rate_but_for_one_atom(rate in 1..=1_000_000_000_000_000_u64, phase: u64, start in 0..10_000_000_u64, steps in 1..200_u64) {
            let schedule = Schedule::begin(limit(rate), REFILL, phase, Moment(0));
            let (from, to) = (Moment(start), Moment(start + steps * 50));
            let gained = u128::from(schedule.level_at(to).wrapping_sub(schedule.level_at(from)));
            let exact = u128::from(rate) * u128::from(steps) * 50 / 1_000;
            prop_assert!(gained.abs_diff(exact) <= 1, "{} {}", gained, exact);
        }

        #[test]
        fn the_first_point_beyond_is_the_first(rate in 1..=1_000_000_000_u64, phase: u64, ahead in 0..10_000_000_u64, start in 0..10_000_u64) {
            let schedule = Schedule::begin(limit(rate), REFILL, phase, Moment(start));
            let level = schedule.level_at(Moment(start)).wrapping_add(ahead);
            let found = schedule.first_beyond(level);
            let beyond = |at: Moment| schedule.level_at(at).wrapping_sub(level).cast_signed() > 0;
            prop_assert!(beyond(found));
            prop_assert!(!beyond(Moment(found.0 - 1)));
        }

        #[test]
        fn a_change_moves_no_balance(one in 1..=1_000_000_000_u64, other in 1..=1_000_000_000_u64, phase: u64, start in 0..100_000_u64, later in 0..100_000_u64) {
            let before = Schedule::begin(limit(one), REFILL, phase, Moment(start));
            let at = Moment(start + later);
            let after = before.changed(limit(other), REFILL, at);
            prop_assert_eq!(before.level_at(at), after.level_at(at));
            let quantum = other / 20 + 1;
            let next = after.level_at(Moment(at.0 + 50));
            prop_assert!(next.wrapping_sub(before.level_at(at)) <= quantum);
        }
    }
}
