//! Conservation: whatever requests do, what they were charged is what the buckets lost and what the
//! ledger says, to the micro-RU.
//!
//! Threads begin requests, keep some of them open, and end each in one of the ways in which a request
//! can end: settled, settled twice, at a fixed price, given up before or after the store was asked,
//! refused by the store, lost in a panic, dropped by a time-out. What each has to pay is worked out
//! here, from the cost model alone. In a first run time stands still, so that no refill hides a leak;
//! in a second one it runs, and what flowed in has to be that of whole milliseconds; in a third one
//! buckets spill over, go into debt and have debt written off, and what they spent has to be what was
//! due.

mod requests;

use std::time::{Duration, Instant};

use umbo_quota::Limiter;

use self::requests::{Books, CALLERS, THREADS, caller, drive, micros};
use super::setting::{self, CheckedPolicy, USUAL};
use crate::check::plan::Plan;
use crate::verdict::{Bound, Verdict};

/// Rate of the moving runs, in RU a second: a millisecond brings 91,000 micro-RU, of which no sum of
/// leaks is likely to be a multiple.
const RATE: u64 = 91;
/// Burst of the run whose buckets never fill again once they are in debt, in RU.
const DEEP: u64 = 1_000_000;

pub(super) fn conservation(plan: &Plan) -> Vec<Verdict> {
    let sequences = if plan.is_quick { 600_000 } else { 10_000_000 };
    let mut verdicts = standing(plan.seed, sequences);
    verdicts.push(moving(plan.seed, sequences / 10));
    verdicts.push(spilling(plan.seed, sequences / 10));
    verdicts
}

/// Returns policies of several units and buckets, of which one refuses in the end.
fn rules() -> [CheckedPolicy; 4] {
    let ample = CheckedPolicy {
        rate: 50_000,
        burst: 50_000_000_000,
        ..USUAL
    };
    [
        CheckedPolicy {
            name: "ru",
            ..ample
        },
        CheckedPolicy {
            name: "requests",
            unit: "requests",
            per: &["namespace"],
            ..ample
        },
        CheckedPolicy {
            name: "shards",
            per: &[],
            scope: "shard",
            ..ample
        },
        // Is soon spent, and from then on refuses what the others have admitted.
        CheckedPolicy {
            name: "users",
            per: &["user"],
            rate: 1,
            burst: 2_000,
            ..USUAL
        },
    ]
}

/// Runs with the time standing still.
fn standing(seed: u64, sequences: u64) -> Vec<Verdict> {
    let origin = Instant::now();
    let limiter = setting::limiter(&rules(), origin, seed);
    let books = drive(&limiter, seed, sequences, &|_| origin);
    let usage = limiter.usage();
    let ledger: u128 = usage.rows.iter().map(|row| micros(row.tally.charged)).sum();
    let shards: u128 = usage.shards.iter().map(|row| micros(row.charged)).sum();
    let buckets = limiter.buckets("ru", origin, usize::MAX);
    let moved = |balance: i64, burst: u64| i128::from(burst) - i128::from(balance);
    let of_buckets: i128 = buckets
        .iter()
        .map(|bucket| moved(bucket.balance, bucket.limit.burst))
        .sum();
    let requests: i128 = limiter
        .buckets("requests", origin, usize::MAX)
        .iter()
        .map(|bucket| moved(bucket.balance, bucket.limit.burst))
        .sum();
    let detail = format!(
        "{} sequences on {THREADS} threads, {} admitted, {} paid {} RU",
        books.begun,
        books.admitted,
        books.paying,
        books.due / 1_000_000
    );
    let none = Bound::AtMost(0.0);
    let apart = |one: u128, other: u128| one.abs_diff(other) as f64;
    vec![
        Verdict::one(
            "conservation: micro-RU due and not in the buckets",
            none,
            apart(books.due, of_buckets.unsigned_abs()),
            detail,
        ),
        Verdict::one(
            "conservation: micro-RU due and not in the ledger",
            none,
            apart(books.due, ledger) + apart(books.due, shards),
            "callers and shards",
        ),
        Verdict::one(
            "conservation: requests not in the buckets",
            none,
            (i128::from(books.paying) * 1_000_000 - requests).unsigned_abs() as f64,
            "",
        ),
        Verdict::one(
            "conservation: answers with another charge",
            none,
            books.wrong as f64,
            "settled, settled twice, given up",
        ),
    ]
}

/// Runs with time going on, in debt all along: what has flowed in is that of whole
/// milliseconds.
fn moving(seed: u64, sequences: u64) -> Verdict {
    let origin = Instant::now();
    let rule = CheckedPolicy {
        rate: RATE,
        burst: DEEP,
        ..USUAL
    };
    let limiter = setting::limiter(&[rule], origin, seed);
    let mut due = 0;
    for number in 0..CALLERS {
        // Not full again while the run lasts, whatever is given back: nothing may spill over here.
        due += drain(&limiter, number, origin);
    }
    let (books, end) = drive_on(&limiter, seed, sequences, origin);
    let buckets = limiter.buckets(USUAL.name, end, usize::MAX);
    let millisecond = i128::from(RATE * 1_000);
    let mut flowed_in = due + books.due.cast_signed();
    for bucket in &buckets {
        flowed_in += i128::from(bucket.balance) - i128::from(bucket.limit.burst);
    }
    // A debt that is written off looks as if it had flowed in.
    let reports = limiter.policy_report(end);
    let forgiven = reports.iter().map(|report| i128::from(report.forgiven));
    flowed_in -= forgiven.sum::<i128>();
    let length_ms = (end - origin).as_millis().cast_signed();
    // The grid of each bucket has a phase of its own, in milliseconds.
    let of_all = |length_ms: i128| length_ms * millisecond * buckets.len() as i128;
    let within = of_all(length_ms - i128::from(USUAL.refill_ms))..=of_all(length_ms);
    let leaked = if within.contains(&flowed_in) {
        flowed_in % millisecond
    } else {
        flowed_in - of_all(length_ms)
    };
    Verdict::one(
        "conservation: micro-RU leaked while time runs",
        Bound::AtMost(0.0),
        leaked.unsigned_abs() as f64,
        format!(
            "{} sequences, {} admitted, {} buckets",
            books.begun,
            books.admitted,
            buckets.len()
        ),
    )
}

/// Runs with time going on and a small burst: buckets spill over, fall into debt, and debt beyond its
/// bound is written off. What they report as spent is what was due.
fn spilling(seed: u64, sequences: u64) -> Verdict {
    let origin = Instant::now();
    let rule = CheckedPolicy {
        rate: RATE,
        burst: RATE,
        ..USUAL
    };
    let limiter = setting::limiter(&[rule], origin, seed);
    let (books, _) = drive_on(&limiter, seed, sequences, origin);
    let spent = i128::from(limiter.spent(USUAL.name));
    Verdict::one(
        "conservation: micro-RU leaked by spills and debts",
        Bound::AtMost(0.0),
        (books.due.cast_signed() - spent).unsigned_abs() as f64,
        format!("{} sequences, {} admitted", books.begun, books.admitted),
    )
}

/// Drives at a thousand sequences a simulated second, and returns the end.
fn drive_on(limiter: &Limiter, seed: u64, sequences: u64, origin: Instant) -> (Books, Instant) {
    let instant = |number: u64| origin + Duration::from_millis(number);
    let books = drive(limiter, seed, sequences, &instant);
    (books, instant(sequences))
}

/// Spends a burst of [`DEEP`] and a little more.
fn drain(limiter: &Limiter, number: u64, origin: Instant) -> i128 {
    let caller = caller(number);
    let reservation = limiter.admit(&setting::put(&caller, 0), origin, 0);
    let mut reservation = reservation.expect("a bucket is full at first");
    reservation.sent();
    micros(reservation.settle(&setting::work_of_put((DEEP + 1_000) * 4_096))).cast_signed()
}
