//! Which callers have more than their fair share of a shard's present work.
//!
//! What the quotas charge is added up by tier and caller for a second, and the second before is compared:
//! the fair share of a tier is its work divided by its callers. Callers are distinguished by their flow, which
//! changes every second. Recording and asking take no lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use umbo_types::{Criticality, RequestUnits};

use crate::flow::{FLOWS, flow_of};

/// The work of each flow of each tier, in micro-RU.
type FlowWork = [[AtomicU64; FLOWS]; Criticality::ALL.len()];

/// The work of one shard by tier and caller.
#[derive(Debug)]
pub(crate) struct FairShares {
    /// Of the second under way and of the one before, by the parity of its number.
    cells: [FlowWork; 2],
    /// Number of the second under way.
    slice: AtomicU64,
    /// The fair share of each tier in the second before.
    fair: [AtomicU64; Criticality::ALL.len()],
}

impl FairShares {
    pub(crate) fn new() -> Self {
        let cells = || std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0)));
        Self {
            cells: [cells(), cells()],
            slice: AtomicU64::new(1),
            fair: std::array::from_fn(|_| AtomicU64::new(u64::MAX)),
        }
    }

    /// Adds work that was charged.
    #[inline]
    pub(crate) fn add(&self, tier: Criticality, caller: u64, charged: RequestUnits) {
        let slice = self.slice.load(Relaxed);
        let cell = self.cell(slice, tier, caller);
        cell.fetch_add(charged.as_micros(), Relaxed);
    }

    /// Returns whether a caller had more than its fair share in the second before.
    pub(crate) fn is_above(&self, tier: Criticality, caller: u64) -> bool {
        let before = self.slice.load(Relaxed).wrapping_sub(1);
        let had = self.cell(before, tier, caller).load(Relaxed);
        had > self.fair[tier as usize].load(Relaxed)
    }

    /// Begins the next second; only the tick does.
    pub(crate) fn turn(&self) {
        let slice = self.slice.load(Relaxed);
        for (tier, fair) in self.cells_of(slice).iter().zip(&self.fair) {
            let had = tier.iter().map(|cell| cell.load(Relaxed));
            let (sum, callers) = had.fold((0, 0), |(sum, callers), had| {
                (sum + had, callers + u64::from(had > 0))
            });
            fair.store(sum.checked_div(callers).unwrap_or(u64::MAX), Relaxed);
        }
        for cell in self.cells_of(slice + 1).iter().flatten() {
            cell.store(0, Relaxed);
        }
        self.slice.store(slice + 1, Relaxed);
    }

    fn cell(&self, slice: u64, tier: Criticality, caller: u64) -> &AtomicU64 {
        &self.cells_of(slice)[tier as usize][usize::from(flow_of(caller, slice))]
    }

    fn cells_of(&self, slice: u64) -> &FlowWork {
        &self.cells[slice as usize % self.cells.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIER: Criticality = Criticality::SheddablePlus;

    fn units(units: u64) -> RequestUnits {
        RequestUnits::from_micros(units * 1_000_000)
    }

    #[test]
    fn who_has_more_than_the_mean_is_above_its_share_for_the_next_second() {
        let shares = FairShares::new();
        for (caller, had) in [(1, 10), (2, 10), (3, 100)] {
            shares.add(TIER, caller, units(had));
        }
        assert!(!shares.is_above(TIER, 3), "the second is not over");
        shares.turn();
        assert!(shares.is_above(TIER, 3));
        assert!(!shares.is_above(TIER, 9) && !shares.is_above(Criticality::Sheddable, 3));
        shares.turn();
        assert!(!shares.is_above(TIER, 3), "it has asked for nothing since");
    }

    #[test]
    fn one_caller_alone_and_equal_callers_have_their_share() {
        let shares = FairShares::new();
        shares.add(TIER, 7, units(1_000));
        shares.turn();
        assert!(!shares.is_above(TIER, 7));
        shares.add(TIER, 1, units(5));
        shares.add(TIER, 2, units(5));
        shares.turn();
        assert!(!shares.is_above(TIER, 1) && !shares.is_above(TIER, 2));
    }
}
