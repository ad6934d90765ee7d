//! Requests that a client gives up before it sends them: if a server rejects or sheds most requests, more of them
//! cost it more than they give the client. Pure: time and random number are parameters.
//!
//! After "Handling Overload" (Beyer et al., "Site Reliability Engineering", 2016): a request is
//! given up here with probability max(0, (requests - K * accepts) / (requests + 1)), counted over
//! the last 30 seconds. With K = 2 a server gets about as many requests that it refuses as it
//! takes. A retry at the time that the server named is sent in any case: room is reserved for it.
//! Departures: the counters slide in ten steps instead of being zeroed; a request is counted when its
//! answer comes, so that many under way do not look like many refused; and the first request after a
//! second without any is always sent, so that the end of an overload is noticed.
//!
//! With that formula alone a client comes back slowly: it doubles its load once a window. So the refusals of the
//! window lose their weight evenly over [`RECOVERY`] while the answers of the last second are accepts, and then
//! are forgotten, as Apache Beam's throttler forgets all of its window. Half of the load is back after a second
//! and half of `RECOVERY`, whatever the load. New refusals restore the weight of the old ones.

#![allow(
    clippy::cast_precision_loss,
    reason = "counts of a window are far below 2^52"
)]

use std::time::{Duration, Instant};

use crate::window::SlidingWindow;

/// How far back answers count.
const WINDOW: Duration = Duration::from_secs(30);
/// The longest time without a sent request while the client has requests to send.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Time until the whole load comes back to a server that accepts again. The load then grows by a sixth a second,
/// which is no burst to a server that has just recovered. Half of the load is back within 5 seconds, including a
/// second for the probe that finds the server and two for slow answers.
const RECOVERY: Duration = Duration::from_secs(6);

const REFUSALS: usize = 0;
const ACCEPTS: usize = 1;

/// Decides which requests are sent.
#[derive(Debug, Clone)]
pub struct AdaptiveThrottle {
    factor: f64,
    /// Requests that the server refused or that were given up here, and accepted requests.
    window: SlidingWindow<2>,
    /// Answers of the last second.
    recent: SlidingWindow<2>,
    /// Part of the recovery that is over, from 0 to 1.
    recovered: f64,
    recovered_at: Instant,
    sent: Option<Instant>,
}

impl AdaptiveThrottle {
    /// Makes a throttle without any answers that sends every request. `factor` is K, the requests that are sent
    /// for each accepted one. A value below 1, or not a number, counts as 1.
    pub fn new(factor: f64, now: Instant) -> Self {
        Self {
            factor: factor.max(1.0),
            window: SlidingWindow::new(WINDOW, now),
            recent: SlidingWindow::new(PROBE_INTERVAL, now),
            recovered: 0.0,
            recovered_at: now,
            sent: None,
        }
    }

    /// Returns whether a request is to be sent; otherwise it is counted as refused. `random` is uniform over all
    /// of `u64`.
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
            self.window.add(REFUSALS, 1, now);
        }
        is_sent
    }

    /// Counts an answer: accepted, or rejected or shed. Requests that failed on the way are not counted, because
    /// they say nothing about the server.
    pub fn answered(&mut self, is_accepted: bool, now: Instant) {
        self.recover(now);
        let kind = if is_accepted { ACCEPTS } else { REFUSALS };
        self.window.add(kind, 1, now);
        self.recent.add(kind, 1, now);
    }

    /// Returns the probability with which the next request is given up.
    pub fn rejection_probability(&mut self, now: Instant) -> f64 {
        self.recover(now);
        self.unrecovered_probability(now) * (1.0 - self.recovered)
    }

    /// Returns the probability by the answers of the whole window.
    fn unrecovered_probability(&mut self, now: Instant) -> f64 {
        let [refusals, accepts] = self.window.sums(now).map(|count| count as f64);
        let requests = refusals + accepts;
        ((requests - self.factor * accepts) / (requests + 1.0)).max(0.0)
    }

    /// Continues the recovery if the last answers are accepts, and ends it otherwise. Nothing changes without an
    /// answer.
    fn recover(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.recovered_at);
        self.recovered_at = self.recovered_at.max(now);
        let [refusals, accepts] = self.recent.sums(now).map(|count| count as f64);
        if refusals + accepts < 1.0 {
            return;
        }
        // A client that sends K requests for each that is taken has 1 - 1 / K of its answers refused; half
        // of that is a server with room for more.
        let tolerated = (1.0 - 1.0 / self.factor) / 2.0;
        let is_held_back = self.unrecovered_probability(now) > 0.0;
        if !is_held_back || refusals > tolerated * (refusals + accepts) {
            self.recovered = 0.0;
            return;
        }
        self.recovered += passed.min(PROBE_INTERVAL).as_secs_f64() / RECOVERY.as_secs_f64();
        if self.recovered >= 1.0 {
            self.window.clear(REFUSALS);
            self.recovered = 0.0;
        }
    }

    /// Returns how many requests were asked for in the window, and how many of them accepted.
    pub fn counts(&mut self, now: Instant) -> (u64, u64) {
        let [refusals, accepts] = self.window.sums(now).map(i64::unsigned_abs);
        (refusals + accepts, accepts)
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

    /// Keeps every request and answer, counts those that are young enough, and follows a recovery
    /// from step to step.
    #[derive(Default)]
    struct Twin {
        requests: Vec<(u64, bool)>,
        answers: Vec<(u64, bool)>,
        recovered: f64,
        recovered_ms: u64,
        sent_ms: Option<u64>,
    }

    impl Twin {
        fn unrecovered(&self, factor: f64, now_ms: u64) -> f64 {
            let is_young = |at_ms: u64| now_ms / 3_000 - at_ms / 3_000 < 10;
            let young = self.requests.iter().filter(|(at_ms, _)| is_young(*at_ms));
            let (mut requests, mut accepts) = (0.0, 0.0);
            for (_, is_accepted) in young {
                requests += 1.0;
                accepts += f64::from(u8::from(*is_accepted));
            }
            f64::max(0.0, (requests - factor * accepts) / (requests + 1.0))
        }

        fn probability(&mut self, factor: f64, now_ms: u64) -> f64 {
            let passed_ms = now_ms - std::mem::replace(&mut self.recovered_ms, now_ms);
            let is_young = |at_ms: u64| now_ms / 100 - at_ms / 100 < 10;
            let young = self.answers.iter().filter(|(at_ms, _)| is_young(*at_ms));
            let young: Vec<_> = young.map(|(_, is_accepted)| is_accepted).collect();
            let refused = young.iter().filter(|is_accepted| !**is_accepted).count();
            let is_refusing = refused as f64 > (1.0 - 1.0 / factor) / 2.0 * young.len() as f64;
            if !young.is_empty() {
                if is_refusing || self.unrecovered(factor, now_ms) <= 0.0 {
                    self.recovered = 0.0;
                } else {
                    self.recovered += passed_ms as f64 / 6_000.0;
                    if self.recovered >= 1.0 {
                        self.recovered = 0.0;
                        self.requests.retain(|(_, is_accepted)| *is_accepted);
                    }
                }
            }
            self.unrecovered(factor, now_ms) * (1.0 - self.recovered)
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
                    twin.probability(factor, now_ms);
                    twin.requests.push((now_ms, is_accepted));
                    twin.answers.push((now_ms, is_accepted));
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

    /// A server that takes nothing from second 60 on, and everything again after so many seconds.
    fn outage(seconds: usize) -> impl Fn(usize) -> u32 {
        move |second| {
            if (60..60 + seconds).contains(&second) {
                0
            } else {
                100_000
            }
        }
    }

    #[test]
    fn half_of_the_load_is_back_within_five_seconds_and_all_of_it_within_fifteen() {
        for factor in [1.0, 1.25, 2.0] {
            for (per_second, down) in [(5, 40), (20, 10), (200, 2), (200, 50), (5_000, 200)] {
                let case = format!("{factor} {per_second} {down}");
                let seconds = simulate(factor, per_second, outage(down));
                let sent: Vec<_> = seconds.iter().map(|second| second.sent).collect();
                let back = 60 + down;
                assert!(sent[..60].iter().all(|sent| *sent == per_second), "{case}");
                if down >= 40 {
                    assert!(
                        sent[back - 1] <= 1 + per_second / 10,
                        "{case}: {:?}",
                        &sent[55..]
                    );
                }
                assert!(
                    2 * sent[back + 5] >= per_second,
                    "{case}: {:?}",
                    &sent[back..]
                );
                let later = &sent[back + 15..];
                assert!(later.iter().all(|sent| *sent == per_second), "{case}");
                // Each second brings at most a third of the load more than the one before it.
                let steps = sent[back..]
                    .windows(2)
                    .map(|two| two[1].saturating_sub(two[0]));
                assert!(
                    steps.max() <= Some(per_second.div_ceil(3)),
                    "{case}: {:?}",
                    &sent[back..]
                );
            }
        }
    }

    #[test]
    fn a_server_that_recovers_in_part_gets_a_bounded_multiple_of_what_it_takes() {
        for factor in [1.25, 2.0] {
            let capacity = |second| {
                if (60..110).contains(&second) { 0 } else { 300 }
            };
            let seconds = simulate(factor, 1_000, capacity);
            // The recovery goes on until refusals show, which is a second of answers late.
            let limit = f64::max(factor, 1.0 / (0.5 + 0.5 / factor)) * 300.0 + 1_000.0 / 6.0;
            for (at, second) in seconds.iter().enumerate().skip(110) {
                assert!(
                    f64::from(second.sent) <= 1.3 * limit,
                    "{factor} {at}: {second:?}"
                );
            }
            let accepted: u32 = seconds[140..].iter().map(|second| second.accepted).sum();
            assert!(accepted >= 160 * 240, "{factor}: {accepted}");
        }
    }

    #[test]
    fn many_clients_come_back_together_without_a_burst() {
        const CLIENTS: usize = 50;
        let (start, random) = (Instant::now(), Random::new(11));
        let mut throttles = vec![AdaptiveThrottle::new(2.0, start); CLIENTS];
        // 20 requests a second of each client; those of tenths of a second are counted together.
        let mut sent = vec![0_u32; 800];
        for (tenth, sent) in sent.iter_mut().enumerate() {
            let is_up = !(100..500).contains(&tenth);
            for half in 0..2_u64 {
                for throttle in &mut throttles {
                    let at_us = tenth as u64 * 100_000 + half * 50_000 + random.next() % 50_000;
                    let now = start + Duration::from_micros(at_us);
                    if throttle.admits(now, random.next()) {
                        *sent += 1;
                        throttle.answered(is_up, now);
                    }
                }
            }
        }
        let offered = 2 * CLIENTS as u32;
        assert!(sent.iter().all(|sent| *sent <= offered));
        let in_second = |second: usize| sent[second * 10..(second + 1) * 10].iter().sum::<u32>();
        assert!(in_second(49) <= offered * 2, "{}", in_second(49));
        assert!(in_second(55) >= offered * 5, "{}", in_second(55));
        assert!((65..80).all(|second| in_second(second) == offered * 10));
        let steps = (49..65).map(|second| in_second(second + 1).saturating_sub(in_second(second)));
        assert!(steps.max() <= Some(offered * 3));
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
