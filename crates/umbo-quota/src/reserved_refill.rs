//! The refill that a bucket reserves for the tickets it has issued.
//!
//! Each ticket reserves the next stretch of the refill axis behind the bucket's *horizon*. The ticket is due when the
//! axis reaches its stretch. New requests leave the part of the stretch that the axis has passed in the bucket, until
//! the ticket is brought or one to two graces have passed; then the reservation lapses.
//!
//! Many clients never come back. So a bucket overbooks, as airlines do because of no-shows: a ticket reserves the
//! *expected share* of its cost. That share follows how many of the recent reservations were claimed. When it falls,
//! the stretches ahead shrink with it, because the same clients hold those tickets and the lapsed ones. So no client
//! waits for refill that a flood reserves and never claims. A ticket that is issued in exchange for another one
//! reserves its whole cost: its client comes back.
//!
//! Patient clients that bring no ticket come back too. While the refused clients can be such a crowd (see [`Crowd`]),
//! each ticket moves the horizon by about its whole cost, so that the told wait counts them. New requests leave the
//! expected share of that for the tickets that are brought. In a flood only the expected share counts. While no ticket
//! is brought at all, new requests leave nothing, so that the quota is used.
//!
//! The words are not changed in one step. A thread that reads between two changes sees a little more or less reserved
//! for a moment. This decides which request goes first, and never how much is spent.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::crowd::{Crowd, RefusedCost};

/// An expected share of 1.
const WHOLE: u64 = 1 << 20;
/// The least expected share. Without it, a flood could push the horizon ahead without end: a flood of the cheapest
/// requests can be hundreds of times the refill of a small quota. With it, this takes more than 16,384 times the
/// refill.
const SHARE_MIN: u64 = WHOLE / 16_384;
/// Part of its cost that each refused request of a crowd reserves. It is less than one, so that unclaimed refill is not
/// reserved without end.
const CROWD_STRETCH: u64 = WHOLE / 8 * 7;
/// The expected share is divided by this when the reservations are too large for a crowd.
const FLOOD_DIVISOR: u64 = 4;
/// Graces of refill that the expected share remembers: a few, so that a single ticket does not decide it, and it
/// follows a flood soon.
const MEMORY_GRACES: u64 = 3;
/// That memory is at least this part of the largest crowd: a few tickets of the smallest quota.
const MEMORY_CROWD_PART: u64 = 2;

/// The words that an admission reads. Positions on the axis and volumes are in atoms.
#[derive(Debug, Default)]
pub(crate) struct ReservedRefill {
    /// Position where the reserved refill ends.
    horizon: AtomicU64,
    /// Volume of the reservations that are neither claimed nor lapsed.
    open: AtomicU64,
}

/// The turnout of tickets: the part of the reserved refill that is claimed.
#[derive(Debug)]
pub(crate) struct Turnout {
    /// The expected share of a ticket's cost, of [`WHOLE`].
    share: AtomicU64,
    /// Cost of the tickets that were brought since the last look.
    brought: AtomicU64,
    /// Reserved volume of these tickets.
    claimed: AtomicU64,
    /// Volume that was due and not claimed at the last look.
    overdue: AtomicU64,
    /// Position of the axis at the last look.
    looked_at: AtomicU64,
    /// The refused clients that bring no ticket.
    crowd: Crowd,
}

impl ReservedRefill {
    /// Reserves nothing.
    pub(crate) fn none(axis: u64) -> Self {
        Self {
            horizon: AtomicU64::new(axis),
            open: AtomicU64::new(0),
        }
    }

    /// Returns whether anything is reserved.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.open.load(Relaxed) != 0
    }

    /// Returns how far ahead of the axis refill is reserved.
    pub(crate) fn ahead(&self, axis: u64) -> u64 {
        at_least_zero(self.horizon.load(Relaxed).wrapping_sub(axis))
    }

    /// Returns the volume that is due and not claimed. Once a grace, reservations that fell due before the last grace
    /// lapse, and the expected share learns from them.
    pub(crate) fn unclaimed(&self, turnout: &Turnout, axis: u64, grace: u64) -> u64 {
        let ahead = turnout.expected(self.ahead(axis));
        let unclaimed = self.open.load(Relaxed).saturating_sub(ahead);
        if !turnout.is_time(axis, grace) {
            return unclaimed;
        }
        let claimed = turnout.claimed.swap(0, Relaxed);
        let overdue = turnout.overdue.load(Relaxed).saturating_sub(claimed);
        // At most this volume can have fallen due within the last grace.
        let before = turnout.expected(self.ahead(axis.wrapping_sub(grace)));
        let fresh = before.saturating_sub(ahead);
        let lapsed = overdue.min(unclaimed).max(unclaimed.saturating_sub(fresh));
        turnout.overdue.store(unclaimed - lapsed, Relaxed);
        subtract(&self.open, lapsed);
        let was = turnout.share.load(Relaxed);
        let share = turnout.learn(claimed, lapsed, grace);
        if share < was {
            self.shrink(turnout, axis, share, was);
        }
        turnout.crowd.look(axis, turnout.whole(lapsed));
        unclaimed - lapsed
    }

    /// Shrinks the volume reserved for tickets ahead of the axis to the part `share` of `was`. A crowd keeps its turns.
    fn shrink(&self, turnout: &Turnout, axis: u64, share: u64, was: u64) {
        let ahead = self.ahead(axis);
        if turnout.crowd.is_flood() {
            let less = ahead - scaled(ahead, share, was);
            self.horizon.fetch_sub(less, Relaxed);
            subtract(&self.open, less);
        } else {
            subtract(
                &self.open,
                scaled(ahead, was - share, turnout.crowd_stretch(was)),
            );
        }
    }

    /// Gives up the reservations that are too large for a crowd, but for the tickets expected of them. Each call
    /// expects fewer tickets.
    #[cold]
    fn give_up(&self, turnout: &Turnout, axis: u64) {
        let ahead = self.ahead(axis);
        let expected = turnout.expected(ahead);
        if turnout.crowd.begin_flood(axis) {
            self.horizon.fetch_sub(ahead - expected, Relaxed);
        }
        let was = turnout.share.load(Relaxed);
        let share = (was / FLOOD_DIVISOR).max(SHARE_MIN);
        turnout.share.store(share, Relaxed);
        self.shrink(turnout, axis, share, was);
    }

    /// Reserves a stretch of refill for a request. `after` takes the distance from the axis to the horizon, and returns
    /// the distance from the axis to the stretch, or `None` if that is too far. Returns the position where the stretch
    /// begins.
    pub(crate) fn reserve(
        &self,
        turnout: &Turnout,
        axis: u64,
        refused: RefusedCost,
        after: impl Fn(u64) -> Option<u64>,
    ) -> Option<u64> {
        let (mut volume, mut stretch) = turnout.reserved_for(refused);
        if !refused.is_renewed && turnout.crowd.is_too_large(axis, refused, stretch) {
            self.give_up(turnout, axis);
            (volume, stretch) = turnout.reserved_for(refused);
        }
        let mut horizon = self.horizon.load(Relaxed);
        loop {
            let ahead = at_least_zero(horizon.wrapping_sub(axis));
            let first = axis.wrapping_add(after(ahead)?);
            let next = first.wrapping_add(stretch);
            match self
                .horizon
                .compare_exchange_weak(horizon, next, Relaxed, Relaxed)
            {
                Ok(_) => {
                    self.open.fetch_add(volume, Relaxed);
                    return Some(first);
                }
                Err(found) => horizon = found,
            }
        }
    }

    /// Ends the reservation of a ticket of this cost, which was brought.
    ///
    /// If more tickets come than expected, they take nothing from the reservations that are not due yet.
    pub(crate) fn claim(&self, turnout: &Turnout, axis: u64, cost: u64) {
        turnout.brought.fetch_add(cost, Relaxed);
        turnout.crowd.note_brought(axis);
        let ahead = turnout.expected(self.ahead(axis));
        let due = self.open.load(Relaxed).saturating_sub(ahead);
        // A ticket is due when the axis reaches its stretch, so that its own volume may be ahead of the axis.
        let own = scaled(cost, turnout.share.load(Relaxed), WHOLE);
        let claimed = subtract(&self.open, cost.min(due.saturating_add(own)));
        turnout.claimed.fetch_add(claimed, Relaxed);
    }

    /// Keeps the horizon of an idle bucket near the axis, and doubles its expected share if nothing is reserved.
    pub(crate) fn follow(&self, turnout: &Turnout, axis: u64, grace: u64) {
        self.unclaimed(turnout, axis, grace);
        let horizon = self.horizon.load(Relaxed);
        if horizon.wrapping_sub(axis).cast_signed() < 0 {
            // A reservation made meanwhile stays.
            let _ = self
                .horizon
                .compare_exchange(horizon, axis, Relaxed, Relaxed);
            if !self.is_any() {
                let share = turnout.share.load(Relaxed);
                turnout.share.store((2 * share).min(WHOLE), Relaxed);
            }
        }
    }
}

impl Turnout {
    /// Begins at a position of the axis. All tickets are expected to come back.
    pub(crate) fn full(axis: u64) -> Self {
        Self {
            share: AtomicU64::new(WHOLE),
            brought: AtomicU64::new(0),
            claimed: AtomicU64::new(0),
            overdue: AtomicU64::new(0),
            looked_at: AtomicU64::new(axis),
            crowd: Crowd::none(axis),
        }
    }

    /// Returns whether clients bring no tickets, so that nothing has to be kept for tickets.
    pub(crate) fn is_without_tickets(&self) -> bool {
        self.crowd.is_without_tickets()
    }

    /// Returns the volume that is expected to be claimed of a stretch of reserved refill.
    fn expected(&self, stretch: u64) -> u64 {
        if self.crowd.is_flood() {
            return stretch;
        }
        let share = self.share.load(Relaxed);
        scaled(stretch, share, self.crowd_stretch(share))
    }

    /// Returns the cost of the tickets with an expected volume.
    pub(crate) fn whole(&self, volume: u64) -> u64 {
        scaled(volume, WHOLE, self.share.load(Relaxed))
    }

    /// Returns the part of its cost that each refused request of a crowd reserves.
    fn crowd_stretch(&self, share: u64) -> u64 {
        if self.is_without_tickets() {
            WHOLE
        } else {
            share.max(CROWD_STRETCH)
        }
    }

    /// Returns the volume that a refused request reserves for tickets, and the length of its stretch.
    fn reserved_for(&self, refused: RefusedCost) -> (u64, u64) {
        let RefusedCost { cost, .. } = refused;
        if refused.is_renewed {
            return (cost, cost);
        }
        let share = self.share.load(Relaxed);
        let volume = scaled(cost, share, WHOLE);
        if self.crowd.is_flood() {
            return (volume, volume);
        }
        (volume, scaled(cost, self.crowd_stretch(share), WHOLE))
    }

    /// Returns whether a grace has passed since the last look; only one thread gets `true`.
    fn is_time(&self, axis: u64, grace: u64) -> bool {
        let looked_at = self.looked_at.load(Relaxed);
        axis.wrapping_sub(looked_at) >= grace
            && self
                .looked_at
                .compare_exchange(looked_at, axis, Relaxed, Relaxed)
                .is_ok()
    }

    /// Moves the expected share by the ratio of tickets brought and reserved since the last look; returns the new
    /// share.
    fn learn(&self, claimed: u64, lapsed: u64, grace: u64) -> u64 {
        let least = self.crowd.max() / MEMORY_CROWD_PART;
        let mut memory = grace.saturating_mul(MEMORY_GRACES).max(least);
        if !self.crowd.is_flood() {
            // A crowd is refused no more than the refill, however many tickets it brings.
            memory = scaled(memory, self.share.load(Relaxed), WHOLE);
        }
        let came = memory.saturating_add(self.brought.swap(0, Relaxed));
        let reserved = memory.saturating_add(claimed).saturating_add(lapsed);
        let share = scaled(self.share.load(Relaxed), came, reserved.max(1));
        let share = share.clamp(SHARE_MIN, WHOLE);
        self.share.store(share, Relaxed);
        share
    }
}

/// Returns the part `part` of `whole` of a volume.
fn scaled(volume: u64, part: u64, whole: u64) -> u64 {
    let scaled = u128::from(volume) * u128::from(part) / u128::from(whole);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Subtracts, but not below zero; returns how much.
fn subtract(word: &AtomicU64, less: u64) -> u64 {
    if less == 0 {
        return 0;
    }
    let was = word.fetch_update(Relaxed, Relaxed, |word| Some(word.saturating_sub(less)));
    was.map_or(0, |was| was.min(less))
}

/// Returns a difference of two positions, or 0 if it is negative.
fn at_least_zero(difference: u64) -> u64 {
    difference.cast_signed().max(0).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Far more than one, so that a small share of it is something.
    const COST: u64 = 100_000;
    const GRACE: u64 = 10 * COST;

    const REFUSED: RefusedCost = RefusedCost {
        cost: COST,
        rate: 50 * COST,
        is_renewed: false,
    };

    fn reserve(refill: &ReservedRefill, turnout: &Turnout, axis: u64, times: u64) {
        for _ in 0..times {
            let reserved = refill.reserve(turnout, axis, REFUSED, Some);
            assert!(reserved.is_some());
        }
    }

    #[test]
    fn a_reservation_falls_due_in_its_turn_and_lapses_after_two_graces() {
        let (refill, turnout) = (ReservedRefill::none(0), Turnout::full(0));
        assert!(!refill.is_any());
        reserve(&refill, &turnout, 0, 20);
        assert_eq!(refill.ahead(0), 20 * COST);
        let unclaimed = |refills| refill.unclaimed(&turnout, refills * COST, GRACE) / COST;
        assert_eq!((unclaimed(0), unclaimed(7)), (0, 7));
        refill.claim(&turnout, 7 * COST, COST);
        assert_eq!(unclaimed(7), 6);
        assert_eq!(unclaimed(11), 10, "the first look");
        assert_eq!(unclaimed(21), 9, "what was due then has lapsed");
        assert_eq!(unclaimed(31), 0);
        assert!(!refill.is_any());
    }

    /// Serves a bucket for some graces, with so many `times` the tickets that the refill is good for, of which one in
    /// `every` is brought when it is due. Returns how far ahead refill is reserved after each grace.
    fn serve(
        refill: &ReservedRefill,
        turnout: &Turnout,
        graces: u64,
        times: u64,
        every: u64,
    ) -> Vec<u64> {
        let mut waiting = BTreeMap::<u64, u64>::new();
        let mut nonce = 0;
        let first = turnout.looked_at.load(Relaxed);
        (first..first + graces * GRACE)
            .step_by(COST as usize)
            .filter_map(|axis| {
                let due = waiting.split_off(&(axis + 1));
                for tickets in std::mem::replace(&mut waiting, due).into_values() {
                    (0..tickets).for_each(|_| refill.claim(turnout, axis, COST));
                }
                for _ in 0..times {
                    let due = refill.reserve(turnout, axis, REFUSED, Some).unwrap_or(axis);
                    nonce += 1;
                    if nonce % every == 0 {
                        *waiting.entry(due).or_default() += 1;
                    }
                }
                refill.unclaimed(turnout, axis, GRACE);
                axis.is_multiple_of(GRACE).then(|| refill.ahead(axis))
            })
            .collect()
    }

    #[test]
    fn a_flood_that_forgets_its_tickets_makes_nobody_wait_for_long() {
        // So many times the refill, of which one in so many comes back.
        for (times, every) in [(10, 20), (120, 400), (1_000, 10_000), (1_000, 1_000_000)] {
            let (refill, turnout) = (ReservedRefill::none(0), Turnout::full(0));
            let ahead = serve(&refill, &turnout, 100, times, every);
            let most = ahead.iter().max();
            // Before anything has lapsed all of them may come.
            assert!(most <= Some(&(2 * times * GRACE)), "{ahead:?}");
            assert!(
                ahead[32..].iter().all(|ahead| *ahead <= 5 * GRACE),
                "{times} {every} {ahead:?}"
            );
        }
    }

    #[test]
    fn a_crowd_that_comes_back_is_told_the_truth() {
        let (refill, turnout) = (ReservedRefill::none(0), Turnout::full(0));
        let ahead = serve(&refill, &turnout, 50, 1, 1);
        assert_eq!(turnout.share.load(Relaxed), WHOLE, "{ahead:?}");
    }

    #[test]
    fn trust_comes_back_where_the_crowd_does_and_where_nobody_waits() {
        let (refill, turnout) = (ReservedRefill::none(0), Turnout::full(0));
        serve(&refill, &turnout, 50, 10, 1_000_000);
        assert!(turnout.share.load(Relaxed) < WHOLE / 16);
        serve(&refill, &turnout, 50, 1, 1);
        assert!(turnout.share.load(Relaxed) > WHOLE / 2);
        serve(&refill, &turnout, 50, 10, 1_000_000);
        for second in 0..20 {
            let axis = turnout.looked_at.load(Relaxed) + (second + 1) * 10 * GRACE;
            refill.follow(&turnout, axis, GRACE);
        }
        assert_eq!(turnout.share.load(Relaxed), WHOLE);
    }

    #[test]
    fn what_would_begin_too_late_is_not_reserved() {
        let (refill, turnout) = (ReservedRefill::none(0), Turnout::full(0));
        let near = |ahead| (ahead <= 2 * COST).then_some(ahead);
        let reserved: Vec<_> = (0..4)
            .map(|_| refill.reserve(&turnout, 0, REFUSED, near))
            .collect();
        assert_eq!(reserved, [Some(0), Some(COST), Some(2 * COST), None]);
    }
}
