//! Conservation: however requests end on several threads, buckets and ledger hold what was due, to the micro-RU.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use umbo_quota::{ActualUsage, Dimension, Limiter, Policy, Reservation, ShardShare, Unit, Weights};
use umbo_types::{Attribute, Operation, RequestUnits, ShardId};

use crate::support::{RU, Random, get, limiter, policy};

const CALLERS: [&str; 5] = ["v", "w", "x", "y", "z"];
const USERS: [&str; 3] = ["one", "two", "three"];
const REQUESTS: u64 = 60_000;
/// Request units a second of the moving tests: no sum of leaks is likely to be a multiple of a millisecond's refill.
const RATE: u64 = 91;

/// What all threads did.
#[derive(Default)]
struct Books {
    admitted: AtomicU64,
    /// In micro-RU.
    due: AtomicU64,
    /// Requests that have to pay anything.
    paying: AtomicU64,
}

/// Begins requests on four threads and ends each in one of all ways.
fn drive(limiter: &Limiter, instant: impl Fn(u64) -> Instant + Sync) -> Books {
    let (books, next) = (Books::default(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (books, next, instant) = (&books, &next, &instant);
            scope.spawn(move || {
                let mut random = Random(seed);
                // One clock for all threads.
                while let number @ ..REQUESTS = next.fetch_add(1, Relaxed) {
                    let now = instant(number);
                    let mut request = get(CALLERS[random.next() as usize % CALLERS.len()]);
                    let user = USERS[random.next() as usize % USERS.len()];
                    request.subject.attributes[Attribute::User] =
                        random.next().is_multiple_of(4).then_some(user);
                    let Ok(mut reservation) = limiter.admit(&request, now, 0) else {
                        continue;
                    };
                    let share = ShardShare {
                        shard: ShardId(random.next() as u16 % 4),
                        parts: 1,
                    };
                    let admitted =
                        limiter.admit_shards(&mut reservation, &request, &[share], now, 0);
                    if admitted.is_ok() {
                        books.admitted.fetch_add(1, Relaxed);
                        let due = end(reservation, &mut random).as_micros();
                        books.due.fetch_add(due, Relaxed);
                        books.paying.fetch_add(u64::from(due > 0), Relaxed);
                    }
                }
            });
        }
    });
    books
}

/// Ends a request in one of all ways. Returns what it has to pay.
fn end(mut reservation: Reservation, random: &mut Random) -> RequestUnits {
    let estimate = reservation.estimate();
    let work = ActualUsage {
        rows: random.next() % 100,
        read_bytes: random.next() % 20_000,
        reads: 1,
        ..ActualUsage::default()
    };
    let price = Weights::default().price(Operation::Get, &work);
    let way = random.next() % 11;
    if way > 2 {
        reservation.sent();
    }
    match way {
        0 => RequestUnits::ZERO,
        1 | 3 => {
            reservation.release();
            RequestUnits::ZERO
        }
        2 => {
            assert_eq!(reservation.abandon(), RequestUnits::ZERO);
            RequestUnits::ZERO
        }
        4 => estimate,
        5 => {
            assert_eq!(reservation.abandon(), estimate);
            estimate
        }
        6 => {
            reservation.progress(&work);
            estimate.max(price)
        }
        7 => {
            let lost = AssertUnwindSafe(move || {
                let _held = reservation;
                resume_unwind(Box::new("lost"));
            });
            assert!(catch_unwind(lost).is_err());
            estimate
        }
        8 => {
            let fixed = RequestUnits::from_micros(100_000);
            assert_eq!(reservation.settle_at(fixed, &work), fixed);
            fixed
        }
        _ => {
            assert_eq!(reservation.settle(&work), price);
            // A second end counts for nothing.
            assert_eq!(reservation.settle(&ActualUsage::default()), price);
            reservation.release();
            assert_eq!(reservation.charged(), price);
            price
        }
    }
}

#[test]
fn while_time_stands_still_all_books_agree() {
    let ample = |name, per: &[Dimension]| policy(name, per, RU, 50_000_000 * RU);
    let user = [Dimension::Attribute(Attribute::User)];
    let policies = [
        ample("ru", &[Dimension::Caller]),
        ample("shards", &[Dimension::Shard]),
        Policy {
            unit: Unit::Requests,
            ..ample("requests", &[Dimension::Namespace])
        },
        // Is soon spent, and from then on refuses what the others have admitted.
        policy("users", &user, RU, 2_000 * RU),
    ];
    let origin = Instant::now();
    let limiter = limiter(policies, origin);
    let books = drive(&limiter, |_| origin);
    let (due, paying) = (books.due.into_inner(), books.paying.into_inner());
    assert!(books.admitted.into_inner() < REQUESTS && paying > 1_000);
    let spent = ["ru", "shards", "requests"].map(|name| limiter.spent(name).cast_unsigned());
    assert_eq!(spent, [due, due, paying * RU]);
    let usage = limiter.usage();
    let charged = usage.rows.iter().map(|row| row.tally.charged.as_micros());
    let by_shard = usage.shards.iter().map(|shard| shard.charged.as_micros());
    assert_eq!((charged.sum::<u64>(), by_shard.sum::<u64>()), (due, due));
}

/// Returns the instant of a request, a millisecond after the one before.
fn moving(origin: Instant) -> impl Fn(u64) -> Instant + Sync {
    move |number| origin + Duration::from_millis(number)
}

#[test]
fn buckets_in_debt_gain_the_refill_of_whole_milliseconds() {
    const BURST: u64 = 1_000_000 * RU;
    let origin = Instant::now();
    let rule = policy("p", &[Dimension::Caller], RATE * RU, BURST);
    let limiter = limiter([rule], origin);
    let mut due = 0;
    for caller in CALLERS {
        // No bucket is full again before the end.
        let mut reservation = limiter.admit(&get(caller), origin, 0).unwrap();
        let paid = RequestUnits::from_micros(BURST + 1_000 * RU);
        due += reservation
            .settle_at(paid, &ActualUsage::default())
            .as_micros();
    }
    let end = origin + Duration::from_millis(REQUESTS);
    due += drive(&limiter, moving(origin)).due.into_inner();
    let buckets = limiter.buckets("p", end, usize::MAX);
    let lost = buckets
        .iter()
        .map(|bucket| BURST.cast_signed() - bucket.balance);
    let forgiven = limiter.policy_report(end)[0].forgiven;
    let gained = due - lost.sum::<i64>().cast_unsigned() - forgiven;
    let of_all = |millis| millis * RATE * RU / 1_000 * CALLERS.len() as u64;
    // A bucket has a phase of its own within its refill interval.
    assert!(
        (of_all(REQUESTS - 50)..=of_all(REQUESTS)).contains(&gained),
        "{gained}"
    );
    assert_eq!(gained % (RATE * RU / 1_000), 0);
}

#[test]
fn buckets_that_spill_and_fall_into_debt_have_spent_what_was_due() {
    let origin = Instant::now();
    let rule = policy("p", &[Dimension::Caller], RATE * RU, RATE * RU);
    let limiter = limiter([rule], origin);
    let books = drive(&limiter, moving(origin));
    assert!(books.admitted.into_inner() > 1_000);
    assert_eq!(limiter.spent("p").cast_unsigned(), books.due.into_inner());
}
