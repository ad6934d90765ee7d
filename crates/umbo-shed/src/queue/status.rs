//! How things stand at a gate, for operators.

use std::time::Duration;

use umbo_types::{Criticality, RequestUnits};

use super::verdict::Why;

/// What became of those who had to wait; each only grows. Who found a slot free is not counted here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Had to wait.
    pub queued: u64,
    /// Got a slot after waiting.
    pub served: u64,
    /// Got one past higher tiers, by the floor of their own; among `served`.
    pub served_by_floor: u64,
    /// Were shed, in the order of [`Why::ALL`]; also those who did not get to wait.
    pub shed: [u64; Why::ALL.len()],
    /// Had their deadline pass.
    pub expired: u64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.queued += other.queued;
        self.served += other.served;
        self.served_by_floor += other.served_by_floor;
        self.expired += other.expired;
        for (shed, other) in self.shed.iter_mut().zip(other.shed) {
            *shed += other;
        }
    }
}

/// One tier at a gate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierStatus {
    /// How many wait.
    pub waiting: usize,
    /// For how long the oldest of them has waited; zero where nobody waits.
    pub oldest: Duration,
    /// For how long the tier has been overloaded; `None` where it is not.
    pub overloaded_for: Option<Duration>,
    /// What became of the others.
    pub tally: Tally,
}

/// A gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateStatus {
    /// Slots there are now.
    pub limit: u32,
    /// Slots that are taken; more than there are for a while after the limit fell.
    pub in_flight: u32,
    /// What the estimates of those who wait come to.
    pub work: RequestUnits,
    /// By how much the runtime ran late at the last tick.
    pub lag: Duration,
    /// The tiers, in the order of [`Criticality::ALL`].
    pub tiers: [TierStatus; Criticality::ALL.len()],
}

impl GateStatus {
    /// Returns how things stand at two gates of one shard together.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.limit = self.limit.saturating_add(other.limit);
        self.in_flight = self.in_flight.saturating_add(other.in_flight);
        self.work = self.work.saturating_add(other.work);
        self.lag = self.lag.max(other.lag);
        for (tier, other) in self.tiers.iter_mut().zip(&other.tiers) {
            tier.waiting += other.waiting;
            tier.oldest = tier.oldest.max(other.oldest);
            tier.overloaded_for = tier.overloaded_for.max(other.overloaded_for);
            tier.tally.add(&other.tally);
        }
        self
    }

    /// Returns how many wait.
    pub fn waiting(&self) -> usize {
        self.tiers.iter().map(|tier| tier.waiting).sum()
    }

    /// Says whether any tier is overloaded.
    pub fn is_overloaded(&self) -> bool {
        self.tiers.iter().any(|tier| tier.overloaded_for.is_some())
    }
}
