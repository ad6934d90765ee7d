//! Crowds: clients of one quota that all ask as often as they may, some of them with tickets, some without, some
//! that ask again at once.
#![expect(clippy::cast_precision_loss, reason = "shares in messages")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use umbo_quota::{Dimension, RetryTicket};

use crate::support::{RU, Random, get, limiter, policy, retry, work};

/// More than the shortest wait that is told: a refill, its jitter and the rounding to the next one.
const WAIT_LEAST: Duration = Duration::from_millis(150);

/// How a client behaves when it is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Waits as told and brings its ticket.
    Ticket,
    /// Waits as told and brings nothing.
    Patient,
    /// Asks again after so many microseconds.
    Impatient(u64),
}

/// What came of one client.
#[derive(Debug, Clone, Default)]
struct Outcome {
    served: u64,
    rejected: u64,
    /// Requests that were rejected, and those of them that were served when they were repeated for the first time.
    repeated: u64,
    repeated_once: u64,
    /// The longest wait that it was told.
    wait_max: Duration,
}

/// A quota with its clients.
struct Crowd {
    /// Requests a second.
    rate: u64,
    burst: u64,
    clients: Vec<Manner>,
    seconds: u64,
    /// By how much a client comes later than told, at most, in microseconds.
    late_us: u64,
}

impl Crowd {
    fn of(rate: u64, clients: &[(usize, Manner)]) -> Self {
        let clients = clients
            .iter()
            .flat_map(|(count, manner)| std::iter::repeat_n(*manner, *count));
        Self {
            rate,
            burst: rate,
            clients: clients.collect(),
            seconds: (400 / rate).max(20),
            late_us: 3_000,
        }
    }

    /// Serves all clients; each asks for the next row as soon as it has one.
    fn serve(&self, seed: u64) -> Vec<Outcome> {
        let origin = Instant::now();
        let policy = policy("p", &[Dimension::Caller], self.rate * RU, self.burst * RU);
        let limiter = limiter([policy], origin);
        let mut random = Random(seed);
        let mut outcomes = vec![Outcome::default(); self.clients.len()];
        let mut tickets: Vec<Option<RetryTicket>> = vec![None; self.clients.len()];
        let mut attempts = vec![0; self.clients.len()];
        let mut events = BinaryHeap::new();
        for client in 0..self.clients.len() {
            events.push(Reverse((random.next() % 2_000, client)));
        }
        let mut maintained_us = 0;
        while let Some(Reverse((at_us, client))) = events.pop() {
            if at_us > self.seconds * 1_000_000 {
                break;
            }
            let now = origin + Duration::from_micros(at_us);
            if at_us >= maintained_us {
                limiter.maintain(now);
                maintained_us += 1_000_000;
            }
            let ticket = tickets[client].take();
            let request = ticket.map_or(get("c"), |ticket| retry("c", ticket));
            let outcome = &mut outcomes[client];
            let after_us = match limiter.admit(&request, now, random.next()) {
                Ok(mut reservation) => {
                    reservation.sent();
                    reservation.settle(&work());
                    outcome.served += 1;
                    outcome.repeated += u64::from(attempts[client] > 0);
                    outcome.repeated_once += u64::from(attempts[client] == 1);
                    attempts[client] = 0;
                    1_000 + random.next() % 1_000
                }
                Err(rejection) => {
                    outcome.rejected += 1;
                    outcome.wait_max = outcome.wait_max.max(rejection.wait);
                    attempts[client] += 1;
                    let wait_us = rejection.wait.as_micros() as u64;
                    match self.clients[client] {
                        Manner::Ticket => {
                            tickets[client] = rejection.ticket;
                            wait_us + random.next() % (self.late_us + 1)
                        }
                        Manner::Patient => wait_us + random.next() % (self.late_us + 1),
                        Manner::Impatient(again_us) => again_us,
                    }
                }
            };
            events.push(Reverse((at_us + after_us, client)));
        }
        outcomes
    }
}

/// Figures of some clients.
#[derive(Debug)]
struct Figures {
    /// The least and the greatest share of a client, where 1 is equal.
    shares: (f64, f64),
    rejections_a_success: f64,
    first_repetition: f64,
    /// Of what the rate allows.
    of_quota: f64,
    wait_max: Duration,
}

fn figures(crowd: &Crowd, outcomes: &[Outcome]) -> Figures {
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>() as f64;
    let served = sum(|outcome| outcome.served);
    let equal = served / outcomes.len() as f64;
    let shares = outcomes.iter().map(|outcome| outcome.served as f64 / equal);
    let allowed = (crowd.rate * crowd.seconds + crowd.burst) as f64;
    Figures {
        shares: shares.fold((f64::INFINITY, 0.0), |(least, most), share| {
            (share.min(least), share.max(most))
        }),
        rejections_a_success: sum(|outcome| outcome.rejected) / served,
        first_repetition: sum(|outcome| outcome.repeated_once) / sum(|outcome| outcome.repeated),
        of_quota: served / allowed,
        wait_max: outcomes
            .iter()
            .map(|outcome| outcome.wait_max)
            .max()
            .unwrap_or_default(),
    }
}

/// Serves a crowd with some seeds; returns the figures of the first clients of each.
fn served(crowd: &Crowd, clients: usize) -> Vec<Figures> {
    (1..=4)
        .map(|seed| figures(crowd, &crowd.serve(seed)[..clients]))
        .collect()
}

#[test]
fn twelve_patient_clients_with_tickets_share_a_quota() {
    for rate in [2, 5, 20, 100] {
        for figures in served(&Crowd::of(rate, &[(12, Manner::Ticket)]), 12) {
            let (least, most) = figures.shares;
            assert!(least >= 0.9 && most <= 1.1, "{rate}: {figures:?}");
            assert!(figures.rejections_a_success <= 1.2, "{rate}: {figures:?}");
            assert!(figures.first_repetition >= 0.95, "{rate}: {figures:?}");
            assert!(figures.of_quota >= 0.97, "{rate}: {figures:?}");
        }
    }
}

#[test]
fn twelve_patient_clients_without_tickets_are_told_a_wait_that_counts_the_others() {
    for rate in [2, 5, 20, 100] {
        let mut crowd = Crowd::of(rate, &[(12, Manner::Patient)]);
        crowd.seconds = crowd.seconds.max(40);
        for figures in served(&crowd, 12) {
            let (least, most) = figures.shares;
            assert!(least >= 0.8 && most <= 1.2, "{rate}: {figures:?}");
            assert!(figures.rejections_a_success <= 1.2, "{rate}: {figures:?}");
            assert!(figures.of_quota >= 0.97, "{rate}: {figures:?}");
            // Twelve turns, and some that are reserved twice before it is seen that nobody brings tickets.
            let turns = Duration::from_secs(24) / u32::try_from(rate).unwrap();
            assert!(
                figures.wait_max <= turns + WAIT_LEAST,
                "{rate}: {figures:?}"
            );
        }
    }
}

#[test]
fn six_patient_clients_of_two_requests_a_second_are_rejected_once_a_success() {
    // From the first second on: twelve seconds, as somebody measured who tried it.
    let mut crowd = Crowd::of(2, &[(6, Manner::Patient)]);
    crowd.seconds = 12;
    for figures in served(&crowd, 6) {
        assert!(figures.rejections_a_success <= 1.5, "{figures:?}");
    }
}

#[test]
fn clients_with_and_without_tickets_are_a_crowd_together() {
    for rate in [2, 20] {
        for with in [1, 6] {
            let clients = [(with, Manner::Ticket), (12 - with, Manner::Patient)];
            let crowd = Crowd::of(rate, &clients);
            for figures in served(&crowd, with) {
                assert!(
                    figures.first_repetition >= 0.95,
                    "{rate} {with}: {figures:?}"
                );
                assert!(
                    figures.rejections_a_success <= 1.2,
                    "{rate} {with}: {figures:?}"
                );
            }
        }
    }
}

#[test]
fn beside_clients_that_ask_again_at_once_those_with_tickets_keep_their_turns() {
    for rate in [5, 20, 100] {
        for again_us in [2_000, 5_000] {
            let clients = [(12, Manner::Ticket), (12, Manner::Impatient(again_us))];
            let mut crowd = Crowd::of(rate, &clients);
            crowd.seconds = crowd.seconds.max(30);
            let figures = figures(&crowd, &crowd.serve(1)[..12]);
            assert!(
                figures.first_repetition >= 0.9,
                "{rate} {again_us}: {figures:?}"
            );
            assert!(
                figures.rejections_a_success <= 1.2,
                "{rate} {again_us}: {figures:?}"
            );
            assert!(figures.of_quota >= 0.7, "{rate} {again_us}: {figures:?}");
        }
    }
}
