//! Who is let in, who has to wait, and how long.
#![expect(clippy::cast_precision_loss, reason = "shares in messages")]

use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use umbo_quota::{Dimension, Request, Work};
use umbo_types::{Operation, RequestUnits};

use crate::support::{RU, Random, admit, get, limiter, policy, subject, work};

/// Clients that send, wait as told, and send again as soon as they are answered: each by its own
/// connection, or all by a pool of them, where each asks for something else.
#[test]
fn obedient_clients_use_their_quota_and_are_rejected_once() {
    for (rate, pool) in [
        (10, 0),
        (64, 0),
        (1_000, 0),
        (20_000, 0),
        (10, 16),
        (64, 1),
        (1_000, 16),
    ] {
        let origin = Instant::now();
        let limiter = limiter(
            [policy("p", &[Dimension::Caller], rate * RU, rate * RU)],
            origin,
        );
        let mut random = Random(rate);
        // Demand without the quota: four times as much.
        let think_us = 64 * 1_000_000 / (4 * rate);
        let mut events: BinaryHeap<std::cmp::Reverse<(u64, u64, u32)>> = BinaryHeap::new();
        for client in 0..64 {
            events.push(std::cmp::Reverse((
                random.next() % think_us.max(1),
                client,
                0,
            )));
        }
        let (mut admitted, mut rejected, mut first_retries, mut first_successes) = (0, 0, 0, 0);
        let (from_us, to_us) = (20_000_000, 60_000_000);
        while let Some(std::cmp::Reverse((at_us, client, attempt))) = events.pop() {
            if at_us > to_us {
                break;
            }
            let now = origin + Duration::from_micros(at_us);
            let is_counted = at_us >= from_us;
            let claimant = match pool {
                0 => (1 + client) << 32,
                _ => (1 + random.next() % pool) << 32 | (1 + client),
            };
            match limiter.admit(&get("c", claimant), now, random.next()) {
                Ok(mut reservation) => {
                    reservation.sent();
                    assert_eq!(reservation.settle(&work()), RequestUnits::from_micros(RU));
                    admitted += u64::from(is_counted);
                    first_successes += u64::from(is_counted && attempt == 1);
                    first_retries += u64::from(is_counted && attempt == 1);
                    let think = think_us / 2 + random.next() % think_us.max(1);
                    events.push(std::cmp::Reverse((at_us + think.max(100), client, 0)));
                }
                Err(rejection) => {
                    assert!(rejection.wait >= Duration::from_millis(50));
                    rejected += u64::from(is_counted);
                    first_retries += u64::from(is_counted && attempt == 1);
                    let wait = rejection.wait.as_micros() as u64;
                    events.push(std::cmp::Reverse((at_us + wait, client, attempt + 1)));
                }
            }
        }
        let use_of_quota = admitted as f64 / (rate as f64 * 40.0);
        let rejections = rejected as f64 / admitted as f64;
        let first = first_successes as f64 / first_retries as f64;
        assert!(
            use_of_quota > 0.97 && use_of_quota < 1.01,
            "{rate} {pool}: {use_of_quota}"
        );
        assert!(rejections <= 1.2, "{rate} {pool}: {rejections}");
        assert!(first >= 0.9, "{rate} {pool}: {first}");
    }
}

#[test]
fn a_burst_then_the_rate() {
    let origin = Instant::now();
    let limiter = limiter(
        [policy("p", &[Dimension::Caller], 20 * RU, 100 * RU)],
        origin,
    );
    let at = |seconds: u64| origin + Duration::from_secs(seconds);
    let count = |now: Instant| {
        (0..1_000)
            .filter(|_| admit(&limiter, &get("c", 1), now))
            .count()
    };
    assert_eq!(count(at(0)), 100);
    assert_eq!(count(at(1)), 20);
    assert_eq!(count(at(3)), 40);
    assert_eq!(count(at(1_000)), 100, "no more than the burst gathers");
    assert!(
        admit(&limiter, &get("other", 1), at(1_000)),
        "everybody has a bucket"
    );
}

#[test]
fn whoever_never_comes_back_does_not_lock_itself_out_of_its_burst() {
    let origin = Instant::now();
    let limiter = limiter(
        [policy("p", &[Dimension::Caller], 100 * RU, 100 * RU)],
        origin,
    );
    // Five seconds at four times the rate, five of silence, and each request is forgotten.
    let mut phases = Vec::new();
    for phase in 0..6_u64 {
        let begin = origin + Duration::from_secs(10 * phase);
        let admitted = (0..2_000_u64).filter(|at| {
            let now = begin + Duration::from_micros(2_500 * at);
            admit(&limiter, &get("c", phase << 32 | at), now)
        });
        phases.push(admitted.count());
    }
    // The burst and five seconds of the rate.
    for admitted in &phases[1..] {
        assert!((585..=605).contains(admitted), "{phases:?}");
    }
}

#[test]
fn whoever_waits_as_told_is_served_beside_a_flood_that_does_not() {
    let origin = Instant::now();
    let limiter = limiter(
        [policy("p", &[Dimension::Caller], 100 * RU, 100 * RU)],
        origin,
    );
    let (mut due, mut first_tries, mut served) = (None, 0, 0);
    for step in 0..60_000_u64 {
        let now = origin + Duration::from_millis(step);
        // A thousand strangers a second to its bucket, of whom nobody comes back.
        let _ = admit(&limiter, &get("c", 1 << 32 | step), now);
        if due.is_none_or(|at| at <= now) {
            let is_return = due.is_some();
            let ticket = first_tries;
            due = match limiter.admit(&get("c", ticket), now, step) {
                Ok(_) => {
                    served += u64::from(is_return);
                    first_tries += 1;
                    None
                }
                Err(rejection) => Some(now + rejection.wait),
            };
        }
    }
    assert!(served > 200, "served {served} of {first_tries}");
}

#[test]
fn one_huge_request_is_paid_for_without_a_long_lockout() {
    let origin = Instant::now();
    let limiter = limiter(
        [policy("p", &[Dimension::Caller], 10 * RU, 10 * RU)],
        origin,
    );
    let range = Request {
        subject: subject("c", Operation::Range),
        ..get("c", 1)
    };
    let mut reservation = limiter.admit(&range, origin, 0).unwrap();
    reservation.sent();
    let huge = Work {
        rows: 100_000,
        ..Work::default()
    };
    reservation.settle(&huge);
    let mut admitted = 0;
    // 5,001 RU at 10 RU a second: two seconds of silence, then half the rate until it is paid.
    for step in 0..20 * 120 {
        let now = origin + Duration::from_millis(step * 50);
        let Ok(mut reservation) = limiter.admit(&get("c", step), now, 0) else {
            continue;
        };
        reservation.settle(&work());
        admitted += 1;
    }
    assert!((560..=600).contains(&admitted), "{admitted}");
    assert_eq!(limiter.spent("p"), (5_001 + admitted) * RU.cast_signed());
}

#[test]
fn a_flood_of_huge_requests_gets_its_quota_and_no_more() {
    let origin = Instant::now();
    let limiter = limiter(
        [policy("p", &[Dimension::Caller], 100 * RU, 100 * RU)],
        origin,
    );
    let huge = Work {
        rows: 100_000,
        ..Work::default()
    };
    for step in 0..20 * 600 {
        let now = origin + Duration::from_millis(step * 50);
        if let Ok(mut reservation) = limiter.admit(&get("c", step % 8), now, 0) {
            reservation.sent();
            reservation.settle(&huge);
        }
    }
    let spent = limiter.spent("p") / RU.cast_signed();
    // Ten minutes at 100 RU a second, a burst, and the request that overdraws.
    assert!(
        (60_000..=60_000 + 100 + 2 * 5_001).contains(&spent),
        "{spent}"
    );
}
