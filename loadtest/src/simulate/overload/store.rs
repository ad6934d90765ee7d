//! A simulated shard: some workers, a crowd that waits for them, and what can go wrong with it.
//!
//! Service times are those of an unloaded worker, times how slow the shard is just now, times what a
//! crowd costs: a store that has more to do than it can do gets less done (locks, caches, merges). Writes
//! are gathered and take no worker.

use std::collections::VecDeque;

use crate::random::Random;

/// How service times are spread around their mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spread {
    /// Half of the mean, and an exponential number with the other half as its mean.
    Usual,
    /// Exponential.
    Wide,
    /// Of fifty requests 49 take half the mean, and one the rest.
    Bimodal,
}

impl Spread {
    /// Draws a service time as a multiple of the mean.
    pub(crate) fn draw(self, random: &mut Random) -> f64 {
        match self {
            Self::Usual => 0.5 + 0.5 * random.exponential(),
            Self::Wide => random.exponential(),
            Self::Bimodal if random.below(50) == 0 => 25.5,
            Self::Bimodal => 0.5,
        }
    }
}

/// A time in which a shard is not itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Trouble {
    /// It does nothing.
    Stall,
    /// All takes so many times longer.
    Slow(f64),
}

/// Which shards are in trouble, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Incident {
    pub(crate) trouble: Trouble,
    /// The shards below this one.
    pub(crate) shards: usize,
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
}

/// One shard.
#[derive(Debug)]
pub(crate) struct Store {
    workers: usize,
    /// What one request beyond the workers adds to the time of all, in parts of the workers.
    degradation: f64,
    incident: Option<Incident>,
    busy: usize,
    crowd: VecDeque<u32>,
}

impl Store {
    pub(crate) fn new(workers: usize, degradation: f64, incident: Option<Incident>) -> Self {
        Self {
            workers,
            degradation,
            incident,
            busy: 0,
            crowd: VecDeque::new(),
        }
    }

    /// Takes a request. It is begun at once if a worker is free.
    pub(crate) fn take(&mut self, request: u32) -> Option<u32> {
        if self.busy < self.workers {
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

    /// Returns when a request ends that is begun now and takes so long by itself.
    pub(crate) fn end_ns(&self, now_ns: u64, service_ns: f64) -> u64 {
        let beyond = self.crowd.len() as f64 / self.workers as f64;
        self.commit_ns(now_ns, service_ns * (1.0 + self.degradation * beyond))
    }

    /// Returns when a write ends that is begun now: those that are done at once are done together.
    pub(crate) fn commit_ns(&self, now_ns: u64, service_ns: f64) -> u64 {
        match self.incident {
            Some(incident) if (incident.from_ns..incident.to_ns).contains(&now_ns) => {
                match incident.trouble {
                    Trouble::Stall => incident.to_ns + service_ns as u64,
                    Trouble::Slow(times) => now_ns + (service_ns * times) as u64,
                }
            }
            _ => now_ns + service_ns as u64,
        }
    }

    /// Returns when something that was to end now does end: later, where the shard fell asleep.
    pub(crate) fn delayed_ns(&self, now_ns: u64) -> Option<u64> {
        let incident = self.incident?;
        let is_asleep = incident.trouble == Trouble::Stall
            && (incident.from_ns..incident.to_ns).contains(&now_ns);
        is_asleep.then(|| incident.to_ns + now_ns - incident.from_ns)
    }
}
