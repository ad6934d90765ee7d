//! Who is let in, who has to wait, and how long.
#![expect(clippy::cast_precision_loss, reason = "shares in messages")]

use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use umbo_quota::{ActualUsage, Dimension, QuotaRequest, RetryTicket};
use umbo_types::{Operation, RequestUnits};

use crate::support::{RU, Random, admit, get, limiter, policy, retry, subject, work};

/// Clients that send, wait as told, send again with their ticket, and go on as soon as they are
/// answered.
#[test]
fn clients_with_tickets_use_their_quota_and_are_rejected_once() {
    for rate in [10, 64, 1_000, 20_000] {
        let origin = Instant::now();
        let limiter = limiter(
            [policy("p", &[Dimension::Caller], rate * RU, rate * RU)],
            origin,
        );
        let mut random = Random(rate);
        // Demand without the quota: four times as much.
        let think_us = 64 * 1_000_000 / (4 * rate);
        let mut events: BinaryHeap<std::cmp::Reverse<(u64, usize, u32)>> = BinaryHeap::new();
        let mut tickets = [None; 64];
        for client in 0..tickets.len() {
            let first_us = random.next() % think_us.max(1);
            events.push(std::cmp::Reverse((first_us, client, 0)));
        }
        let (mut admitted, mut rejected, mut first_retries, mut first_successes) = (0, 0, 0, 0);
        let (from_us, to_us) = (20_000_000, 60_000_000);
        while let Some(std::cmp::Reverse((at_us, client, attempt))) = events.pop() {
            if at_us > to_us {
                break;
            }
            let now = origin + Duration::from_micros(at_us);
            let is_counted = at_us >= from_us;
            let request = match tickets[client].take() {
                Some(ticket) => retry("c", ticket),
                None => get("c"),
            };
            match limiter.admit(&request, now, random.next()) {
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
                    tickets[client] = rejection.ticket;
                    events.push(std::cmp::Reverse((at_us + wait, client, attempt + 1)));
                }
            }
        }
        let use_of_quota = admitted as f64 / (rate as f64 * 40.0);
        let rejections = rejected as f64 / admitted as f64;
        let first = first_successes as f64 / first_retries as f64;
        assert!(
            use_of_quota > 0.97 && use_of_quota < 1.01,
            "{rate}: {use_of_quota}"
        );
        assert!(rejections <= 1.2, "{rate}: {rejections}");
        assert!(first >= 0.9, "{rate}: {first}");
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
    let mut ticket = None;
    let mut count = |now: Instant| {
        let ask = |_| {
            let request = ticket.take().map_or(get("c"), |ticket| retry("c", ticket));
            match limiter.admit(&request, now, 0) {
                Ok(mut reservation) => reservation.settle(&work()),
                Err(rejection) => {
                    ticket = rejection.ticket;
                    return false;
                }
            };
            true
        };
        (0..1_000)
            .map(ask)
            .filter(|is_admitted| *is_admitted)
            .count()
    };
    assert_eq!(count(at(0)), 100);
    assert_eq!(count(at(1)), 20);
    assert_eq!(count(at(3)), 40);
    assert_eq!(count(at(1_000)), 100, "no more than the burst gathers");
    assert!(
        admit(&limiter, &get("other"), at(1_000)),
        "everybody has a bucket"
    );
}

#[test]
fn a_caller_that_forgets_its_tickets_does_not_lock_itself_out_of_its_burst() {
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
            admit(&limiter, &get("c"), now)
        });
        phases.push(admitted.count());
    }
    // The burst and five seconds of the rate.
    for admitted in &phases[1..] {
        assert!((585..=605).contains(admitted), "{phases:?}");
    }
}

/// Serves so many clients with tickets for a minute, beside so many strangers each millisecond who ask of the same bucket
/// and never come back. A client comes up to `late` milliseconds later than told. Returns how often they came with a
/// ticket, and how often they were served then.
fn beside_a_flood(strangers: u64, clients: usize, late: u64) -> (u64, u64) {
    let origin = Instant::now();
    let limiter = limiter(
        [policy("p", &[Dimension::Caller], 100 * RU, 100 * RU)],
        origin,
    );
    let mut random = Random(strangers);
    let mut waiting: Vec<Option<(Instant, RetryTicket)>> = vec![None; clients];
    let (mut retries, mut served) = (0, 0);
    for step in 0..60_000_u64 {
        let now = origin + Duration::from_millis(step);
        for _ in 0..strangers {
            let _ = admit(&limiter, &get("c"), now);
        }
        for client in &mut waiting {
            let request = match *client {
                Some((due, _)) if now < due => continue,
                Some((_, ticket)) => retry("c", ticket),
                None => get("c"),
            };
            let is_retry = client.is_some();
            *client = match limiter.admit(&request, now, random.next()) {
                Ok(_) => {
                    served += u64::from(is_retry);
                    None
                }
                Err(rejection) => {
                    let late = Duration::from_millis(random.next() % (late + 1));
                    Some((now + rejection.wait + late, rejection.ticket.unwrap()))
                }
            };
            retries += u64::from(is_retry);
        }
    }
    (retries, served)
}

#[test]
fn a_client_with_tickets_is_served_beside_a_flood_that_never_comes_back() {
    // Ten times the quota, and so many times more that few of a thousand tickets are worth anything.
    for (strangers, clients, late) in [
        (1, 1, 0),
        (1, 16, 100),
        (12, 1, 0),
        (12, 16, 30),
        (50, 1, 0),
    ] {
        let (retries, served) = beside_a_flood(strangers, clients, late);
        let case =
            format!("{served} of {retries} beside {strangers}, {clients} clients, {late} ms late");
        assert!(served > 200, "{case}");
        assert!(served * 10 >= retries * 8, "{case}");
    }
}

#[test]
fn a_ticket_is_good_once_and_not_before_it_is_due() {
    let origin = Instant::now();
    let limiter = limiter(
        [policy("p", &[Dimension::Caller], 100 * RU, 100 * RU)],
        origin,
    );
    let at = |millis: u64| origin + Duration::from_millis(millis);
    let exhaust = |now| while admit(&limiter, &get("c"), now) {};
    exhaust(origin);
    // Two wait for the next refill, and what they wait for is kept for them.
    let rejected = |request: &QuotaRequest<'_>, now| *limiter.admit(request, now, 0).unwrap_err();
    let tickets = [0, 1].map(|_| rejected(&get("c"), origin).ticket.unwrap());
    let early = rejected(&retry("c", tickets[0]), at(10));
    assert_eq!(early.ticket, Some(tickets[0]), "it is given back");
    let due = at(200);
    exhaust(due);
    assert!(admit(&limiter, &retry("c", tickets[0]), due));
    assert!(!admit(&limiter, &retry("c", tickets[0]), due), "used");
    assert!(!admit(&limiter, &get("c"), due));
    assert!(admit(&limiter, &retry("c", tickets[1]), due));
    // Of another bucket it is worth nothing.
    exhaust(due);
    while admit(&limiter, &get("d"), due) {}
    let other = rejected(&get("d"), due).ticket.unwrap();
    let due = at(400);
    exhaust(due);
    assert!(!admit(&limiter, &retry("c", other), due));
}

#[test]
fn one_huge_request_locks_its_owner_out_for_a_minute_at_most() {
    let origin = Instant::now();
    let limiter = limiter(
        [policy("p", &[Dimension::Caller], 10 * RU, 10 * RU)],
        origin,
    );
    let range = QuotaRequest {
        subject: subject("c", Operation::Range),
        ..get("c")
    };
    let mut reservation = limiter.admit(&range, origin, 0).unwrap();
    reservation.sent();
    let huge = ActualUsage {
        rows: 100_000,
        ..ActualUsage::default()
    };
    reservation.settle(&huge);
    // 5,001 RU at 10 RU a second: a minute of it is owed, the rest is written off.
    let first = (0..2_000)
        .map(|step| 50 * step)
        .find(|&millis| admit(&limiter, &get("c"), origin + Duration::from_millis(millis)));
    assert!((59_900..=60_500).contains(&first.unwrap()), "{first:?}");
    assert_eq!(limiter.spent("p"), 5_002 * RU.cast_signed());
    let report = limiter.policy_report(origin);
    assert_eq!(report[0].forgiven, (5_001 - 10 - 600) * RU);
}

#[test]
fn a_flood_of_huge_requests_gets_its_quota_and_no_more() {
    let origin = Instant::now();
    let limiter = limiter(
        [policy("p", &[Dimension::Caller], 100 * RU, 100 * RU)],
        origin,
    );
    let huge = ActualUsage {
        rows: 100_000,
        ..ActualUsage::default()
    };
    for step in 0..20 * 600 {
        let now = origin + Duration::from_millis(step * 50);
        if let Ok(mut reservation) = limiter.admit(&get("c"), now, 0) {
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
