//! Requests whose price an overload multiplies.

use std::time::{Duration, Instant};

use umbo_quota::{ActualUsage, Dimension, Limiter, Mode, QuotaRequest, ShardShare, Unit};
use umbo_types::{Operation, PriceMultiplier, RequestUnits, ShardId};

use crate::support::{RU, get, limiter, policy, subject, work};

const SHARE: [ShardShare; 1] = [ShardShare {
    shard: ShardId(0),
    parts: 1,
}];

fn times(hundredths: u16) -> PriceMultiplier {
    PriceMultiplier::from_hundredths(hundredths)
}

/// Admits a get as the dispatcher does: at the plain price, and again once its shard is known.
fn get_at(limiter: &Limiter, multiplier: PriceMultiplier, now: Instant) -> Option<RequestUnits> {
    let mut request = get("c");
    let mut reservation = limiter.admit(&request, now, 0).ok()?;
    request.price_multiplier = multiplier;
    limiter
        .admit_shards(&mut reservation, &request, &SHARE, now, 0)
        .ok()?;
    reservation.sent();
    Some(reservation.settle(&work()))
}

fn balance(limiter: &Limiter, now: Instant) -> i64 {
    limiter.buckets("p", now, 1)[0].balance
}

#[test]
fn a_multiplied_price_is_charged_to_bucket_ledger_and_answer() {
    let now = Instant::now();
    let limiter = limiter([policy("p", &[Dimension::Caller], RU, 100 * RU)], now);
    assert_eq!(
        get_at(&limiter, times(400), now).unwrap().as_micros(),
        4 * RU
    );
    assert_eq!(balance(&limiter, now), 96 * RU.cast_signed());
    let tally = limiter.usage().rows[0].tally;
    assert_eq!(
        (tally.charged.as_micros(), tally.penalty.as_micros()),
        (4 * RU, 3 * RU)
    );
    assert_eq!(limiter.spent("p"), 4 * RU.cast_signed());
    assert_eq!(
        get_at(&limiter, times(100), now).unwrap().as_micros(),
        RU,
        "learned plainly"
    );
}

#[test]
fn a_penalised_caller_gets_the_rate_divided_by_the_multiplier() {
    let now = Instant::now();
    for rate in [2, 10, 1_000] {
        let limiter = limiter(
            [policy("p", &[Dimension::Caller], rate * RU, 2 * rate * RU)],
            now,
        );
        let mut admitted = 0;
        // After two seconds the burst above the reserve is spent.
        for step in 0..22_000 {
            let is_admitted =
                get_at(&limiter, times(200), now + Duration::from_millis(step)).is_some();
            admitted += u64::from(is_admitted && step >= 2_000);
        }
        let due = rate * 20 / 2;
        assert!(admitted.abs_diff(due) <= 1 + due / 50, "{rate}: {admitted}");
    }
}

#[test]
fn the_reserve_is_left_to_higher_tiers_and_no_debt_remains() {
    let now = Instant::now();
    let limiter = limiter([policy("p", &[Dimension::Caller], RU, 20 * RU)], now);
    while get_at(&limiter, times(1_600), now).is_some() {}
    while get_at(&limiter, times(300), now).is_some() {}
    let reserve = 10 * RU.cast_signed();
    assert!((reserve..reserve + 3 * RU.cast_signed()).contains(&balance(&limiter, now)));
    let refused = limiter.explain(
        &QuotaRequest {
            price_multiplier: times(300),
            ..get("c")
        },
        &SHARE,
        now,
    );
    assert!(!refused.meets[0].admits && refused.meets[0].wait > Duration::ZERO);
    // A higher tier of the same caller pays the plain price, down to zero.
    for _ in 0..10 {
        assert!(get_at(&limiter, PriceMultiplier::NONE, now).is_some());
    }
}

#[test]
fn the_wait_is_long_enough() {
    let now = Instant::now();
    let limiter = limiter([policy("p", &[Dimension::Caller], 10 * RU, 20 * RU)], now);
    while get_at(&limiter, times(800), now).is_some() {}
    let mut request = get("c");
    let mut reservation = limiter.admit(&request, now, 0).unwrap();
    request.price_multiplier = times(800);
    let admitted = limiter.admit_shards(&mut reservation, &request, &SHARE, now, 0);
    let rejection = admitted.unwrap_err();
    assert_eq!(
        (rejection.price, rejection.price_multiplier),
        (8 * RU, times(800))
    );
    assert!(get_at(&limiter, times(800), now + rejection.wait).is_some());
}

#[test]
fn settling_takes_no_more_of_a_penalty_than_the_bucket_holds() {
    let now = Instant::now();
    let limiter = limiter([policy("p", &[Dimension::Caller], RU, 20 * RU)], now);
    let range = QuotaRequest {
        subject: subject("c", Operation::Get),
        price_multiplier: times(300),
        ..get("c")
    };
    let large = |rows| ActualUsage { rows, ..work() };
    // The estimate of a get is 2 RU at the most, so that 4 RU are taken beyond it; 6 RU is what it cost.
    let mut reservation = limiter.admit(&range, now, 0).unwrap();
    reservation.sent();
    assert_eq!(
        reservation.settle(&large(100)).as_micros(),
        10 * RU,
        "of 18, down to the reserve less the plain price"
    );
    assert_eq!(balance(&limiter, now), 10 * RU.cast_signed());
}

#[test]
fn work_that_no_shard_did_costs_no_penalty() {
    let now = Instant::now();
    let limiter = limiter([policy("p", &[Dimension::Caller], RU, 20 * RU)], now);
    let request = QuotaRequest {
        price_multiplier: times(200),
        ..get("c")
    };
    let admit = || {
        let mut reservation = limiter.admit(&request, now, 0).unwrap();
        reservation.sent();
        reservation
    };
    let before = balance_of(&limiter, now);
    admit().release();
    assert_eq!(balance_of(&limiter, now), before);
    let hit = RequestUnits::from_micros(RU / 10);
    assert_eq!(admit().settle_at(hit, &work()), hit);
    let mut cached = admit();
    cached.release_shards();
    assert_eq!(cached.settle(&work()).as_micros(), RU);
    let mut left = admit();
    let estimate = left.charged();
    assert_eq!(
        left.abandon(),
        estimate,
        "a client that left pays the multiplied estimate"
    );
}

fn balance_of(limiter: &Limiter, now: Instant) -> i64 {
    limiter
        .buckets("p", now, 1)
        .first()
        .map_or(20 * RU.cast_signed(), |bucket| bucket.balance)
}

#[test]
fn buckets_of_others_pay_the_plain_price() {
    let now = Instant::now();
    let shadow = {
        let mut shadow = policy("shadow", &[Dimension::Caller], RU, 100 * RU);
        shadow.mode = Mode::Shadow;
        shadow
    };
    let requests = {
        let mut requests = policy("requests", &[Dimension::Caller], 1_000, 1_000);
        requests.unit = Unit::Requests;
        requests
    };
    let limiter = limiter(
        [
            policy("p", &[Dimension::Caller], RU, 100 * RU),
            policy("all", &[Dimension::Namespace], RU, 100 * RU),
            policy(
                "shard",
                &[Dimension::Caller, Dimension::Shard],
                RU,
                100 * RU,
            ),
            policy(
                "user",
                &[Dimension::Caller, Dimension::Namespace],
                RU,
                100 * RU,
            ),
            shadow,
            requests,
        ],
        now,
    );
    assert_eq!(
        get_at(&limiter, times(500), now).unwrap().as_micros(),
        5 * RU
    );
    let spent =
        ["p", "user", "all", "shard", "shadow"].map(|name| limiter.spent(name) / RU.cast_signed());
    assert_eq!(spent, [5, 5, 1, 1, 1]);
}

#[test]
fn an_explanation_shows_the_multiplied_price() {
    let now = Instant::now();
    let limiter = limiter([policy("p", &[Dimension::Caller], RU, 100 * RU)], now);
    get_at(&limiter, PriceMultiplier::NONE, now);
    let request = QuotaRequest {
        price_multiplier: times(250),
        ..get("c")
    };
    let explained = limiter.explain(&request, &SHARE, now);
    assert_eq!(explained.estimate.as_micros(), 5 * RU / 2);
    assert_eq!(explained.breakdown.penalty.as_micros(), 3 * RU / 2);
    assert_eq!(
        (explained.price_multiplier, explained.meets[0].price),
        (times(250), 5 * RU / 2)
    );
}
