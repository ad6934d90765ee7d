//! The state of a queue, for operators.

use std::time::Duration;

use umbo_types::{Criticality, RequestUnits};

use super::admission::ShedReason;

/// Outcomes of the requests that had to wait; each only grows. A request that found a permit free is not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierCounts {
    /// Had to wait.
    pub queued: u64,
    /// Got a permit after waiting.
    pub served: u64,
    /// Got a permit past higher tiers, by the floor of their tier; among `served`.
    pub served_by_floor: u64,
    /// Were shed, in the order of [`ShedReason::ALL`]; requests shed at the entry too.
    pub shed: [u64; ShedReason::ALL.len()],
    /// Had their deadline pass.
    pub expired: u64,
}

impl TierCounts {
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

/// One tier at a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierStatus {
    /// Number of waiting requests.
    pub waiting: usize,
    /// For how long the oldest of them has waited; zero if no request waits.
    pub oldest: Duration,
    /// For how long the tier has been overloaded; `None` if it is not.
    pub overloaded_for: Option<Duration>,
    /// Outcomes of earlier requests.
    pub counts: TierCounts,
}

/// A queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QueueStatus {
    /// Permits that there are now.
    pub limit: u32,
    /// Permits that are out; for a while after the limit fell, more than `limit`.
    pub in_flight: u32,
    /// Sum of the estimates of the requests that wait.
    pub work: RequestUnits,
    /// By how much the runtime ran late at the last tick.
    pub lag: Duration,
    /// The greatest delay of an overloaded tier, in multiples of its target; 0 if no tier is overloaded.
    pub delay_times: f64,
    /// Lag in multiples of its target; 0 if nothing was shed for it in the last interval.
    pub lag_times: f64,
    /// The tiers, in the order of [`Criticality::ALL`].
    pub tiers: [TierStatus; Criticality::ALL.len()],
}

impl QueueStatus {
    /// Returns the state of two queues of one shard together.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.limit = self.limit.saturating_add(other.limit);
        self.in_flight = self.in_flight.saturating_add(other.in_flight);
        self.work = self.work.saturating_add(other.work);
        self.lag = self.lag.max(other.lag);
        self.delay_times = self.delay_times.max(other.delay_times);
        self.lag_times = self.lag_times.max(other.lag_times);
        for (tier, other) in self.tiers.iter_mut().zip(&other.tiers) {
            tier.waiting += other.waiting;
            tier.oldest = tier.oldest.max(other.oldest);
            tier.overloaded_for = tier.overloaded_for.max(other.overloaded_for);
            tier.counts.add(&other.counts);
        }
        self
    }

    /// Returns the number of waiting requests.
    pub fn waiting(&self) -> usize {
        self.tiers.iter().map(|tier| tier.waiting).sum()
    }

    /// Returns whether any tier is overloaded.
    pub fn is_overloaded(&self) -> bool {
        self.tiers.iter().any(|tier| tier.overloaded_for.is_some())
    }
}
