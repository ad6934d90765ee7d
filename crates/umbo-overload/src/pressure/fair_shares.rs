//! Fair shares of a shard's busy time.
//!
//! The busy time of each caller, by tier, is added up for a second. The fair share of a caller is the capacity of the
//! shard divided by the callers of the second before; the capacity is the longest busy second of the last minutes. All
//! tiers of a caller together are above its share or below it, and a caller alone has no share to exceed: the queue
//! sheds its lowest tier. While an overload is held against a tier, its callers may use a part of their share: a tenth
//! of it more with each tick of the second. Umbo's own work is of no caller.
//!
//! The excess of a held caller counts in its next second too. So a caller whose every request takes longer than its
//! part of a second has one request in several seconds.
//!
//! A cell belongs to one caller of one tier for a second, so that no caller answers for another. A caller that finds
//! no free cell is not judged. Recording and asking take no lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use umbo_types::Criticality;

use super::settings::TICK;
use crate::estimate::SLICE;
use crate::flow::SPREAD;

const TIERS: usize = Criticality::ALL.len();
/// Callers of a tier that are told apart: one for each value of a byte.
const CELLS: usize = 1 << u8::BITS;
/// Cells that a caller may have: with half of all cells taken, one caller in sixteen finds no free cell.
const PROBES: usize = 4;
/// Bits of a cell that hold busy time, in nanoseconds: more than two hours.
const BUSY_BITS: u32 = 43;
/// Bit of a cell whose caller was refused.
const REFUSED: u64 = 1 << BUSY_BITS;
/// The busy time in a cell.
const BUSY: u64 = REFUSED - 1;
/// The tag of the caller in a cell: 20 bits.
const TAG: u64 = !(REFUSED | BUSY);
/// Longest busy time that is added at once, far below the room of a cell.
const BUSY_MAX: Duration = Duration::from_mins(1);
/// Part of the capacity that a second leaves: a mean age of a minute.
const CAPACITY_KEPT: f64 = 1.0 - 1.0 / 60.0;
/// Fewest callers between whom a shard is shared.
const CALLERS_MIN: u64 = 2;
/// Stands for a share or an allowance that does not exist.
const UNBOUNDED: u64 = u64::MAX;

/// The cells of each tier in one second.
type CallerCells = [[AtomicU64; CELLS]; TIERS];

/// The busy time of one shard by tier and caller.
#[derive(Debug)]
pub(crate) struct FairShares {
    /// Cells of the second under way and of the second before, by the parity of their numbers.
    cells: [CallerCells; 2],
    /// Number of the second under way.
    slice: AtomicU64,
    /// Longest busy second of late, in nanoseconds.
    capacity: AtomicU64,
    /// The fair share of each caller, in nanoseconds of a second.
    share: AtomicU64,
    /// Callers of the second before, and their busy time in nanoseconds.
    callers: AtomicU64,
    busy: AtomicU64,
    /// Busy time of this second that callers used before it, in nanoseconds.
    debts: AtomicU64,
    /// Allowances of callers above their share, by tier, and of all callers, by tier.
    allowances: [[Allowance; TIERS]; 2],
    /// Number of the last second with a refusal of a caller of each tier that is not above its share.
    refused_in: [AtomicU64; TIERS],
}

/// Busy time that a caller may use, in nanoseconds.
#[derive(Debug)]
struct Allowance {
    /// In a second.
    rate: AtomicU64,
    /// Up to the next tick of this second.
    now: AtomicU64,
}

impl Allowance {
    const fn unbounded() -> Self {
        Self {
            rate: AtomicU64::new(UNBOUNDED),
            now: AtomicU64::new(UNBOUNDED),
        }
    }

    /// Returns how long a caller has to stay away that has used this much, or `None` if it may use more.
    fn wait(&self, used: u64) -> Option<Duration> {
        let over = Duration::from_nanos(used.checked_sub(self.now.load(Relaxed))?);
        let rate = Duration::from_nanos(self.rate.load(Relaxed).max(1));
        let seconds = over.div_duration_f64(rate).min(1.0);
        Some((TICK + SLICE.mul_f64(seconds)).min(SLICE))
    }

    fn set(&self, rate: Option<Duration>, part_of_second: f64) {
        let nanos = |time: Option<Duration>| time.map_or(UNBOUNDED, |time| time.as_nanos() as u64);
        let now = rate.map(|rate| rate.mul_f64(part_of_second));
        self.now.store(nanos(now), Relaxed);
        self.rate.store(nanos(rate), Relaxed);
    }
}

/// Which callers [`FairShares::hold`] holds to a part of the fair share.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct HeldParts {
    /// Callers of each tier above their share.
    pub(crate) above: [Option<f64>; TIERS],
    /// All of each tier.
    pub(crate) all: [Option<f64>; TIERS],
}

/// The findings of a tick about the callers of each tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Excess {
    /// Tiers whose callers above their fair share are to be reached.
    pub(crate) above: [bool; TIERS],
    /// Tiers with other callers that were refused within the last two seconds.
    pub(crate) refused: [bool; TIERS],
}

/// The shares of one shard, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareReport {
    /// Longest busy second of late: the capacity of the shard in busy time a second, unless it never was busy.
    pub capacity: Duration,
    /// Busy time of the second before.
    pub busy: Duration,
    /// Callers of the second before.
    pub callers: u64,
    /// The fair share of each, in busy time a second. `None` with fewer than two callers.
    pub share: Option<Duration>,
    /// Busy time a second that callers of each tier above their share, or all of them, are held to, lowest tier first.
    /// `None` for a tier whose callers are not held to any.
    pub held_to: [Option<Duration>; TIERS],
}

impl FairShares {
    pub(crate) fn new() -> Self {
        let cells = || std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0)));
        let unbounded = || std::array::from_fn(|_| Allowance::unbounded());
        Self {
            cells: [cells(), cells()],
            slice: AtomicU64::new(1),
            capacity: AtomicU64::new(0),
            share: AtomicU64::new(UNBOUNDED),
            callers: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            debts: AtomicU64::new(0),
            allowances: [unbounded(), unbounded()],
            refused_in: Default::default(),
        }
    }

    /// Adds busy time of a caller. Work without a caller is not counted.
    #[inline]
    pub(crate) fn add(&self, tier: Criticality, caller: impl Into<Option<u64>>, busy: Duration) {
        if let Some((_, cell)) = (caller.into()).and_then(|caller| self.claim(tier, caller)) {
            cell.fetch_add(busy.min(BUSY_MAX).as_nanos() as u64, Relaxed);
        }
    }

    /// Returns how long a caller has to stay away if it has used the part that it is held to.
    #[cold]
    pub(crate) fn refusal(&self, tier: Criticality, caller: u64) -> Option<Duration> {
        let (at, cell) = self.claim(tier, caller)?;
        let used = cell.load(Relaxed);
        let [above, all] = self
            .allowances
            .each_ref()
            .map(|tiers| &tiers[tier as usize]);
        let (of_all_tiers, _) = self.of_all_tiers(self.slice.load(Relaxed), at, used);
        if let Some(wait) = above.wait(of_all_tiers)
            && self.is_above(tier, caller)
        {
            cell.fetch_or(REFUSED, Relaxed);
            return Some(wait);
        }
        let wait = all.wait(used & BUSY)?;
        let second = self.slice.load(Relaxed);
        self.refused_in[tier as usize].store(second, Relaxed);
        Some(wait)
    }

    /// Returns whether callers of a tier are held to a part of their shares. Two relaxed loads.
    #[inline]
    pub(crate) fn is_held(&self, tier: Criticality) -> bool {
        let mut allowances = self.allowances.iter().map(|tiers| &tiers[tier as usize]);
        allowances.any(|allowance| allowance.now.load(Relaxed) != UNBOUNDED)
    }

    /// Returns whether a caller has more than its fair share, or was refused for that within the last two seconds.
    pub(crate) fn is_above(&self, tier: Criticality, caller: u64) -> bool {
        let (slice, share) = (self.slice.load(Relaxed), self.share.load(Relaxed));
        let seconds = [slice, slice.wrapping_sub(1)];
        let mut cells = seconds.into_iter().filter_map(|slice| {
            let (mut probes, tag) = self.probes(slice, tier, caller);
            let (at, cell) = probes.find(|(_, cell)| cell.load(Relaxed) & TAG == tag)?;
            Some((slice, at, cell.load(Relaxed)))
        });
        cells.any(|(slice, at, cell)| self.is_cell_above(slice, at, cell, share))
    }

    /// Returns which tiers have callers with too much. Callers above their share are to be reached if their busy time
    /// reaches the sum of all lower tiers: so a crowd of small callers does not turn the measures against a large
    /// caller of a higher tier.
    pub(crate) fn excess(&self) -> Excess {
        let (slice, share) = (self.slice.load(Relaxed), self.share.load(Relaxed));
        let mut lower = 0;
        let above = std::array::from_fn(|tier| {
            let (mut has_above, mut above, mut all) = (false, 0, 0);
            let seconds = [slice, slice.wrapping_sub(1)].into_iter();
            let cells =
                seconds.flat_map(|second| self.taken(second, tier).map(move |it| (second, it)));
            for (second, (at, cell)) in cells {
                let is_one = self.is_cell_above(second, at, cell, share);
                has_above |= is_one;
                above += if is_one { cell & BUSY } else { 0 };
                all += cell & BUSY;
            }
            let is_reached = has_above && above >= lower;
            lower += all;
            is_reached
        });
        let refused_in = self.refused_in.each_ref();
        Excess {
            above,
            refused: refused_in.map(|second| second.load(Relaxed) + 1 >= slice),
        }
    }

    /// Begins the next second; only the tick calls it. While a tier is held to its shares the capacity does not fall,
    /// because it is not used in full.
    pub(crate) fn turn(&self) {
        let slice = self.slice.load(Relaxed);
        let cells = self.cells_of(slice).iter().flatten();
        let busy: u64 = cells.map(|cell| cell.load(Relaxed) & BUSY).sum();
        let busy = busy.saturating_sub(self.debts.load(Relaxed));
        let callers = self.callers_of(slice);
        let is_held = Criticality::ALL.into_iter().any(|tier| self.is_held(tier));
        let kept = if is_held { 1.0 } else { CAPACITY_KEPT };
        let capacity = Duration::from_nanos(self.capacity.load(Relaxed)).mul_f64(kept);
        let capacity = busy.max(capacity.as_nanos() as u64);
        let share = if callers >= CALLERS_MIN {
            capacity / callers
        } else {
            UNBOUNDED
        };
        self.capacity.store(capacity, Relaxed);
        self.callers.store(callers, Relaxed);
        self.busy.store(busy, Relaxed);
        self.share.store(share, Relaxed);
        let tiers = self.cells_of(slice).iter().zip(self.cells_of(slice + 1));
        let mut debts = 0;
        for (tier, (before, next)) in tiers.enumerate() {
            let [of_above, of_all] =
                (self.allowances.each_ref()).map(|tiers| tiers[tier].rate.load(Relaxed));
            for (at, (before, next)) in before.iter().zip(next).enumerate() {
                let cell = before.load(Relaxed);
                let rate = if self.is_cell_above(slice, at, cell, share) {
                    of_above.min(of_all)
                } else {
                    of_all
                };
                let debt = (cell & BUSY).saturating_sub(rate);
                let carried = if debt > 0 {
                    cell & (TAG | REFUSED) | debt
                } else {
                    0
                };
                next.store(carried, Relaxed);
                debts += debt;
            }
        }
        self.debts.store(debts, Relaxed);
        self.slice.store(slice + 1, Relaxed);
    }

    /// Holds callers to parts of the fair share. `elapsed` is the part of the second that is over. Only the tick calls
    /// it.
    pub(crate) fn hold(&self, parts: &HeldParts, elapsed: Duration) {
        let share = self.share.load(Relaxed);
        let part_of_second = (elapsed + TICK).min(SLICE).as_secs_f64() / SLICE.as_secs_f64();
        let parts = [parts.above, parts.all].into_iter().flatten();
        for (allowance, part) in self.allowances.iter().flatten().zip(parts) {
            let part = part.filter(|_| share != UNBOUNDED);
            let rate = part.map(|part| Duration::from_nanos(share).mul_f64(part));
            allowance.set(rate, part_of_second);
        }
    }

    /// Returns the number of callers of each tier, all tiers together, in the second before, or in this second if they
    /// are more.
    pub(crate) fn callers_by_tier(&self) -> u64 {
        let slice = self.slice.load(Relaxed);
        self.parts_of(slice)
            .max(self.parts_of(slice.wrapping_sub(1)))
    }

    fn parts_of(&self, slice: u64) -> u64 {
        let taken = (0..TIERS).map(|tier| self.taken(slice, tier).count());
        taken.sum::<usize>() as u64
    }

    /// Returns the number of callers in a second, each once, whatever its tiers.
    fn callers_of(&self, slice: u64) -> u64 {
        let is_first = |tier: usize, at: usize, cell: u64| {
            (0..tier).all(|lower| self.cell_of(slice, lower, at, cell).is_none())
        };
        let tiers = (0..TIERS).flat_map(|tier| self.taken(slice, tier).map(move |it| (tier, it)));
        let firsts = tiers.filter(|&(tier, (at, cell))| is_first(tier, at, cell));
        firsts.count() as u64
    }

    /// Returns the cells of a tier that are taken, with their places.
    fn taken(&self, slice: u64, tier: usize) -> impl Iterator<Item = (usize, u64)> {
        let cells = self.cells_of(slice)[tier].iter().enumerate();
        let cells = cells.map(|(at, cell)| (at, cell.load(Relaxed)));
        cells.filter(|(_, cell)| *cell != 0)
    }

    /// Returns what the cell of a caller in a tier has, or `None` without one. `cell` is its cell at `at` in some tier:
    /// the others are not far from there.
    fn cell_of(&self, slice: u64, tier: usize, at: usize, cell: u64) -> Option<u64> {
        let cells = &self.cells_of(slice)[tier];
        let from = at + CELLS - (PROBES - 1);
        let near = (0..2 * PROBES - 1).map(|step| cells[(from + step) % CELLS].load(Relaxed));
        let mut its = near.filter(|other| *other != 0 && other & TAG == cell & TAG);
        its.next()
    }

    /// Returns the busy time of the caller of a cell, all tiers together, and whether it was refused in one of them.
    fn of_all_tiers(&self, slice: u64, at: usize, cell: u64) -> (u64, bool) {
        let tiers = (0..TIERS).filter_map(|tier| self.cell_of(slice, tier, at, cell));
        tiers.fold((0, false), |(busy, refused), cell| {
            (busy + (cell & BUSY), refused || cell & REFUSED != 0)
        })
    }

    /// Returns whether the caller of a cell has more than its share or was refused for that.
    fn is_cell_above(&self, slice: u64, at: usize, cell: u64, share: u64) -> bool {
        let (busy, was_refused) = self.of_all_tiers(slice, at, cell);
        cell != 0 && (was_refused || busy > share)
    }

    /// Returns the state for people.
    pub(crate) fn report(&self) -> ShareReport {
        let bounded = |nanos: u64| (nanos != UNBOUNDED).then(|| Duration::from_nanos(nanos));
        let held_to = |tier: usize| {
            let rates = self.allowances.iter().map(|tiers| &tiers[tier].rate);
            let least = rates.map(|rate| rate.load(Relaxed)).min();
            bounded(least.unwrap_or(UNBOUNDED))
        };
        ShareReport {
            capacity: Duration::from_nanos(self.capacity.load(Relaxed)),
            busy: Duration::from_nanos(self.busy.load(Relaxed)),
            callers: self.callers.load(Relaxed),
            share: bounded(self.share.load(Relaxed)),
            held_to: std::array::from_fn(held_to),
        }
    }

    /// Returns the cell of a caller in this second, and its place; takes a free one if there is no such cell.
    fn claim(&self, tier: Criticality, caller: u64) -> Option<(usize, &AtomicU64)> {
        let (mut probes, tag) = self.probes(self.slice.load(Relaxed), tier, caller);
        probes.find(|(_, cell)| match cell.load(Relaxed) {
            0 => match cell.compare_exchange(0, tag, Relaxed, Relaxed) {
                Ok(_) => true,
                Err(taken) => taken & TAG == tag,
            },
            taken => taken & TAG == tag,
        })
    }

    /// Returns the cells that a caller may have, with their places, and its tag, which is not 0.
    fn probes(
        &self,
        slice: u64,
        tier: Criticality,
        caller: u64,
    ) -> (impl Iterator<Item = (usize, &AtomicU64)>, u64) {
        let spread = caller.wrapping_mul(SPREAD);
        let tag = (spread & TAG).max(REFUSED << 1);
        let first = (spread >> (BUSY_BITS - u8::BITS)) as usize;
        let cells = &self.cells_of(slice)[tier as usize];
        let places = (0..PROBES).map(move |probe| (first + probe) % CELLS);
        let probes = places.map(move |at| (at, &cells[at]));
        (probes, tag)
    }

    fn cells_of(&self, slice: u64) -> &CallerCells {
        &self.cells[slice as usize % self.cells.len()]
    }
}

#[cfg(test)]
mod tests;
