//! How many repetitions a client may add to its requests: a share of them, and a few a second in
//! any case, so that a client with little to do repeats at all. Pure: the time is a parameter.
//!
//! After the retry budget of Finagle (Twitter, 2014): a request pays in a part of a repetition, a
//! repetition takes out a whole one, and both are forgotten after ten seconds. The window moves in
//! ten steps. A withdrawal is forgotten too, so each second gets its reserve back.

use std::time::{Duration, Instant};

use crate::window::SlidingWindow;

/// How long a request counts.
const TTL_SECONDS: u32 = 10;
/// The cost of one repetition; each request pays in `percent` hundredths of it.
const REPETITION: i64 = 100;

/// A budget of repetitions.
#[derive(Debug, Clone)]
pub struct RetryBudget {
    percent: u32,
    reserve: i64,
    window: SlidingWindow<1>,
}

impl RetryBudget {
    /// Makes a budget of this many repetitions for a hundred requests, and this many a second in
    /// any case. Both may be zero: then nothing is ever repeated.
    pub fn new(percent: u32, per_second_min: u32, now: Instant) -> Self {
        Self {
            percent,
            reserve: i64::from(per_second_min) * i64::from(TTL_SECONDS) * REPETITION,
            window: SlidingWindow::new(Duration::from_secs(TTL_SECONDS.into()), now),
        }
    }

    /// Counts a request that is sent for the first time.
    pub fn deposit(&mut self, now: Instant) {
        self.window.add(0, i64::from(self.percent), now);
    }

    /// Takes one repetition out and returns true, or returns false and changes nothing.
    pub fn withdraw(&mut self, now: Instant) -> bool {
        let [balance] = self.window.sums(now);
        let is_covered = balance.saturating_add(self.reserve) >= REPETITION;
        if is_covered {
            self.window.add(0, -REPETITION, now);
        }
        is_covered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn repetitions(budget: &mut RetryBudget, now: Instant) -> usize {
        (0..10_000).take_while(|_| budget.withdraw(now)).count()
    }

    #[test]
    fn a_tenth_of_the_requests_may_be_repeated_and_ten_more() {
        let now = Instant::now();
        let mut budget = RetryBudget::new(10, 1, now);
        assert_eq!(repetitions(&mut budget, now), 10);
        for _ in 0..1_000 {
            budget.deposit(now);
        }
        assert_eq!(repetitions(&mut budget, now), 100);
    }

    #[test]
    fn what_was_paid_in_and_taken_out_is_forgotten_after_ten_seconds() {
        let start = Instant::now();
        let mut budget = RetryBudget::new(10, 1, start);
        for _ in 0..1_000 {
            budget.deposit(start);
        }
        let later = start + Duration::from_secs(10);
        assert_eq!(repetitions(&mut budget, later), 10);
        assert_eq!(repetitions(&mut budget, later + Duration::from_secs(9)), 0);
        assert_eq!(
            repetitions(&mut budget, later + Duration::from_secs(10)),
            10
        );
    }

    #[test]
    fn a_budget_of_nothing_repeats_nothing() {
        let now = Instant::now();
        let mut budget = RetryBudget::new(0, 0, now);
        budget.deposit(now);
        assert!(!budget.withdraw(now));
    }

    /// Keeps all that ever happened and adds it up anew each time.
    #[derive(Default)]
    struct Twin {
        events: Vec<(u64, i64)>,
    }

    impl Twin {
        fn is_covered(&self, percent: i64, per_second_min: i64, now_ms: u64) -> bool {
            let is_young = |at_ms: u64| now_ms / 1_000 - at_ms / 1_000 < 10;
            let young = self.events.iter().filter(|(at_ms, _)| is_young(*at_ms));
            let hundredths: i64 = young
                .map(|&(_, repetition)| if repetition == 1 { -100 } else { percent })
                .sum();
            hundredths + per_second_min * 1_000 >= 100
        }
    }

    proptest! {
        #[test]
        fn a_budget_decides_as_the_exact_twin(
            percent in 0_u32..40,
            per_second_min in 0_u32..3,
            steps in prop::collection::vec((0_u64..700, prop::bool::weighted(0.5)), 1..400),
        ) {
            let start = Instant::now();
            let mut budget = RetryBudget::new(percent, per_second_min, start);
            let mut twin = Twin::default();
            let mut now_ms = 0;
            for (step_ms, is_repetition) in steps {
                now_ms += step_ms;
                let now = start + Duration::from_millis(now_ms);
                if is_repetition {
                    let expected = twin.is_covered(percent.into(), per_second_min.into(), now_ms);
                    prop_assert_eq!(budget.withdraw(now), expected);
                    if expected {
                        twin.events.push((now_ms, 1));
                    }
                } else {
                    budget.deposit(now);
                    twin.events.push((now_ms, 0));
                }
            }
        }
    }

    #[test]
    fn over_a_minute_of_failures_a_tenth_and_one_a_second_are_repeated() {
        let start = Instant::now();
        let mut budget = RetryBudget::new(10, 1, start);
        let mut repeated = 0;
        for at_ms in 0..60_000_u64 {
            let now = start + Duration::from_millis(at_ms);
            budget.deposit(now);
            repeated += u32::from(budget.withdraw(now));
        }
        assert!((6_000..=6_070).contains(&repeated), "{repeated}");
    }
}
