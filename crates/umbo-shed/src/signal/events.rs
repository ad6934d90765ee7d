//! The log of engagements: when a shard was overloaded, why, for how long, and what it cost.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use umbo_types::{Criticality, ShardId};

use super::class::Class;
use super::ladder::TIERS;

/// One overload of one shard, from the first tick of it to the last of its penalty.
#[derive(Debug, Clone, PartialEq)]
pub struct Engagement {
    /// Number of the engagement, from 1.
    pub number: u64,
    /// The shard.
    pub shard: ShardId,
    /// The class whose ratio engaged first.
    pub class: Class,
    /// The highest tier that was penalised; none before the first tick of the penalty.
    pub tier_max: Option<Criticality>,
    /// The latency ratio that engaged.
    pub ratio: f64,
    /// The lowest ratio since.
    pub ratio_min: f64,
    /// p95 of the last second or two, when it engaged.
    pub p95_short: Duration,
    /// Normal p95 then.
    pub p95_long: Duration,
    /// When it engaged.
    pub started: Instant,
    /// When the ratio of every class was released, after the last penalty was lifted; none while it
    /// goes on.
    pub ended: Option<Instant>,
    /// Requests shed by the penalty, by tier, lowest first.
    pub shed: [u64; TIERS],
}

impl Engagement {
    /// Returns how long it has lasted.
    pub fn duration(&self, now: Instant) -> Duration {
        let end = self.ended.unwrap_or(now);
        end.saturating_duration_since(self.started)
    }

    /// Returns the requests shed, all tiers together.
    pub fn shed_total(&self) -> u64 {
        self.shed.iter().sum()
    }
}

/// Engagements that have ended, the last ones.
#[derive(Debug)]
pub(crate) struct Log {
    ended: VecDeque<Engagement>,
    events_max: usize,
    begun: u64,
}

impl Log {
    /// Makes an empty log.
    pub(crate) const fn new(events_max: usize) -> Self {
        Self {
            ended: VecDeque::new(),
            events_max,
            begun: 0,
        }
    }

    /// Returns the number of the next engagement.
    pub(crate) const fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }

    /// Returns how many engagements there were, with those that go on.
    pub(crate) const fn begun(&self) -> u64 {
        self.begun
    }

    /// Remembers one that has ended; the oldest makes room.
    pub(crate) fn end(&mut self, engagement: Engagement) {
        self.ended.push_back(engagement);
        while self.ended.len() > self.events_max {
            self.ended.pop_front();
        }
    }

    /// Returns those that have ended, newest first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &Engagement> {
        self.ended.iter().rev()
    }
}
