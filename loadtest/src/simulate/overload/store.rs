//! A simulated shard: some workers, a crowd that waits for them, and what can go wrong with it.
//!
//! Service times are those of an unloaded worker, times how slow the shard is just now, times what a
//! crowd costs: a store that has more to do than it can do gets less done (locks, caches, merges). Either
//! a worker does one request after the other, or all go on at once and share what the workers do. Writes
//! are gathered and take no worker.

use std::collections::VecDeque;

use super::behaviour::{Incident, Sharing, Trouble};
use super::scenario::Scenario;

/// One shard.
#[derive(Debug)]
pub(crate) struct Store {
    workers: usize,
    sharing: Sharing,
    /// What one request beyond the workers adds to the time of all, in parts of the workers.
    degradation: f64,
    incident: Option<Incident>,
    busy: usize,
    crowd: VecDeque<u32>,
}

impl Store {
    /// Makes the shard of this number.
    pub(crate) fn new(scenario: &Scenario, shard: usize) -> Self {
        Self {
            workers: scenario.workers,
            sharing: scenario.sharing,
            degradation: scenario.degradation,
            incident: scenario.incident.filter(|incident| shard < incident.shards),
            busy: 0,
            crowd: VecDeque::new(),
        }
    }

    /// Takes a request. It is begun at once if a worker is free.
    pub(crate) fn take(&mut self, request: u32) -> Option<u32> {
        if self.busy < self.workers || self.sharing == Sharing::AtOnce {
            self.busy += 1;
            return Some(request);
        }
        self.crowd.push_back(request);
        None
    }

    /// Ends a request; returns the one that is begun in its place.
    pub(crate) fn end(&mut self) -> Option<u32> {
        let next = self.crowd.pop_front();
        if next.is_none() {
            self.busy -= 1;
        }
        next
    }

    /// Returns when a request ends that is begun now, or gets on, and takes so long still by itself; and
    /// how much of that is left by then.
    pub(crate) fn goes_on(&self, now_ns: u64, left_ns: f64, step_ns: f64) -> (u64, f64) {
        match self.sharing {
            Sharing::InTurn => (self.end_ns(now_ns, left_ns), 0.0),
            Sharing::AtOnce => {
                let crowding = (self.busy as f64 / self.workers as f64).max(1.0);
                let cost = 1.0 + self.degradation * (crowding - 1.0);
                let slowness = crowding * cost * self.slowness(now_ns);
                let length_ns = (left_ns * slowness).min(step_ns);
                (now_ns + length_ns as u64, left_ns - length_ns / slowness)
            }
        }
    }

    /// Returns when a request ends that is begun now and takes so long by itself.
    fn end_ns(&self, now_ns: u64, service_ns: f64) -> u64 {
        let beyond = self.crowd.len() as f64 / self.workers as f64;
        self.commit_ns(now_ns, service_ns * (1.0 + self.degradation * beyond))
    }

    /// Returns when a write ends that is begun now: those that are done at once are done together.
    pub(crate) fn commit_ns(&self, now_ns: u64, service_ns: f64) -> u64 {
        match self.incident_now(now_ns) {
            Some(Incident {
                trouble: Trouble::Stall,
                to_ns,
                ..
            }) => to_ns + service_ns as u64,
            _ => now_ns + (service_ns * self.slowness(now_ns)) as u64,
        }
    }

    fn incident_now(&self, now_ns: u64) -> Option<Incident> {
        let is_now = |incident: &Incident| (incident.from_ns..incident.to_ns).contains(&now_ns);
        self.incident.filter(is_now)
    }

    /// Returns how many times longer all takes now, but for a stall.
    fn slowness(&self, now_ns: u64) -> f64 {
        match self.incident_now(now_ns).map(|incident| incident.trouble) {
            Some(Trouble::Slow(times)) => times,
            Some(Trouble::Stall) | None => 1.0,
        }
    }

    /// Returns when something that was to end now does end: later, where the shard fell asleep.
    pub(crate) fn delayed_ns(&self, now_ns: u64) -> Option<u64> {
        let incident = self.incident_now(now_ns)?;
        let is_asleep = incident.trouble == Trouble::Stall;
        is_asleep.then(|| incident.to_ns + now_ns - incident.from_ns)
    }
}
