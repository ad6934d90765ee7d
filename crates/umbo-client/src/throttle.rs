//! Requests that a client does not even send: where a server rejects or sheds most of what it gets,
//! more of them cost it more than they give the client. Pure: time and random number are parameters.
//!
//! After "Handling Overload" (Beyer et al., "Site Reliability Engineering", 2016): a request is
//! given up here with probability max(0, (requests - K * accepts) / (requests + 1)), counted over
//! the last 30 seconds. With K = 2 a server gets about as many requests that it refuses as it
//! takes. A retry at the time that the server named is sent in any case: room is reserved for it. Three departures: the counters slide in ten steps instead of being zeroed; a request is
//! counted when its answer comes, so that many under way do not look like many refused; and the
//! first request after a second without any is always sent, so that the end of an overload is
//! noticed. What is given up here counts among the requests, so a client comes back to a server
//! that has taken nothing for a while by about doubling what it sends in each window.

#![allow(
    clippy::cast_precision_loss,
    reason = "counts of a window are far below 2^52"
)]

use std::time::{Duration, Instant};

use crate::window::Window;

/// How far back answers count.
const WINDOW: Duration = Duration::from_secs(30);
/// The longest time in which nothing is sent while something is asked for.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

const REQUESTS: usize = 0;
const ACCEPTS: usize = 1;

/// Decides which requests are sent.
#[derive(Debug, Clone)]
pub struct AdaptiveThrottle {
    factor: f64,
    window: Window<2>,
    sent: Option<Instant>,
}

impl AdaptiveThrottle {
    /// Makes one that has seen nothing and sends everything. `factor` is K, how many requests are
    /// sent for each that is taken; below 1, and where it is no number, it is 1.
    pub fn new(factor: f64, now: Instant) -> Self {
        Self {
            factor: factor.max(1.0),
            window: Window::new(WINDOW, now),
            sent: None,
        }
    }

    /// Says whether a request is to be sent; one that is not is counted as refused. `random` is
    /// uniform over all of `u64`.
    pub fn admits(&mut self, now: Instant, random: u64) -> bool {
        let is_probe = self
            .sent
            .is_none_or(|sent| now.saturating_duration_since(sent) >= PROBE_INTERVAL);
        // The 53 highest bits are uniform in 0..1, all that an f64 can tell apart.
        let uniform = (random >> 11) as f64 / (1_u64 << 53) as f64;
        let is_sent = is_probe || uniform >= self.rejection_probability(now);
        if is_sent {
            self.sent = Some(now);
        } else {
            self.window.add(REQUESTS, 1, now);
        }
        is_sent
    }

    /// Counts an answer: accepted, whatever it says, or rejected or shed. What failed on the way
    /// is not counted at all, because it says nothing about either.
    pub fn answered(&mut self, is_accepted: bool, now: Instant) {
        self.window.add(REQUESTS, 1, now);
        self.window.add(ACCEPTS, i64::from(is_accepted), now);
    }

    /// Returns the probability with which the next request is given up.
    pub fn rejection_probability(&mut self, now: Instant) -> f64 {
        let [requests, accepts] = self.window.sums(now).map(|count| count as f64);
        ((requests - self.factor * accepts) / (requests + 1.0)).max(0.0)
    }

    /// Returns how many requests were asked for in the window, and how many of them accepted.
    pub fn counts(&mut self, now: Instant) -> (u64, u64) {
        let [requests, accepts] = self.window.sums(now).map(i64::unsigned_abs);
        (requests, accepts)
    }

    /// Returns when a request was last sent.
    pub(crate) fn sent(&self) -> Option<Instant> {
        self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use proptest::prelude::*;

    /// Keeps every request and counts those that are young enough.
    #[derive(Default)]
    struct Twin {
        requests: Vec<(u64, bool)>,
        sent_ms: Option<u64>,
    }

    impl Twin {
        fn probability(&self, factor: f64, now_ms: u64) -> f64 {
            let is_young = |at_ms: u64| now_ms / 3_000 - at_ms / 3_000 < 10;
            let young = self.requests.iter().filter(|(at_ms, _)| is_young(*at_ms));
            let (mut requests, mut accepts) = (0.0, 0.0);
            for (_, is_accepted) in young {
                requests += 1.0;
                accepts += f64::from(u8::from(*is_accepted));
            }
            f64::max(0.0, (requests - factor * accepts) / (requests + 1.0))
        }

        fn admits(&mut self, factor: f64, now_ms: u64, random: u64) -> bool {
            let is_probe = self.sent_ms.is_none_or(|sent_ms| now_ms - sent_ms >= 1_000);
            let uniform = (random >> 11) as f64 / 2_f64.powi(53);
            let is_sent = is_probe || uniform >= self.probability(factor, now_ms);
            if is_sent {
                self.sent_ms = Some(now_ms);
            } else {
                self.requests.push((now_ms, false));
            }
            is_sent
        }
    }

    proptest! {
        #[test]
        fn it_decides_as_the_exact_twin(
            factor in 1.0_f64..3.0,
            steps in prop::collection::vec((0_u64..900, any::<u64>(), any::<bool>()), 1..300),
        ) {
            let start = Instant::now();
            let mut throttle = AdaptiveThrottle::new(factor, start);
            let mut twin = Twin::default();
            let mut now_ms = 0;
            for (step_ms, random, is_accepted) in steps {
                now_ms += step_ms;
                let now = start + Duration::from_millis(now_ms);
                let is_sent = throttle.admits(now, random);
                prop_assert_eq!(is_sent, twin.admits(factor, now_ms, random));
                if is_sent {
                    throttle.answered(is_accepted, now);
                    twin.requests.push((now_ms, is_accepted));
                }
                let difference =
                    throttle.rejection_probability(now) - twin.probability(factor, now_ms);
                prop_assert!(difference.abs() < 1e-12);
            }
        }
    }

    /// What happened in one second.
    #[derive(Debug, Default, Clone, Copy)]
    struct Second {
        sent: u32,
        accepted: u32,
    }

    /// A client that asks so often a second, against a server that takes so many in each.
    fn simulate(factor: f64, per_second: u32, capacity: impl Fn(usize) -> u32) -> Vec<Second> {
        let (start, random) = (Instant::now(), Random::new(7));
        let mut throttle = AdaptiveThrottle::new(factor, start);
        let mut seconds = Vec::new();
        for second in 0..300 {
            let (mut sent, mut accepted) = (0, 0);
            for at in 0..per_second {
                let passed = second as f64 + f64::from(at) / f64::from(per_second);
                let now = start + Duration::from_secs_f64(passed);
                if throttle.admits(now, random.next()) {
                    sent += 1;
                    // The server takes its capacity evenly over the second.
                    let due = (at + 1) * capacity(second) / per_second;
                    let is_accepted = accepted < due;
                    accepted += u32::from(is_accepted);
                    throttle.answered(is_accepted, now);
                }
            }
            seconds.push(Second { sent, accepted });
        }
        seconds
    }

    #[test]
    fn a_server_with_room_gets_every_request() {
        for per_second in [1, 50, 99] {
            let seconds = simulate(2.0, per_second, |_| 100);
            assert!(seconds.iter().all(|second| second.sent == per_second));
        }
    }

    #[test]
    fn an_overloaded_server_gets_a_bounded_multiple_of_what_it_takes() {
        for (factor, per_second) in [(2.0, 300), (2.0, 1_000), (2.0, 5_000), (1.25, 1_000)] {
            let seconds = simulate(factor, per_second, |_| 100);
            for (at, second) in seconds.iter().enumerate().skip(40) {
                let sent = f64::from(second.sent) / (factor * 100.0);
                assert!(
                    (0.7..=1.3).contains(&sent),
                    "{factor} {per_second} {at}: {second:?}"
                );
                assert!(
                    second.accepted >= 85,
                    "{factor} {per_second} {at}: {second:?}"
                );
            }
            let accepted: u32 = seconds[40..].iter().map(|second| second.accepted).sum();
            assert!(accepted >= 260 * 97, "{factor} {per_second}: {accepted}");
        }
    }

    #[test]
    fn a_server_that_takes_nothing_is_asked_once_a_second() {
        let seconds = simulate(2.0, 1_000, |_| 0);
        let sent: u32 = seconds[60..].iter().map(|second| second.sent).sum();
        assert!((240..=600).contains(&sent), "{sent}");
        assert!(seconds[60..].iter().all(|second| second.sent >= 1));
    }

    #[test]
    fn after_an_overload_the_client_comes_back_by_and_by() {
        let capacity = |second| {
            if (60..110).contains(&second) {
                0
            } else {
                1_000
            }
        };
        let seconds = simulate(2.0, 200, capacity);
        assert!(seconds[..60].iter().all(|second| second.sent == 200));
        let sent = |seconds: &[Second]| seconds.iter().map(|second| second.sent).sum::<u32>();
        assert!(sent(&seconds[100..110]) < 50);
        // With each window at least twice as much.
        for from in [110, 140, 170] {
            let (before, after) = (&seconds[from..from + 30], &seconds[from + 30..from + 60]);
            assert!(sent(after) >= 2 * sent(before).min(3_000), "{from}");
        }
        assert!(seconds[240..].iter().all(|second| second.sent == 200));
    }

    #[test]
    fn a_client_that_asks_rarely_is_never_held_back() {
        let seconds = simulate(1.0, 1, |_| 0);
        assert!(seconds.iter().all(|second| second.sent == 1));
    }

    #[test]
    fn a_factor_that_would_hold_back_what_is_taken_is_one() {
        let now = Instant::now();
        for factor in [0.0, -3.0, 0.9, f64::NAN] {
            let mut throttle = AdaptiveThrottle::new(factor, now);
            for _ in 0..99 {
                throttle.answered(true, now);
            }
            assert!(throttle.rejection_probability(now).abs() < 1e-9, "{factor}");
        }
    }
}
