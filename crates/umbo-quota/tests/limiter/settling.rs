//! What a request is charged in the end, and what it was estimated at.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use umbo_quota::{ActualUsage, CostHint, Dimension, Policy, QuotaRequest, ShardShare, Unit};
use umbo_types::{Attribute, Operation, PriceMultiplier, RequestUnits, ShardId};

use crate::support::{RU, Random, admit, get, limiter, policy, retry, set, subject};

#[test]
fn what_a_request_cost_is_charged_afterwards_and_debt_has_to_be_worked_off() {
    let origin = Instant::now();
    let limiter = limiter(
        [policy("p", &[Dimension::Caller], 10 * RU, 10 * RU)],
        origin,
    );
    let mut reservation = limiter.admit(&get("c"), origin, 0).unwrap();
    reservation.sent();
    let huge = ActualUsage {
        rows: 580,
        ..ActualUsage::default()
    };
    assert_eq!(
        reservation.settle(&huge),
        RequestUnits::from_micros(30 * RU)
    );
    let rejection = limiter.admit(&get("c"), origin, 0).unwrap_err();
    assert_eq!(rejection.balance, -20 * RU.cast_signed());
    assert!(
        (2_000..=2_050).contains(&rejection.wait.as_millis()),
        "{:?}",
        rejection.wait
    );
    let retry = retry("c", rejection.ticket.unwrap());
    let at = |millis| origin + Duration::from_millis(millis);
    assert!(!admit(&limiter, &retry, at(1_999)));
    assert!(admit(&limiter, &retry, at(2_050)));
}

#[test]
fn the_time_of_a_slow_read_among_fast_ones_is_charged_in_full() {
    let origin = Instant::now();
    let limiter = limiter([], origin);
    let read = |service_time| {
        let work = ActualUsage {
            rows: 1,
            reads: 1,
            service_time,
            ..ActualUsage::default()
        };
        let mut reservation = limiter.admit(&get("c"), origin, 0).unwrap();
        reservation.sent();
        reservation.settle(&work).as_micros()
    };
    for _ in 0..1_000 {
        assert_eq!(read(Duration::from_micros(10)), RU + RU / 20 + 1_000);
    }
    assert_eq!(read(Duration::from_millis(10)), RU + RU / 20 + RU);
    assert_eq!(read(Duration::from_secs(3)), RU + RU / 20 + 300 * RU);
}

#[test]
fn a_request_that_is_dropped_pays_only_once_the_store_was_asked() {
    let origin = Instant::now();
    let limiter = limiter([policy("p", &[Dimension::Caller], RU, 100 * RU)], origin);
    drop(limiter.admit(&get("c"), origin, 0).unwrap());
    assert_eq!(limiter.spent("p"), 0);
    let mut reservation = limiter.admit(&get("c"), origin, 0).unwrap();
    let estimate = reservation.estimate().as_micros();
    reservation.sent();
    drop(reservation);
    assert_eq!(limiter.spent("p").cast_unsigned(), estimate);
    let mut reservation = limiter.admit(&get("c"), origin, 0).unwrap();
    reservation.progress(&ActualUsage {
        rows: 180,
        ..ActualUsage::default()
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
    let mut unsent = limiter.admit(&get("c"), origin, 0).unwrap();
    assert_eq!(unsent.abandon(), RequestUnits::ZERO);
    let mut sent = limiter.admit(&get("c"), origin, 0).unwrap();
    let estimate = sent.estimate();
    sent.sent();
    assert_eq!((sent.abandon(), sent.abandon()), (estimate, estimate));
    sent.release();
    assert_eq!(sent.settle(&ActualUsage::default()), estimate);
    let mut refused = limiter.admit(&get("c"), origin, 0).unwrap();
    refused.sent();
    refused.release();
    assert_eq!(refused.charged(), RequestUnits::ZERO);
    drop((unsent, sent, refused));
    assert_eq!(limiter.spent("p").cast_unsigned(), estimate.as_micros());
    assert_eq!(limiter.usage().rows[0].tally.requests, 1);
}

#[test]
fn shards_that_nothing_reached_are_given_back_and_nobody_else_is() {
    let origin = Instant::now();
    let per = |name, dimensions: &[Dimension]| policy(name, dimensions, RU, 100 * RU);
    let policies = [
        per("whole", &[Dimension::Caller]),
        per("user", &[Dimension::Attribute(Attribute::User)]),
        per("shard", &[Dimension::Shard]),
    ];
    let limiter = limiter(policies, origin);
    let mut request = get("c");
    request.subject.attributes[Attribute::User] = Some("u");
    let mut reservation = limiter.admit(&request, origin, 0).unwrap();
    let share = ShardShare {
        shard: ShardId(1),
        parts: 1,
    };
    limiter
        .admit_shards(&mut reservation, &request, &[share], origin, 0)
        .unwrap();
    let estimate = reservation.estimate().as_micros().cast_signed();
    let spent = || ["whole", "user", "shard"].map(|name| limiter.spent(name));
    assert_eq!(spent(), [estimate; 3]);
    reservation.release_shards();
    assert_eq!(spent(), [estimate, estimate, 0]);
    let price = RequestUnits::from_micros(RU / 10);
    let paid = reservation.settle_at(price, &ActualUsage::default());
    assert_eq!(paid, price);
    let paid = paid.as_micros().cast_signed();
    assert_eq!(spent(), [paid, paid, 0]);
    assert!(
        limiter
            .usage()
            .shards
            .iter()
            .all(|shard| shard.charged.as_micros() == 0)
    );
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
                    let request = get(caller);
                    let mut reservation = limiter.admit(&request, now, 0).unwrap();
                    let shares = [0, 1, 2].map(|shard| ShardShare {
                        shard: ShardId(shard),
                        parts: 7,
                    });
                    limiter
                        .admit_shards(&mut reservation, &request, &shares, now, 0)
                        .unwrap();
                    let work = ActualUsage {
                        rows: random.next() % 100,
                        ..ActualUsage::default()
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
fn an_estimate_learns_and_is_bounded_by_what_the_request_may_touch() {
    let origin = Instant::now();
    let limiter = limiter([], origin);
    let range = |rows_max: Option<u64>| QuotaRequest {
        subject: subject("c", Operation::Range),
        hint: CostHint {
            rows_max,
            bytes_max: rows_max.map(|_| 0),
            body_len: None,
            ..CostHint::default()
        },
        ticket: None,
        price_multiplier: PriceMultiplier::NONE,
    };
    for _ in 0..1_000 {
        let mut reservation = limiter.admit(&range(None), origin, 0).unwrap();
        reservation.sent();
        reservation.settle(&ActualUsage {
            rows: 1_980,
            ..ActualUsage::default()
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
    let put = QuotaRequest {
        subject: subject("c", Operation::Put),
        hint: CostHint {
            body_len: Some(8_192),
            ..CostHint::default()
        },
        ticket: None,
        price_multiplier: PriceMultiplier::NONE,
    };
    assert_eq!(
        limiter.explain(&put, &[], origin).estimate.as_micros(),
        8_050_000
    );
}

#[test]
fn few_rows_are_expected_to_be_as_large_as_those_before() {
    let origin = Instant::now();
    let limiter = limiter([], origin);
    let range = |rows_max: u64, bytes_max: u64| QuotaRequest {
        subject: subject("c", Operation::Range),
        hint: CostHint {
            rows_max: Some(rows_max),
            bytes_max: Some(bytes_max),
            body_len: None,
            ..CostHint::default()
        },
        ticket: None,
        price_multiplier: PriceMultiplier::NONE,
    };
    let estimate = |rows_max, bytes_max| {
        let explained = limiter.explain(&range(rows_max, bytes_max), &[], origin);
        explained.estimate.as_micros()
    };
    assert_eq!(estimate(1, 4_096), 2_050_000, "nothing is known of rows");
    for _ in 0..100 {
        let mut reservation = limiter.admit(&range(1_000, 1 << 30), origin, 0).unwrap();
        reservation.sent();
        reservation.settle(&ActualUsage {
            rows: 1_000,
            read_bytes: 1_000 * 1_024,
            reads: 1,
            ..ActualUsage::default()
        });
    }
    assert_eq!(estimate(5_000, 1 << 30), 301 * RU, "what it was before");
    assert_eq!(estimate(4, 1 << 30), 2_200_000, "four rows of a kibibyte");
    assert_eq!(estimate(4, 2_048), 1_700_000, "fewer bytes than that");
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
        assert!(admit(&limiter, &get("c"), now));
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

#[test]
fn a_replay_counts_reads_as_they_are_charged() {
    // A range or scan is one read, however many rows it has; a multi-get is one for each key.
    for (operation, rows, reads) in [
        (Operation::Range, 50, 1),
        (Operation::Scan, 50, 1),
        (Operation::MultiGet, 50, 50),
        (Operation::Get, 1, 1),
    ] {
        let origin = Instant::now();
        let limiter = limiter([], origin);
        let request = QuotaRequest {
            subject: subject("c", operation),
            ..get("c")
        };
        for _ in 0..100 {
            let mut reservation = limiter.admit(&request, origin, 0).unwrap();
            reservation.sent();
            reservation.settle(&ActualUsage {
                rows,
                reads,
                ..ActualUsage::default()
            });
        }
        limiter.maintain(origin + Duration::from_secs(6));
        let proposed = Policy {
            unit: Unit::Reads,
            ..policy("p", &[Dimension::Caller], 60 * RU, 60 * RU)
        };
        let replay = limiter.replay(&proposed, Duration::from_hours(1));
        let asked = replay.rows[0].asked_amount / Unit::Reads.atoms_per_unit();
        assert_eq!(asked, 100 * reads, "{operation:?}");
    }
}

#[test]
fn a_write_that_is_shorter_than_its_body_is_learned_too() {
    let origin = Instant::now();
    let limiter = limiter([], origin);
    let batch = |body_len| QuotaRequest {
        subject: subject("c", Operation::BatchWrite),
        hint: CostHint {
            body_len: Some(body_len),
            ..CostHint::default()
        },
        ticket: None,
        price_multiplier: PriceMultiplier::NONE,
    };
    let estimate = |body_len| limiter.explain(&batch(body_len), &[], origin).estimate;
    assert_eq!(estimate(81_920).as_micros(), 26 * RU);
    for _ in 0..1_000 {
        let mut reservation = limiter.admit(&batch(81_920), origin, 0).unwrap();
        reservation.sent();
        reservation.settle(&ActualUsage {
            write_bytes: 40_960,
            ..ActualUsage::default()
        });
    }
    assert_eq!(estimate(81_920).as_micros(), 16 * RU);
    assert_eq!(
        estimate(8_192).as_micros(),
        6 * RU,
        "never less than the base"
    );
}
