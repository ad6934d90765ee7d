//! An attack by a million callers that nobody knows: memory stays within its bound, and those who
//! were there before keep their balances exactly.

use std::time::{Duration, Instant};

use umbo_quota::Limiter;

use super::setting::{ACCOUNTS_MAX, BUCKETS_MAX, CheckedPolicy, USUAL, limiter, put, work_of_put};
use crate::allocations;
use crate::check::plan::Plan;
use crate::process::resident_bytes;
use crate::random::Random;
use crate::verdict::{Bound, Verdict};

/// Callers that are known before the attack.
const KNOWN: u64 = 100;
/// Strangers of a full attack.
const STRANGERS: u64 = 1_000_000;
/// What an account and a bucket take, in bytes, as the limiter's settings document it.
const ACCOUNT_LEN: usize = 1_024;
const BUCKET_LEN: usize = 400;
/// Maps grow by doubling.
const SLACK: f64 = 1.5;
const MIB: f64 = 1_048_576.0;

pub(super) fn attack(plan: &Plan) -> Vec<Verdict> {
    let strangers = if plan.is_quick {
        STRANGERS / 10
    } else {
        STRANGERS
    };
    let origin = Instant::now();
    let rule = CheckedPolicy {
        rate: 50,
        burst: 500,
        ..USUAL
    };
    let own = std::process::id();
    let resident = || resident_bytes(own, "VmRSS:").unwrap_or(0) as f64;
    let before = resident();
    let mut verdicts = Vec::new();
    let (held, (limiter, figures)) = allocations::held(|| {
        let limiter = limiter(&[rule], origin, plan.seed);
        let figures = besiege(&limiter, origin, strangers, plan.seed);
        (limiter, figures)
    });
    let (accounts, buckets) = limiter.sizes();
    verdicts.push(Verdict::one(
        "attack: accounts kept, of the most there may be",
        Bound::AtMost(1.0),
        accounts as f64 / rounded(ACCOUNTS_MAX),
        format!("{accounts} accounts after {strangers} strangers"),
    ));
    verdicts.push(Verdict::one(
        "attack: buckets kept, of the most there may be",
        Bound::AtMost(1.0),
        buckets as f64 / rounded(BUCKETS_MAX),
        format!("{buckets} buckets"),
    ));
    let documented = (ACCOUNTS_MAX * ACCOUNT_LEN + BUCKETS_MAX * BUCKET_LEN) as f64;
    verdicts.push(Verdict::one(
        "attack: memory, of what the settings document",
        Bound::AtMost(SLACK),
        held as f64 / documented,
        format!(
            "{:.1} MiB held of {:.1}, resident memory grew by {:.1} MiB",
            held as f64 / MIB,
            documented / MIB,
            (resident() - before) / MIB
        ),
    ));
    verdicts.push(Verdict::one(
        "attack: balances of known callers that moved",
        Bound::AtMost(0.0),
        figures.moved as f64,
        format!("{KNOWN} known callers"),
    ));
    verdicts.push(Verdict::one(
        "attack: strangers admitted, of the buckets there may be",
        Bound::AtMost(1.0),
        figures.strangers_admitted as f64 / (rounded(BUCKETS_MAX) + 500.0),
        "those without a bucket of their own share one burst".to_owned(),
    ));
    verdicts
}

/// The maps are divided into 64 parts, each rounded up.
fn rounded(max: usize) -> f64 {
    (max.div_ceil(64) * 64) as f64
}

struct Figures {
    moved: u64,
    strangers_admitted: u64,
}

/// Lets strangers ask at one instant, so that no refill hides a balance that was given anew.
fn besiege(limiter: &Limiter, origin: Instant, strangers: u64, seed: u64) -> Figures {
    let mut random = Random::seeded(seed);
    let known = |number: u64| format!("known-{number}");
    for number in 0..KNOWN {
        for _ in 0..=random.below(10) {
            ask(
                limiter,
                &known(number),
                random.below(100_000),
                origin,
                &mut random,
            );
        }
    }
    let before = balances(limiter, origin, &known);
    let mut strangers_admitted = 0;
    for number in 0..strangers {
        let caller = format!("stranger-{number}-{}", random.next());
        strangers_admitted += u64::from(ask(limiter, &caller, 0, origin, &mut random));
        if number % 1_000 == 0 {
            // Some of those who are known go on, and some are never heard of again.
            let number = random.below(KNOWN / 2);
            drop(limiter.explain(&put(&known(number), 0), &[], origin));
        }
    }
    let after = balances(limiter, origin, &known);
    let mut moved = before
        .iter()
        .zip(&after)
        .filter(|(one, other)| one != other)
        .count();
    // Nor is anything admitted later except by refill.
    let later = origin + Duration::from_secs(1);
    let refill = 50_000_000;
    for (before, later) in before.iter().zip(balances(limiter, later, &known)) {
        let gained = later - before;
        let is_full = later == 500_000_000;
        moved += usize::from(!is_full && (gained - refill).abs() > refill / 20);
    }
    Figures {
        moved: moved as u64,
        strangers_admitted,
    }
}

fn balances(limiter: &Limiter, now: Instant, name: &dyn Fn(u64) -> String) -> Vec<i64> {
    let balance = |number| {
        let meets = limiter.explain(&put(&name(number), 0), &[], now).meets;
        meets.first().map_or(i64::MIN, |meeting| meeting.balance)
    };
    (0..KNOWN).map(balance).collect()
}

fn ask(limiter: &Limiter, caller: &str, body_len: u64, now: Instant, random: &mut Random) -> bool {
    let request = put(caller, body_len);
    let Ok(mut reservation) = limiter.admit(&request, now, random.next()) else {
        return false;
    };
    reservation.sent();
    reservation.settle(&work_of_put(body_len));
    true
}
