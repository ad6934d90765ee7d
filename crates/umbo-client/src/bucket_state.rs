//! The client's copy of one bucket of the server: it has the same rate, and every answer corrects it.
//! Pure: the time is a parameter.
//!
//! An answer gives rate, burst and balance exactly. It does not say how much of the work under way the
//! server had charged by then. So the client keeps its own balance while it lies within the resulting
//! bounds.
//!
//! A server admits while its balance is positive, and refills in steps. So work may go once the balance
//! is above a small margin. The margin costs nothing: a bucket loses refill only when it is full.

use std::time::{Duration, Instant};

use crate::quota_state::{QuotaState, QuotaUnit};

/// A policy is forgotten this many seconds after it could be full again without an answer about it.
const STALE: f64 = 60.0;
/// Bound of waits in seconds, so that no quotient is too large for a duration.
const WAIT_MAX: f64 = 86_400.0;

/// The state of one bucket.
#[derive(Debug, Clone)]
pub(crate) struct BucketState {
    /// The last state that an answer gave; the balance does not count work under way.
    state: QuotaState,
    /// The instant of the balance.
    at: Instant,
    /// When an answer last named it.
    heard: Instant,
}

impl BucketState {
    /// Begins with the state in an answer.
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

    /// Returns how long to wait before more work may go; zero if it may go now.
    pub(crate) fn wait(&mut self, in_flight: f64, now: Instant) -> Duration {
        self.refill(now);
        let missing = self.margin() - (self.state.balance - in_flight);
        if missing < 0.0 {
            return Duration::ZERO;
        }
        // One nanosecond, so that a missing amount of zero is a wait too.
        let seconds = (missing / self.state.rate).min(WAIT_MAX);
        Duration::from_secs_f64(seconds) + Duration::from_nanos(1)
    }

    /// Charges the cost of a request.
    pub(crate) fn charge(&mut self, cost: f64, now: Instant) {
        self.refill(now);
        self.state.balance -= cost;
    }

    /// Takes over the state in an answer, after the cost of the answered request is charged.
    /// `in_flight` is the cost of the other work under way; the server may have charged any part of it.
    pub(crate) fn observe(&mut self, state: &QuotaState, in_flight: f64, now: Instant) {
        self.refill(now);
        self.heard = now;
        let own = self.state.balance;
        self.state.clone_from(state);
        self.state.balance = own.clamp(state.balance, state.balance + in_flight);
    }

    /// Takes over the wait of a rejection: the balance stays at or below the margin until the wait is
    /// over.
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

    /// Returns the margin that stays in the bucket: the refill of a step, and one unit.
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
