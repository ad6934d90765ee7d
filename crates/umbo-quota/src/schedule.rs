//! How a bucket refills: the axis that counts the refill since the beginning.
//!
//! The axis counts atoms, not time, so that nothing is ever rounded away. At each point of the grid its position is
//! `base + floor(rate × elapsed)`, computed from the base and never from the previous point. The grid steps by one
//! refill quantum. The refill offset of a bucket shifts its grid, so that thousands of buckets do not refill in the
//! same millisecond. A new rate begins at the position of the axis, so that a change moves no balance.
//!
//! Positions on the axis wrap around at 2⁶⁴ and are compared by their difference, which must stay
//! below 2⁶³: at the highest rate that is two hours, and `Bucket::roll` looks after idle buckets.

use std::time::Duration;

use crate::policy::Limit;

/// How late a retry may be over a network, in milliseconds.
const NETWORK_MS: u64 = 100;

/// Milliseconds since the limiter began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Millis(pub(crate) u64);

impl Millis {
    pub(crate) const fn until(self, later: Self) -> Duration {
        Duration::from_millis(later.0.saturating_sub(self.0))
    }
}

/// Shift of the grid of a bucket, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RefillOffset(u64);

impl RefillOffset {
    /// Takes any number.
    pub(crate) fn of(number: u64, refill: Duration) -> Self {
        Self(number % u64::try_from(refill.as_millis()).unwrap_or(u64::MAX).max(1))
    }
}

/// How buckets of one limit refill, each on the grid of its refill offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) limit: Limit,
    pub(crate) quantum_ms: u64,
    base_ms: u64,
    base_level: u64,
}

impl Schedule {
    /// Begins an axis at zero.
    pub(crate) fn begin(limit: Limit, refill: Duration) -> Self {
        Self {
            limit,
            quantum_ms: u64::try_from(refill.as_millis()).unwrap_or(u64::MAX).max(1),
            base_ms: 0,
            base_level: 0,
        }
    }

    /// Continues the axis from its position with another limit.
    pub(crate) fn changed(
        &self,
        limit: Limit,
        refill: Duration,
        now: Millis,
        refill_offset: RefillOffset,
    ) -> Self {
        let mut next = Self::begin(limit, refill);
        // The old and the new grid may differ. The refill since the last step of the old grid counts at the old rate,
        // up to the last step of the new grid. So a change brings one old refill at most.
        let last_ms = self.step_before(now, refill_offset).max(self.base_ms);
        next.base_ms = next.step_before(now, refill_offset).max(last_ms);
        let since_ms = next.base_ms - last_ms;
        let part = u128::from(self.limit.rate) * u128::from(since_ms) / 1_000;
        next.base_level = self.level_at(now, refill_offset).wrapping_add(part as u64);
        next
    }

    /// Returns whether the schedule has this limit and refill.
    pub(crate) fn is(&self, limit: Limit, refill: Duration) -> bool {
        self.limit == limit && u128::from(self.quantum_ms) == refill.as_millis().max(1)
    }

    /// Returns the position of the axis.
    pub(crate) fn level_at(&self, now: Millis, refill_offset: RefillOffset) -> u64 {
        let elapsed_ms = self
            .step_before(now, refill_offset)
            .saturating_sub(self.base_ms);
        let (seconds, millis) = (elapsed_ms / 1_000, elapsed_ms % 1_000);
        // A rate has at most 10^15 atoms a second: times 999 it is below 2^63.
        let part = self.limit.rate * millis / 1_000;
        self.base_level
            .wrapping_add(self.limit.rate.wrapping_mul(seconds))
            .wrapping_add(part)
    }

    /// Returns the refill of two quanta and a tenth of a second: retries come with a quantum of jitter, and over a
    /// network.
    pub(crate) fn grace(&self) -> u64 {
        let grace_ms = 2 * self.quantum_ms + NETWORK_MS;
        self.limit.rate / 1_000 * grace_ms + self.limit.rate % 1_000 * grace_ms / 1_000
    }

    /// Returns the first point of the grid at which the axis stands beyond `level`.
    pub(crate) fn first_beyond(&self, level: u64, refill_offset: RefillOffset) -> Millis {
        let ahead = level.wrapping_sub(self.base_level).cast_signed();
        let Ok(ahead) = u64::try_from(ahead) else {
            return Millis(self.base_ms);
        };
        let rate = u128::from(self.limit.rate.max(1));
        let elapsed_ms = ((u128::from(ahead) + 1) * 1_000).div_ceil(rate);
        let elapsed_ms = u64::try_from(elapsed_ms)
            .unwrap_or(u64::MAX / 4)
            .min(u64::MAX / 4);
        let steps = (self.base_ms + elapsed_ms + refill_offset.0).div_ceil(self.quantum_ms);
        Millis((steps * self.quantum_ms).saturating_sub(refill_offset.0))
    }

    /// Returns the last point of the grid at or before `now`, in milliseconds.
    fn step_before(&self, now: Millis, refill_offset: RefillOffset) -> u64 {
        let steps = (now.0 + refill_offset.0) / self.quantum_ms;
        (steps * self.quantum_ms).saturating_sub(refill_offset.0)
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
        let (schedule, refill_offset) =
            (Schedule::begin(limit(1), REFILL), RefillOffset::default());
        assert_eq!(schedule.level_at(Millis(999), refill_offset), 0);
        assert_eq!(schedule.level_at(Millis(1_000), refill_offset), 1);
        assert_eq!(schedule.level_at(Millis(3_600_000), refill_offset), 3_600);
    }

    #[test]
    fn the_axis_steps_on_the_grid_of_its_phase() {
        let (schedule, refill_offset) = (Schedule::begin(limit(1_000), REFILL), RefillOffset(20));
        assert_eq!(schedule.level_at(Millis(29), refill_offset), 0);
        assert_eq!(schedule.level_at(Millis(30), refill_offset), 30);
        assert_eq!(schedule.level_at(Millis(79), refill_offset), 30);
        assert_eq!(schedule.level_at(Millis(80), refill_offset), 80);
    }

    proptest! {
        #[test]
        fn any_second_brings_the_rate_but_for_one_atom(rate in 1..=1_000_000_000_000_000_u64, refill_offset: u64, start in 0..10_000_000_u64, steps in 1..200_u64) {
            let (schedule, refill_offset) = (Schedule::begin(limit(rate), REFILL), RefillOffset::of(refill_offset, REFILL));
            let (from, to) = (Millis(start), Millis(start + steps * 50));
            let gained = u128::from(schedule.level_at(to, refill_offset).wrapping_sub(schedule.level_at(from, refill_offset)));
            let exact = u128::from(rate) * u128::from(steps) * 50 / 1_000;
            prop_assert!(gained.abs_diff(exact) <= 1, "{} {}", gained, exact);
        }

        #[test]
        fn the_first_point_beyond_is_the_first(rate in 1..=1_000_000_000_u64, refill_offset: u64, ahead in 0..10_000_000_u64, start in 0..10_000_u64) {
            let (schedule, refill_offset) = (Schedule::begin(limit(rate), REFILL), RefillOffset::of(refill_offset, REFILL));
            let level = schedule.level_at(Millis(start), refill_offset).wrapping_add(ahead);
            let found = schedule.first_beyond(level, refill_offset);
            let beyond = |at: Millis| schedule.level_at(at, refill_offset).wrapping_sub(level).cast_signed() > 0;
            prop_assert!(beyond(found));
            prop_assert!(!beyond(Millis(found.0 - 1)));
        }

        #[test]
        fn a_change_moves_no_balance(one in 1..=1_000_000_000_u64, other in 1..=1_000_000_000_u64, refill_offset: u64, start in 0..100_000_u64, later in 0..100_000_u64) {
            let (before, refill_offset) = (Schedule::begin(limit(one), REFILL), RefillOffset::of(refill_offset, REFILL));
            let at = Millis(start + later);
            let after = before.changed(limit(other), REFILL, at, refill_offset);
            prop_assert_eq!(before.level_at(at, refill_offset), after.level_at(at, refill_offset));
            let quantum = other / 20 + 1;
            let next = after.level_at(Millis(at.0 + 50), refill_offset);
            prop_assert!(next.wrapping_sub(before.level_at(at, refill_offset)) <= quantum);
        }

        #[test]
        fn another_refill_brings_no_more_than_one_of_either(one in 1..=1_000_000_000_u64, other in 1..=1_000_000_000_u64, refills in (0..4_usize, 0..4_usize), refill_offset: u64, at in 0..100_000_u64) {
            let refill = |index: usize| Duration::from_millis([10, 50, 200, 1_000][index]);
            let (old, new) = (refill(refills.0), refill(refills.1));
            let refill_offset = RefillOffset::of(refill_offset, old);
            let before = Schedule::begin(limit(one), old);
            let after = before.changed(limit(other), new, Millis(at), refill_offset);
            let brings = |rate: u64, refill: Duration| rate * refill.as_millis() as u64 / 1_000 + 1;
            let (then, now) = (before.level_at(Millis(at), refill_offset), after.level_at(Millis(at), refill_offset));
            prop_assert!(now.wrapping_sub(then) <= brings(one, old));
            let later = Millis(at + new.as_millis() as u64);
            let next = after.level_at(later, refill_offset).wrapping_sub(now);
            prop_assert!(next <= brings(other, new));
            // Nor is anything lost: a second later what both brought is there.
            let later = Millis(at + 1_000);
            let least = u128::from(one.min(other)) * 1_000 / 1_000;
            let gained = after.level_at(later, refill_offset).wrapping_sub(then);
            let missing = brings(other, new) + brings(one, old);
            prop_assert!(u128::from(gained) + u128::from(missing) >= least);
        }
    }
}
