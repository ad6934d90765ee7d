//! What one caller got on one pod, second by second, beside what it may get.
//!
//! A cost counts at the instant at which its request was admitted, whenever it became known: a
//! limiter that lets through what it has not understood does not look better for learning late.

use std::collections::VecDeque;

use super::arrivals::SECOND_NS;
use super::ideal::{Ideal, Quota};

/// Seconds of the window over which the quota must be met.
pub(crate) const WINDOW_S: usize = 60;
/// Share of the quota that the ideal bucket has to serve in a window for a ratio to mean something.
const SERVED_LEAST: f64 = 0.05;

/// Sums of one second, in micro-RU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Second {
    /// Of all requests, as often as they were tried.
    pub(crate) offered: u64,
    /// Of those that were admitted.
    pub(crate) admitted: u64,
    /// What the ideal bucket serves.
    pub(crate) ideal: u64,
}

/// One caller on one pod.
#[derive(Debug)]
pub(crate) struct Account {
    quota: Quota,
    ideal: Ideal,
    seconds: Vec<Second>,
    sliding: SlidingSecond,
    /// Requests that were admitted.
    pub(crate) admitted: u64,
    /// Requests that were rejected, each as often as it was.
    pub(crate) rejected: u64,
}

impl Account {
    /// Opens an account for a run of so many seconds.
    pub(crate) fn new(quota: Quota, length_s: usize) -> Self {
        Self {
            quota,
            ideal: Ideal::full(quota),
            seconds: vec![Second::default(); length_s],
            sliding: SlidingSecond::default(),
            admitted: 0,
            rejected: 0,
        }
    }

    /// Returns all seconds of the run.
    pub(crate) fn seconds(&self) -> &[Second] {
        &self.seconds
    }

    /// Records a request of this cost that is about to be decided.
    pub(crate) fn offered(&mut self, at_ns: u64, cost: u64) {
        let served = self.ideal.serve(at_ns, cost);
        if let Some(second) = self.second(at_ns) {
            second.offered += cost;
            second.ideal += served;
        }
    }

    /// Records that it was admitted, and returns the number under which to settle it.
    pub(crate) fn admit(&mut self, at_ns: u64) -> u64 {
        self.admitted += 1;
        self.sliding.admit(at_ns)
    }

    /// Records what an admitted request came to.
    pub(crate) fn settle(&mut self, number: u64, admitted_ns: u64, cost: u64) {
        if let Some(second) = self.second(admitted_ns) {
            second.admitted += cost;
        }
        self.sliding.settle(number, cost);
    }

    fn second(&mut self, at_ns: u64) -> Option<&mut Second> {
        self.seconds.get_mut((at_ns / SECOND_NS) as usize)
    }

    /// Returns the least and the greatest share, over all windows of [`WINDOW_S`], of what was
    /// admitted in what the ideal bucket serves; none where the run is shorter or nothing was asked.
    pub(crate) fn shares(&self) -> Option<(f64, f64)> {
        let enough = SERVED_LEAST * self.quota.rate as f64 * WINDOW_S as f64;
        let of_window = |window: &[Second]| {
            let admitted: u64 = window.iter().map(|second| second.admitted).sum();
            let ideal: u64 = window.iter().map(|second| second.ideal).sum();
            (ideal as f64 >= enough).then(|| admitted as f64 / ideal as f64)
        };
        let shares = self.seconds.windows(WINDOW_S).filter_map(of_window);
        shares.fold(None, |found, share| match found {
            None => Some((share, share)),
            Some((least, greatest)) => Some((share.min(least), share.max(greatest))),
        })
    }

    /// Returns the most that was admitted within any second, as a share of burst + 1.05 × rate.
    pub(crate) fn worst_second(&self) -> f64 {
        let allowed = self.quota.burst as f64 + 1.05 * self.quota.rate as f64;
        self.sliding.worst as f64 / allowed
    }
}

/// The most within any second, wherever it begins; exact, and holding little more than a second.
#[derive(Debug, Default)]
struct SlidingSecond {
    /// Admitted requests: instant, and cost where it is known.
    requests: VecDeque<(u64, Option<u64>)>,
    /// Number of the first of them.
    first: u64,
    /// How many of them are in the sum.
    summed: usize,
    sum: u64,
    worst: u64,
}

impl SlidingSecond {
    fn admit(&mut self, at_ns: u64) -> u64 {
        self.requests.push_back((at_ns, None));
        self.first + self.requests.len() as u64 - 1
    }

    fn settle(&mut self, number: u64, cost: u64) {
        let index = (number - self.first) as usize;
        self.requests[index].1 = Some(cost);
        // In the order in which they were admitted, as far as costs are known.
        while let Some(&(at_ns, Some(cost))) = self.requests.get(self.summed) {
            self.sum += cost;
            self.summed += 1;
            while let Some(&(first_ns, Some(first_cost))) = self.requests.front()
                && first_ns + SECOND_NS <= at_ns
            {
                self.requests.pop_front();
                self.first += 1;
                self.summed -= 1;
                self.sum -= first_cost;
            }
            self.worst = self.worst.max(self.sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_worst_second_is_found_wherever_it_begins() {
        let quota = Quota { rate: 10, burst: 0 };
        let mut account = Account::new(quota, 4);
        let admitted = [(0, 5), (700, 4), (900, 3), (1_600, 6), (1_700, 1)];
        let numbers = admitted.map(|(at_ms, _)| account.admit(at_ms * MS));
        // Costs become known in any order.
        for at in [2, 0, 4, 1, 3] {
            let (at_ms, cost) = admitted[at];
            account.settle(numbers[at], at_ms * MS, cost);
        }
        // 700, 900 and 1,600; the one at 1,700 is a whole second after the one at 700.
        assert!((account.worst_second() - 13.0 / 10.5).abs() < 1e-9);
        let admitted: Vec<u64> = account.seconds().iter().map(|s| s.admitted).collect();
        assert_eq!(admitted, [12, 7, 0, 0]);
    }

    #[test]
    fn shares_are_of_what_was_asked_for_within_the_quota() {
        let quota = Quota {
            rate: 100,
            burst: 100,
        };
        let mut account = Account::new(quota, 62);
        for second in 0..62 {
            // Twice the quota, of which a little less than the half that fits is admitted.
            let at_ns = second * SECOND_NS;
            account.offered(at_ns, 200);
            let number = account.admit(at_ns);
            account.settle(number, at_ns, 99);
        }
        assert_eq!(account.shares(), Some((0.99, 0.99)));
        assert_eq!(Account::new(quota, 59).shares(), None);
        assert_eq!(Account::new(quota, 120).shares(), None);
    }
}
