//! The bucket that every limiter is held against: exact, continuous, and knowing every cost.
//!
//! It refills at every nanosecond, learns nothing too late, and serves a part of a request where
//! there is not enough for all of it. What it serves is therefore the most that any limiter of this
//! rate and burst may admit of a demand, to within one request and what it could not know; and a
//! limiter that admits less has left over something that was asked for. Where the demand exceeds
//! the rate throughout, it serves the rate.

use super::arrivals::SECOND_NS;

/// Rate and burst of one caller on one pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quota {
    /// Micro-RU a second.
    pub(crate) rate: u64,
    /// Micro-RU.
    pub(crate) burst: u64,
}

/// The bucket. All its numbers are whole: a level is in micro-RU times nanoseconds a second.
#[derive(Debug)]
pub(crate) struct Ideal {
    quota: Quota,
    level: u128,
    at_ns: u64,
}

impl Ideal {
    /// Makes a full bucket at the beginning of time.
    pub(crate) fn full(quota: Quota) -> Self {
        Self {
            quota,
            level: u128::from(quota.burst) * u128::from(SECOND_NS),
            at_ns: 0,
        }
    }

    /// Serves as much of a cost as there is, and returns how much that is, in micro-RU.
    pub(crate) fn serve(&mut self, at_ns: u64, cost: u64) -> u64 {
        let passed_ns = at_ns.saturating_sub(self.at_ns);
        self.at_ns = self.at_ns.max(at_ns);
        let full = u128::from(self.quota.burst) * u128::from(SECOND_NS);
        let refill = u128::from(self.quota.rate) * u128::from(passed_ns);
        self.level = (self.level + refill).min(full);
        let there = self.level / u128::from(SECOND_NS);
        let served = there.min(u128::from(cost));
        self.level -= served * u128::from(SECOND_NS);
        served as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_serves_the_burst_and_then_exactly_the_rate() {
        let mut ideal = Ideal::full(Quota { rate: 3, burst: 10 });
        assert_eq!(ideal.serve(0, 4), 4);
        assert_eq!(ideal.serve(0, 10), 6);
        assert_eq!(ideal.serve(333_333_333, 10), 0);
        assert_eq!(ideal.serve(333_333_334, 10), 1);
        // The rest of a nanosecond is not lost: after ten seconds in all, thirty have been served.
        let mut served = 1;
        for step in 2..=10_000_u64 {
            served += ideal.serve(step * 1_000_000_000 / 1_000, 10);
        }
        assert_eq!(served, 30);
        // Nothing beyond the burst is kept, and the past changes nothing.
        assert_eq!(ideal.serve(100 * SECOND_NS, 50), 10);
        assert_eq!(ideal.serve(99 * SECOND_NS, 50), 0);
    }
}
