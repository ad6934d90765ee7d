//! The limiter as its users see it: stories under a simulated clock.

#![expect(clippy::cast_precision_loss, reason = "shares in messages")]

use std::collections::BinaryHeap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use umbo_types::{Operation, RequestUnits};

use super::*;
use crate::policy::{Limit, Matcher, PolicyScope, Source};
use crate::unit::Unit;
use crate::{Weights, Work};

const RU: u64 = 1_000_000;

fn policy(name: &str, per: &[Dimension], rate: u64, burst: u64) -> Policy {
    Policy {
        name: name.into(),
        matches: Matcher::default(),
        per: per.iter().copied().collect(),
        unit: Unit::Ru,
        limit: Limit { rate, burst },
        refill: Duration::from_millis(50),
        scope: if per.contains(&Dimension::Shard) {
            PolicyScope::Shard
        } else {
            PolicyScope::Pod
        },
        mode: Mode::Enforce,
        status: 429,
        source: Source::Stored,
        overrides: vec![],
    }
}

fn set(policies: impl IntoIterator<Item = Policy>) -> PolicySet {
    PolicySet::new(policies.into_iter().collect()).unwrap()
}

fn limiter(policies: impl IntoIterator<Item = Policy>, origin: Instant) -> Limiter {
    let settings = LimiterSettings {
        weights: Weights::default(),
        accounts_max: 1_000,
        buckets_max: 1_000,
        shards: 4,
        seed: 7,
    };
    Limiter::new(settings, set(policies), origin)
}

fn subject(caller: &str, operation: Operation) -> Subject<'_> {
    Subject {
        caller,
        namespace: "n",
        namespace_id: NamespaceId(1),
        user: None,
        session: None,
        org: None,
        operation,
    }
}

fn get(caller: &str, claimant: u64) -> Request<'_> {
    Request {
        subject: subject(caller, Operation::Get),
        known: Known::default(),
        claimant,
    }
}

/// Work of a get that costs exactly 1 RU and `extra` micro-RU.
fn work() -> Work {
    Work::default()
}

/// `SplitMix64` (Steele et al. 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Clients that send, wait as told, and send again as soon as they are answered.
#[test]
fn obedient_clients_use_their_quota_and_are_rejected_once() {
    for rate in [10, 64, 1_000, 20_000] {
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
            match limiter.admit(&get("c", client), now, random.next()) {
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
            "{rate}: {use_of_quota}"
        );
        assert!(rejections <= 1.2, "{rate}: {rejections}");
        assert!(first >= 0.9, "{rate}: {first}");
    }
}

fn admit(limiter: &Limiter, request: &Request<'_>, now: Instant) -> bool {
    let Ok(mut reservation) = limiter.admit(request, now, 0) else {
        return false;
    };
    reservation.settle(&work());
    true
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
fn all_policies_must_admit_and_a_refusal_charges_none() {
    let origin = Instant::now();
    let narrow = policy("narrow", &[Dimension::Caller, Dimension::Namespace], RU, RU);
    let wide = policy("wide", &[Dimension::Namespace], 10 * RU, 10 * RU);
    let limiter = limiter([narrow, wide], origin);
    assert!(admit(&limiter, &get("a", 1), origin));
    let rejection = limiter.admit(&get("a", 1), origin, 0).unwrap_err();
    assert_eq!(&*rejection.policy.name, "narrow");
    assert_eq!(rejection.label, "caller=a namespace=n");
    assert_eq!(limiter.spent("wide"), RU.cast_signed());
    for caller in ["b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        assert!(admit(&limiter, &get(caller, 1), origin));
    }
    let rejection = limiter.admit(&get("k", 1), origin, 0).unwrap_err();
    assert_eq!((&*rejection.policy.name, rejection.balance), ("wide", 0));
    assert_eq!(limiter.spent("narrow"), 10 * RU.cast_signed());
}

#[test]
fn what_a_request_cost_is_charged_afterwards_and_debt_has_to_be_worked_off() {
    let origin = Instant::now();
    let limiter = limiter(
        [policy("p", &[Dimension::Caller], 10 * RU, 10 * RU)],
        origin,
    );
    let mut reservation = limiter.admit(&get("c", 1), origin, 0).unwrap();
    reservation.sent();
    let huge = Work {
        rows: 580,
        ..Work::default()
    };
    assert_eq!(
        reservation.settle(&huge),
        RequestUnits::from_micros(30 * RU)
    );
    let rejection = limiter.admit(&get("c", 1), origin, 0).unwrap_err();
    assert_eq!(rejection.balance, -20 * RU.cast_signed());
    assert!(
        (2_000..=2_050).contains(&rejection.wait.as_millis()),
        "{:?}",
        rejection.wait
    );
    assert!(!admit(
        &limiter,
        &get("c", 1),
        origin + Duration::from_millis(1_999)
    ));
    assert!(admit(
        &limiter,
        &get("c", 1),
        origin + Duration::from_millis(2_050)
    ));
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

#[test]
fn a_request_that_is_dropped_pays_only_once_the_store_was_asked() {
    let origin = Instant::now();
    let limiter = limiter([policy("p", &[Dimension::Caller], RU, 100 * RU)], origin);
    drop(limiter.admit(&get("c", 1), origin, 0).unwrap());
    assert_eq!(limiter.spent("p"), 0);
    let mut reservation = limiter.admit(&get("c", 1), origin, 0).unwrap();
    let estimate = reservation.estimate().as_micros();
    reservation.sent();
    drop(reservation);
    assert_eq!(limiter.spent("p").cast_unsigned(), estimate);
    let mut reservation = limiter.admit(&get("c", 1), origin, 0).unwrap();
    reservation.progress(&Work {
        rows: 180,
        ..Work::default()
    });
    assert_eq!(limiter.spent("p").cast_unsigned(), estimate + 10 * RU);
    drop(reservation);
    assert_eq!(limiter.spent("p").cast_unsigned(), estimate + 10 * RU);
    let usage = limiter.usage();
    assert_eq!(usage.rows[0].tally.charged.as_micros(), estimate + 10 * RU);
}

#[test]
fn a_request_that_is_given_up_says_what_dropping_it_charges() {
    let origin = Instant::now();
    let limiter = limiter([policy("p", &[Dimension::Caller], RU, 100 * RU)], origin);
    let mut unsent = limiter.admit(&get("c", 1), origin, 0).unwrap();
    assert_eq!(unsent.abandon(), RequestUnits::ZERO);
    let mut sent = limiter.admit(&get("c", 1), origin, 0).unwrap();
    let estimate = sent.estimate();
    sent.sent();
    assert_eq!((sent.abandon(), sent.abandon()), (estimate, estimate));
    sent.release();
    assert_eq!(sent.settle(&Work::default()), estimate);
    let mut refused = limiter.admit(&get("c", 1), origin, 0).unwrap();
    refused.sent();
    refused.release();
    assert_eq!(refused.charged(), RequestUnits::ZERO);
    drop((unsent, sent, refused));
    assert_eq!(limiter.spent("p").cast_unsigned(), estimate.as_micros());
    assert_eq!(limiter.usage().rows[0].tally.requests, 1);
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story")]
fn nothing_leaks_whatever_threads_do() {
    let origin = Instant::now();
    let policies = || {
        [
            policy("a", &[Dimension::Caller], 1_000_000 * RU, 1_000_000 * RU),
            policy(
                "b",
                &[Dimension::Caller, Dimension::Shard],
                1_000_000 * RU,
                1_000_000 * RU,
            ),
        ]
    };
    let limiter = limiter(policies(), origin);
    let total = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (limiter, total) = (&limiter, &total);
            scope.spawn(move || {
                let mut random = Random(seed);
                for step in 0..20_000 {
                    let now = origin + Duration::from_micros(step);
                    let caller = ["x", "y", "z"][random.next() as usize % 3];
                    let request = get(caller, seed);
                    let mut reservation = limiter.admit(&request, now, 0).unwrap();
                    let shares = [0, 1, 2].map(|shard| ShardShare {
                        shard: ShardId(shard),
                        parts: 7,
                    });
                    limiter
                        .admit_shards(&mut reservation, &request, &shares, now, 0)
                        .unwrap();
                    let work = Work {
                        rows: random.next() % 100,
                        ..Work::default()
                    };
                    if step % 100 == 0 {
                        limiter.replace(set(policies()));
                    }
                    let paid = match random.next() % 5 {
                        0 => 0,
                        1 => {
                            reservation.sent();
                            reservation.charged().as_micros()
                        }
                        2 => {
                            reservation.progress(&work);
                            reservation.charged().as_micros()
                        }
                        3 => {
                            let panicking = std::panic::AssertUnwindSafe(|| {
                                reservation.sent();
                                let paid = reservation.charged().as_micros();
                                let held = reservation;
                                std::panic::resume_unwind(Box::new((paid, drop(held)).0));
                            });
                            let paid = std::panic::catch_unwind(panicking).unwrap_err();
                            total.fetch_add(*paid.downcast::<u64>().unwrap(), Relaxed);
                            continue;
                        }
                        _ => reservation.settle(&work).as_micros(),
                    };
                    total.fetch_add(paid, Relaxed);
                }
            });
        }
    });
    let total = total.into_inner();
    assert_eq!(limiter.spent("a").cast_unsigned(), total);
    // The three parts of a request are rounded down each.
    assert!(total - limiter.spent("b").cast_unsigned() <= 2 * 80_000);
    let usage = limiter.usage();
    let charged: u64 = usage
        .rows
        .iter()
        .map(|row| row.tally.charged.as_micros())
        .sum();
    let by_shard: u64 = usage
        .shards
        .iter()
        .map(|usage| usage.charged.as_micros())
        .sum();
    assert_eq!((charged, by_shard), (total, total));
}

#[test]
fn a_shadow_policy_is_counted_and_changes_nothing() {
    let origin = Instant::now();
    let shadow = Policy {
        mode: Mode::Shadow,
        ..policy("shadow", &[Dimension::Caller], 5 * RU, 5 * RU)
    };
    let enforced = || policy("enforced", &[Dimension::Caller], 10 * RU, 10 * RU);
    let with = limiter([enforced(), shadow.clone()], origin);
    let without = limiter([enforced()], origin);
    let alone = limiter(
        [Policy {
            mode: Mode::Enforce,
            ..shadow
        }],
        origin,
    );
    let mut random = Random(3);
    let mut refused_alone = 0;
    for step in 0..5_000 {
        let now = origin + Duration::from_millis(step * 20);
        let request = get("c", random.next());
        let verdict = admit(&with, &request, now);
        assert_eq!(verdict, admit(&without, &request, now), "{step}");
        if verdict {
            refused_alone += u64::from(!admit(&alone, &request, now));
        }
    }
    let report = with.policy_report(origin);
    assert_eq!(report[1].shadow_rejected, refused_alone);
    assert!(refused_alone > 400);
    assert_eq!((report[1].rejected, report[0].shadow_rejected), (0, 0));
}

#[test]
fn a_changed_limit_moves_no_balance_and_a_lower_burst_cuts_it() {
    let origin = Instant::now();
    let limiter = limiter(
        [policy("p", &[Dimension::Caller], 100 * RU, 1_000 * RU)],
        origin,
    );
    for _ in 0..400 {
        assert!(admit(&limiter, &get("c", 1), origin));
    }
    let balance = |now: Instant| limiter.buckets("p", now, 1)[0].balance / RU.cast_signed();
    let later = origin + Duration::from_secs(1);
    // The grid of the bucket has a phase of its own.
    let gained = balance(later) - balance(origin);
    assert!(
        balance(origin) == 600 && (95..=105).contains(&gained),
        "{gained}"
    );
    limiter.replace(set([policy(
        "p",
        &[Dimension::Caller],
        1_000 * RU,
        5_000 * RU,
    )]));
    assert!(admit(&limiter, &get("c", 1), later));
    assert_eq!(balance(later), 600 + gained - 1);
    let gained_more = balance(later + Duration::from_secs(1)) - balance(later);
    assert!((950..=1_050).contains(&gained_more), "{gained_more}");
    limiter.replace(set([policy("p", &[Dimension::Caller], 10 * RU, 50 * RU)]));
    assert!(admit(&limiter, &get("c", 1), later));
    assert_eq!(balance(later), 49);
    limiter.replace(set([]));
    assert!(admit(&limiter, &get("c", 1), later));
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
fn a_flood_of_callers_takes_no_balance_and_hands_out_no_burst() {
    let origin = Instant::now();
    let limiter = limiter([policy("p", &[Dimension::Caller], RU, 10 * RU)], origin);
    for _ in 0..10 {
        assert!(admit(&limiter, &get("known", 1), origin));
    }
    let mut admitted = 0;
    for number in 0..50_000_u64 {
        let name = format!("stranger-{number}");
        admitted += u64::from(admit(&limiter, &get(&name, number), origin));
    }
    let (accounts, buckets) = limiter.sizes();
    assert!(
        accounts <= 1_024 && buckets <= 1_024,
        "{accounts} {buckets}"
    );
    assert!(
        admitted <= 1_024 + 10,
        "those without room share one burst: {admitted}"
    );
    assert!(!admit(&limiter, &get("known", 1), origin));
    assert_eq!(
        limiter
            .usage()
            .rows
            .iter()
            .map(|row| row.tally.requests)
            .sum::<u64>(),
        10 + admitted
    );
    let later = origin + Duration::from_millis(1_100);
    let admitted = (0..10).filter(|_| admit(&limiter, &get("known", 1), later));
    assert_eq!(admitted.count(), 2, "a little more than one has flowed in");
}

#[test]
fn an_estimate_learns_and_is_bounded_by_what_the_request_may_touch() {
    let origin = Instant::now();
    let limiter = limiter([], origin);
    let range = |rows_max: Option<u64>| Request {
        subject: subject("c", Operation::Range),
        known: Known {
            rows_max,
            bytes_max: rows_max.map(|_| 0),
            body_len: None,
        },
        claimant: 1,
    };
    for _ in 0..1_000 {
        let mut reservation = limiter.admit(&range(None), origin, 0).unwrap();
        reservation.sent();
        reservation.settle(&Work {
            rows: 1_980,
            ..Work::default()
        });
    }
    let estimate = |rows_max| {
        limiter
            .explain(&range(rows_max), &[], origin)
            .estimate
            .as_micros()
    };
    assert_eq!(estimate(None), 100 * RU);
    assert_eq!(estimate(Some(20)), 2 * RU);
    let put = Request {
        subject: subject("c", Operation::Put),
        known: Known {
            body_len: Some(8_192),
            ..Known::default()
        },
        claimant: 1,
    };
    assert_eq!(
        limiter.explain(&put, &[], origin).estimate.as_micros(),
        8_050_000
    );
}

#[test]
fn a_write_that_is_shorter_than_its_body_is_learned_too() {
    let origin = Instant::now();
    let limiter = limiter([], origin);
    let batch = |body_len| Request {
        subject: subject("c", Operation::BatchWrite),
        known: Known {
            body_len: Some(body_len),
            ..Known::default()
        },
        claimant: 1,
    };
    let estimate = |body_len| limiter.explain(&batch(body_len), &[], origin).estimate;
    assert_eq!(estimate(81_920).as_micros(), 26 * RU);
    for _ in 0..1_000 {
        let mut reservation = limiter.admit(&batch(81_920), origin, 0).unwrap();
        reservation.sent();
        reservation.settle(&Work {
            write_bytes: 40_960,
            ..Work::default()
        });
    }
    assert_eq!(estimate(81_920).as_micros(), 16 * RU);
    assert_eq!(
        estimate(8_192).as_micros(),
        6 * RU,
        "never less than the base"
    );
}

#[test]
fn a_replay_says_what_a_policy_would_have_refused() {
    let origin = Instant::now();
    let limiter = limiter([], origin);
    // 100 requests a second for 50 s, of 1 RU each.
    for step in 0..5_000 {
        let now = origin + Duration::from_millis(step * 10);
        if step % 100 == 0 {
            limiter.maintain(now);
        }
        assert!(admit(&limiter, &get("c", 1), now));
    }
    limiter.maintain(origin + Duration::from_secs(50));
    let proposed = policy("p", &[Dimension::Caller], 60 * RU, 60 * RU);
    let replay = limiter.replay(&proposed, Duration::from_hours(1));
    let row = &replay.rows[0];
    assert_eq!((row.label.as_str(), row.requests), ("caller=c", 5_000));
    assert!((1_900..=2_000).contains(&row.refused), "{}", row.refused);
    let ample = policy("p", &[Dimension::Caller], 110 * RU, 110 * RU);
    assert_eq!(
        limiter.replay(&ample, Duration::from_hours(1)).rows[0].refused,
        0
    );
}
