//! What a client knows of one bucket of the server: a bucket of its own with the same rate, put right
//! by every answer. Pure: the time is a parameter.
//!
//! An answer gives rate, burst and balance exactly. What is unknown is how much of the work that is
//! under way the server had charged when it answered, so the state keeps to its own account as long as
//! that lies within those bounds.
//!
//! A server admits while its balance is positive and fills in steps, so work goes once the balance is
//! above a small margin. What it costs to be careful is nothing: a bucket loses only what would make it
//! more than full.

use std::time::{Duration, Instant};

use crate::quota_state::{QuotaState, QuotaUnit};

/// A policy is forgotten this many seconds after it could be full again without an answer about it.
const STALE: f64 = 60.0;
/// Bound of waits in seconds, so that no quotient is too large for a duration.
const WAIT_MAX: f64 = 86_400.0;

/// The state of one bucket.
#[derive(Debug, Clone)]
pub(crate) struct BucketState {
    /// As the last answer gave it, with a balance that does not count what is under way.
    state: QuotaState,
    /// When the balance was as it says.
    at: Instant,
    /// When an answer last named it.
    heard: Instant,
}

impl BucketState {
    /// Begins with what an answer gives.
    pub(crate) fn new(state: &QuotaState, now: Instant) -> Self {
        Self {
            state: state.clone(),
            at: now,
            heard: now,
        }
    }

    pub(crate) fn policy(&self) -> &str {
        &self.state.policy
    }

    pub(crate) fn unit(&self) -> QuotaUnit {
        self.state.unit
    }

    pub(crate) fn rate(&self) -> f64 {
        self.state.rate
    }

    /// Returns how full it is: 1 is full, below 0 is in debt.
    pub(crate) fn fill(&mut self, in_flight: f64, now: Instant) -> f64 {
        self.refill(now);
        (self.state.balance - in_flight) / self.state.burst
    }

    /// Returns whether no answer has named it for so long that it is full or gone.
    pub(crate) fn is_stale(&self, now: Instant) -> bool {
        let silence = now.saturating_duration_since(self.heard).as_secs_f64();
        let state = &self.state;
        silence > STALE + (state.burst - state.balance) / state.rate
    }

    /// Returns how long to wait before more work goes; zero where it may go now.
    pub(crate) fn wait(&mut self, in_flight: f64, now: Instant) -> Duration {
        self.refill(now);
        let missing = self.margin() - (self.state.balance - in_flight);
        if missing < 0.0 {
            return Duration::ZERO;
        }
        // One nanosecond, so that what is missing by nothing is a wait too.
        let seconds = (missing / self.state.rate).min(WAIT_MAX);
        Duration::from_secs_f64(seconds) + Duration::from_nanos(1)
    }

    /// Takes what a request cost.
    pub(crate) fn charge(&mut self, cost: f64, now: Instant) {
        self.refill(now);
        self.state.balance -= cost;
    }

    /// Takes over what an answer gives, once its own cost is charged. `in_flight` is what else is under
    /// way; the server had charged any part of it.
    pub(crate) fn observe(&mut self, state: &QuotaState, in_flight: f64, now: Instant) {
        self.refill(now);
        self.heard = now;
        let own = self.state.balance;
        self.state.clone_from(state);
        self.state.balance = own.clamp(state.balance, state.balance + in_flight);
    }

    /// Takes over what a rejection says: there is nothing before the wait is over.
    pub(crate) fn reject(&mut self, wait: Duration, in_flight: f64, now: Instant) {
        self.refill(now);
        self.heard = now;
        let debt = wait.as_secs_f64() * self.state.rate;
        let highest = self.margin() - debt + in_flight;
        self.state.balance = self.state.balance.min(highest);
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        let state = &mut self.state;
        if state.balance < state.burst {
            state.balance = (state.balance + passed * state.rate).min(state.burst);
        }
    }

    /// Returns what is left in the bucket: the refill of a step, and one unit.
    fn margin(&self) -> f64 {
        let state = &self.state;
        (state.rate * state.refill.as_secs_f64() + 1.0).min(state.burst / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(rate: f64, balance: f64) -> QuotaState {
        QuotaState {
            policy: "p".to_owned(),
            unit: QuotaUnit::Requests,
            rate,
            burst: 100.0,
            balance,
            refill: Duration::from_millis(50),
        }
    }

    fn after(start: Instant, seconds: f64) -> Instant {
        start + Duration::from_secs_f64(seconds)
    }

    #[test]
    fn work_waits_until_there_is_more_than_the_margin() {
        let start = Instant::now();
        let mut bucket = BucketState::new(&state(100.0, 50.0), start);
        assert_eq!(bucket.wait(0.0, start), Duration::ZERO);
        bucket.charge(60.0, start);
        // 10 in debt and a margin of 6, at 100 a second; and 20 more are under way.
        for (in_flight, seconds) in [(0.0, 0.16), (20.0, 0.36)] {
            let wait = bucket.wait(in_flight, start).as_secs_f64();
            assert!((wait - seconds).abs() < 1e-6, "{wait}");
        }
        assert_eq!(bucket.wait(0.0, after(start, 0.161)), Duration::ZERO);
        assert!((bucket.fill(0.0, after(start, 99.0)) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn an_answer_is_believed_but_for_what_is_under_way() {
        let start = Instant::now();
        let mut bucket = BucketState::new(&state(100.0, 50.0), start);
        let mut observed = |balance, in_flight| {
            bucket.observe(&state(100.0, balance), in_flight, start);
            bucket.state.balance
        };
        let apart = [
            observed(30.0, 10.0) - 40.0,
            observed(35.0, 10.0) - 40.0,
            observed(60.0, 0.0) - 60.0,
        ];
        assert!(apart.iter().all(|apart| apart.abs() < 1e-9), "{apart:?}");
    }

    #[test]
    fn a_rejection_holds_back_for_its_wait_and_a_change_of_the_policy_counts_at_once() {
        let start = Instant::now();
        let mut bucket = BucketState::new(&state(160.0, 90.0), start);
        bucket.reject(Duration::from_millis(250), 0.0, start);
        assert_eq!(bucket.wait(0.0, start).as_millis(), 250);
        bucket.observe(&state(900.0, 9.0), 0.0, start);
        assert!((bucket.rate() - 900.0).abs() < 1e-9);
    }

    #[test]
    fn a_bucket_that_no_answer_names_is_forgotten_once_it_must_be_full() {
        let start = Instant::now();
        let mut bucket = BucketState::new(&state(100.0, 0.0), start);
        bucket.charge(900.0, start);
        assert!(!bucket.is_stale(after(start, 69.0)));
        assert!(bucket.is_stale(after(start, 71.0)));
    }

    #[test]
    fn numbers_that_make_no_sense_make_no_endless_wait() {
        let start = Instant::now();
        for rate in [1e-12, 1e15] {
            let mut bucket = BucketState::new(&state(rate, 0.0), start);
            bucket.charge(1e18, start);
            assert!(bucket.wait(1e18, start) <= Duration::from_secs(86_401));
        }
    }
}
