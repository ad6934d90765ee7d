//! What a client knows of one bucket of the server: a bucket of its own with the same rate, put
//! right by every answer. Pure: the time is a parameter.
//!
//! An answer says what is left in whole units and how soon all of it is back in whole seconds, so
//! it gives bounds and not numbers; the mirror keeps to its own account as long as that lies
//! within them. The rate is at least `quota / window` and may be higher, because the window is
//! rounded up too. The mirror begins with the least it can be, raises it where more is there than
//! it should be, and where answers leave it open it tries a little more each second, until a
//! rejection tells the rate as it is. From then on nothing is tried.
//!
//! A server admits while its balance is positive and fills in steps, so work goes once the mirror
//! is above a small margin. What it costs to be careful is nothing: a bucket loses only what would
//! make it more than full.

use std::time::{Duration, Instant};

use crate::advertised::{Advertised, QuotaUnit};

/// Step in which a server fills its buckets, unless its operator says otherwise.
const STEP: f64 = 0.05;
/// How much more is tried at a time, and how often.
const TRIAL: f64 = 1.25;
const TRIAL_INTERVAL: f64 = 1.0;
/// What may be wrong with a rate that is corrected: half of what an answer says is taken over,
/// and none of it where so little time has passed that it is all noise.
const GAIN: f64 = 0.5;
const LEARN_INTERVAL: f64 = 0.2;
/// A policy is forgotten this long after it could be full again without being heard of.
const STALE: f64 = 60.0;
/// Bound of waits, so that no quotient is too large for a duration.
const WAIT_MAX: f64 = 86_400.0;

/// The limit of a policy, in its unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    /// Units a second.
    pub rate: f64,
    /// The most that can be there at once.
    pub burst: f64,
}

/// A mirror of one bucket.
#[derive(Debug, Clone)]
pub(crate) struct Mirror {
    policy: String,
    unit: QuotaUnit,
    /// Quota and window as advertised; when they change, so has the policy.
    advertised: (f64, f64),
    capacity: f64,
    rate: f64,
    rate_min: f64,
    rate_max: f64,
    is_rate_known: bool,
    /// What is there, not counting what is under way.
    balance: f64,
    at: Instant,
    heard: Instant,
    confirmed: Instant,
    tried: Instant,
}

impl Mirror {
    /// Begins with what an answer says.
    pub(crate) fn new(advertised: &Advertised, now: Instant) -> Self {
        let mut mirror = Self {
            policy: advertised.policy.clone(),
            unit: advertised.unit,
            advertised: (0.0, 0.0),
            capacity: 0.0,
            rate: 0.0,
            rate_min: 0.0,
            rate_max: 0.0,
            is_rate_known: false,
            balance: advertised.remaining,
            at: now,
            heard: now,
            confirmed: now,
            tried: now,
        };
        mirror.adopt(advertised);
        mirror
    }

    pub(crate) fn policy(&self) -> &str {
        &self.policy
    }

    pub(crate) fn unit(&self) -> QuotaUnit {
        self.unit
    }

    pub(crate) fn rate(&self) -> f64 {
        self.rate
    }

    /// Returns how full it is: 1 and more is full, below 0 is in debt.
    pub(crate) fn fill(&mut self, in_flight: f64, now: Instant) -> f64 {
        self.refill(now);
        (self.balance - in_flight) / self.capacity
    }

    /// Says whether nothing was heard of it for so long that it is full or gone.
    pub(crate) fn is_stale(&self, now: Instant) -> bool {
        let silence = now.saturating_duration_since(self.heard).as_secs_f64();
        silence > STALE + (self.capacity - self.balance) / self.rate
    }

    /// Returns how long to wait before more work goes; zero where it may go now.
    pub(crate) fn wait(&mut self, in_flight: f64, now: Instant) -> Duration {
        self.refill(now);
        let missing = self.margin() - (self.balance - in_flight);
        if missing < 0.0 {
            return Duration::ZERO;
        }
        // One nanosecond, so that what is missing by nothing is a wait too.
        let seconds = (missing / self.rate).min(WAIT_MAX);
        Duration::from_secs_f64(seconds) + Duration::from_nanos(1)
    }

    /// Takes what a request cost.
    pub(crate) fn charge(&mut self, cost: f64, now: Instant) {
        self.refill(now);
        self.balance -= cost;
    }

    /// Puts right what an answer contradicts, once its own cost is charged. `in_flight` is what
    /// else is under way; how much of it the server had charged when it answered is not known.
    pub(crate) fn observe(&mut self, advertised: &Advertised, in_flight: f64, now: Instant) {
        self.refill(now);
        self.heard = now;
        self.adopt(advertised);
        let since = |instant: Instant| now.saturating_duration_since(instant).as_secs_f64();
        let remaining = advertised.remaining;
        let mut highest = remaining + 1.0 + in_flight;
        if remaining > 0.0 {
            let passed = since(self.confirmed);
            let surplus = (remaining - self.balance).max(0.0) - (self.balance - highest).max(0.0);
            if !self.is_rate_known && passed >= LEARN_INTERVAL {
                let rate = self.rate + GAIN * surplus / passed;
                self.rate = rate.clamp(self.rate_min, self.rate_max);
            }
            self.confirmed = now;
            self.balance = self.balance.clamp(remaining, highest);
            return;
        }
        if let Some(full_after) = advertised.full_after {
            // It is full no sooner than a second before the second that was rounded up to.
            let owed = self.rate * (full_after - 1.0).max(0.0);
            highest = highest.min(self.capacity - owed + in_flight);
            if self.is_rate_known {
                self.balance = self.balance.max(self.capacity - self.rate * full_after);
            }
        }
        self.balance = self.balance.min(highest);
        if !self.is_rate_known && since(self.tried) >= TRIAL_INTERVAL {
            self.rate = (self.rate * TRIAL).min(self.rate_max);
            self.tried = now;
        }
    }

    /// Takes over what a rejection says: the limit, and that there is nothing before the wait is
    /// over.
    pub(crate) fn reject(
        &mut self,
        limit: Option<Limit>,
        wait: Duration,
        in_flight: f64,
        now: Instant,
    ) {
        self.refill(now);
        self.heard = now;
        match limit.filter(|limit| limit.rate > 0.0 && limit.burst > 0.0) {
            Some(limit) => {
                self.rate = limit.rate;
                self.capacity = limit.burst;
            }
            None if !self.is_rate_known => {
                self.rate = (self.rate / TRIAL).max(self.rate_min);
            }
            None => {}
        }
        self.is_rate_known = true;
        let debt = wait.as_secs_f64() * self.rate;
        self.balance = self.balance.min(self.margin() - debt + in_flight);
    }

    /// Takes over quota and window, where they are others than before.
    fn adopt(&mut self, advertised: &Advertised) {
        let pair = (advertised.quota, advertised.window);
        if self.advertised == pair && self.unit == advertised.unit {
            return;
        }
        self.advertised = pair;
        self.unit = advertised.unit;
        self.capacity = advertised.quota.max(1.0);
        self.rate_min = self.capacity / advertised.window;
        self.rate_max = if advertised.window > 1.0 {
            self.capacity / (advertised.window - 1.0)
        } else {
            f64::MAX
        };
        self.rate = self.rate_min;
        self.is_rate_known = false;
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        if self.balance < self.capacity {
            self.balance = (self.balance + passed * self.rate).min(self.capacity);
        }
    }

    fn margin(&self) -> f64 {
        (self.rate * STEP + 1.0).min(self.capacity / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advertised(quota: f64, window: f64, remaining: f64) -> Advertised {
        Advertised {
            policy: "p".to_owned(),
            unit: QuotaUnit::Requests,
            quota,
            window,
            remaining,
            full_after: Some(window),
        }
    }

    fn after(start: Instant, seconds: f64) -> Instant {
        start + Duration::from_secs_f64(seconds)
    }

    #[test]
    fn work_waits_until_there_is_more_than_the_margin() {
        let start = Instant::now();
        let mut mirror = Mirror::new(&advertised(100.0, 1.0, 50.0), start);
        assert_eq!(mirror.wait(0.0, start), Duration::ZERO);
        mirror.charge(60.0, start);
        // 10 in debt and a margin of 6, at 100 a second; and 20 more are under way.
        for (in_flight, seconds) in [(0.0, 0.16), (20.0, 0.36)] {
            let wait = mirror.wait(in_flight, start).as_secs_f64();
            assert!((wait - seconds).abs() < 1e-6, "{wait}");
        }
        assert_eq!(mirror.wait(0.0, after(start, 0.161)), Duration::ZERO);
        assert!((mirror.fill(0.0, after(start, 99.0)) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn answers_are_believed_within_their_rounding() {
        let start = Instant::now();
        let mut mirror = Mirror::new(&advertised(100.0, 1.0, 50.0), start);
        mirror.balance = 50.7;
        mirror.observe(&advertised(100.0, 1.0, 50.0), 0.0, start);
        assert!((mirror.balance - 50.7).abs() < 1e-9, "it may be so");
        mirror.observe(&advertised(100.0, 1.0, 30.0), 10.0, start);
        assert!(
            (mirror.balance - 41.0).abs() < 1e-9,
            "10 may not be charged yet"
        );
        mirror.observe(&advertised(100.0, 1.0, 60.0), 0.0, start);
        assert!((mirror.balance - 60.0).abs() < 1e-9);
    }

    #[test]
    fn a_rate_begins_low_rises_with_what_is_there_and_is_exact_once_told() {
        let start = Instant::now();
        let mut mirror = Mirror::new(&advertised(100.0, 1.0, 0.0), start);
        assert!((mirror.rate() - 100.0).abs() < 1e-9);
        // 40 came in 0.2 s, where 20 were to come.
        mirror.observe(&advertised(100.0, 1.0, 40.0), 0.0, after(start, 0.2));
        assert!((mirror.rate() - 150.0).abs() < 1e-6, "{}", mirror.rate());
        mirror.charge(140.0, after(start, 0.2));
        mirror.observe(&advertised(100.0, 1.0, 0.0), 0.0, after(start, 1.2));
        assert!((mirror.rate() - 187.5).abs() < 1e-6, "one trial a second");
        let limit = Limit {
            rate: 160.0,
            burst: 100.5,
        };
        let wait = Duration::from_millis(250);
        mirror.reject(Some(limit), wait, 0.0, after(start, 1.3));
        assert_eq!(mirror.wait(0.0, after(start, 1.3)).as_millis(), 250);
        mirror.observe(&advertised(100.0, 1.0, 0.0), 0.0, after(start, 9.0));
        mirror.observe(&advertised(100.0, 1.0, 90.0), 0.0, after(start, 9.1));
        assert!((mirror.rate() - 160.0).abs() < 1e-9);
    }

    #[test]
    fn a_policy_that_was_changed_is_learned_anew() {
        let start = Instant::now();
        let mut mirror = Mirror::new(&advertised(100.0, 2.0, 9.0), start);
        mirror.reject(None, Duration::ZERO, 0.0, start);
        assert!(mirror.is_rate_known);
        mirror.observe(&advertised(900.0, 3.0, 9.0), 0.0, start);
        assert!(!mirror.is_rate_known);
        assert!((mirror.rate() - 300.0).abs() < 1e-9 && (mirror.rate_max - 450.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_not_heard_of_is_forgotten_once_it_must_be_full() {
        let start = Instant::now();
        let mut mirror = Mirror::new(&advertised(100.0, 1.0, 0.0), start);
        mirror.charge(900.0, start);
        assert!(!mirror.is_stale(after(start, 69.0)));
        assert!(mirror.is_stale(after(start, 71.0)));
    }

    #[test]
    fn numbers_that_make_no_sense_make_no_endless_wait() {
        let start = Instant::now();
        for (quota, window) in [(0.0, 1.0), (1e15, 1.0), (1.0, 1e15)] {
            let mut mirror = Mirror::new(&advertised(quota, window, 0.0), start);
            mirror.charge(1e18, start);
            assert!(mirror.wait(1e18, start) <= Duration::from_secs(86_401));
        }
    }
}
