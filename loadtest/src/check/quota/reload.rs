//! Reloads: policies change a thousand times under load, no balance jumps, no request is lost.
//!
//! Balances are looked at under simulated time, before and after each change and one refill later.
//! What a lower burst cuts off is no jump: nobody may hold more than a burst. Losses are looked for
//! under real threads and a real clock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use umbo_quota::{Limiter, PolicySet};

use super::setting::{self, CheckedPolicy, USUAL, put, work_of_put};
use crate::check::plan::Plan;
use crate::random::Random;
use crate::verdict::{Bound, Verdict};

const RELOADS: u64 = 1_000;
const CALLERS: u64 = 10;
const THREADS: u64 = 3;

pub(super) fn reload(plan: &Plan) -> Vec<Verdict> {
    vec![jumps(plan), losses(plan)]
}

/// Returns other limits for the same policies, and beside them some that come and go.
fn changed(random: &mut Random) -> [Option<CheckedPolicy>; 3] {
    let refill_ms = [10, 50, 200, 1_000][random.below(4) as usize];
    let rate = 10 + random.below(5_000);
    // At least what a refill brings, and two.
    let burst = (rate * refill_ms / 1_000 + 1).max(2) + random.below(3 * rate);
    let callers = CheckedPolicy {
        rate,
        burst,
        refill_ms,
        ..USUAL
    };
    let others = CheckedPolicy {
        name: "all",
        per: &["namespace"],
        rate: 100 + random.below(50_000),
        burst: 100_000,
        ..USUAL
    };
    let shadow = CheckedPolicy {
        name: "shadow",
        mode: "shadow",
        ..callers
    };
    let mut maybe = |rule| (random.below(2) == 0).then_some(rule);
    let others = maybe(others);
    [Some(callers), others, maybe(shadow)]
}

fn set_of(rules: &[Option<CheckedPolicy>]) -> PolicySet {
    let rules: Vec<CheckedPolicy> = rules.iter().copied().flatten().collect();
    setting::set(&rules)
}

/// Looks at every balance around every reload. The figure is the furthest jump, in refills.
fn jumps(plan: &Plan) -> Verdict {
    let origin = Instant::now();
    let limiter = setting::limiter(&[USUAL], origin, plan.seed);
    let mut random = Random::seeded(plan.seed);
    let mut now = origin;
    let mut worst = 0.0_f64;
    let mut looked = 0;
    let mut refill = refill_of(&USUAL);
    for _ in 0..RELOADS {
        // Traffic, so that balances are anywhere between debt and a full burst.
        for _ in 0..random.below(200) {
            now += Duration::from_micros(random.below(3_000));
            ask(&limiter, random.below(CALLERS), now, &mut random);
        }
        let before = balances(&limiter, now);
        let rules = changed(&mut random);
        limiter.replace(set_of(&rules));
        let after = balances(&limiter, now);
        let rule = rules[0].unwrap_or(USUAL);
        let burst = (rule.burst * 1_000_000).cast_signed();
        // Of the limit before or of the one after, whichever brings more.
        refill = refill.max(refill_of(&rule));
        for (before, after) in before.iter().zip(&after) {
            let kept = *before.min(&burst);
            worst = worst.max(kept.abs_diff(*after) as f64 / refill);
            looked += 1;
        }
        // One refill later there is one more refill, and no more.
        now += Duration::from_millis(rule.refill_ms);
        refill = refill_of(&rule);
        for (after, later) in after.iter().zip(&balances(&limiter, now)) {
            worst = worst.max((later - after).unsigned_abs() as f64 / refill);
        }
    }
    Verdict::one(
        "reload: furthest jump of a balance, in refills",
        Bound::AtMost(1.0),
        worst,
        format!("{RELOADS} reloads, {looked} balances"),
    )
}

/// Returns what a refill brings, in micro-RU; rounded up, as on the grid it sometimes is.
fn refill_of(rule: &CheckedPolicy) -> f64 {
    (rule.rate * rule.refill_ms * 1_000 + 1) as f64
}

/// Returns the balances of all callers, each of whose accounts is bound to the policies in effect.
fn balances(limiter: &Limiter, now: Instant) -> Vec<i64> {
    let balance = |number| {
        let caller = caller(number);
        let explanation = limiter.explain(&put(&caller, 0), &[], now);
        let mut meets = explanation.meets.iter();
        let meeting = meets.find(|meeting| &*meeting.policy.name == USUAL.name);
        meeting.map_or(i64::MIN, |meeting| meeting.balance)
    };
    (0..CALLERS).map(balance).collect()
}

fn caller(number: u64) -> String {
    format!("caller-{number}")
}

fn ask(limiter: &Limiter, number: u64, now: Instant, random: &mut Random) -> bool {
    let caller = caller(number);
    let body_len = random.below(100_000);
    let request = put(&caller, body_len);
    let Ok(mut reservation) = limiter.admit(&request, now, random.next()) else {
        return false;
    };
    reservation.sent();
    reservation.settle(&work_of_put(body_len));
    true
}

/// Changes policies while threads ask. The figure is how many requests were not decided or not booked.
fn losses(plan: &Plan) -> Verdict {
    let origin = Instant::now();
    let limiter = setting::limiter(&[USUAL], origin, plan.seed);
    let is_over = AtomicBool::new(false);
    let (asked, admitted) = (AtomicU64::new(0), AtomicU64::new(0));
    let drive = |thread: u64| {
        let mut random = Random::seeded(plan.seed ^ (thread << 40));
        while !is_over.load(Relaxed) {
            asked.fetch_add(1, Relaxed);
            let number = random.below(CALLERS);
            if ask(&limiter, number, Instant::now(), &mut random) {
                admitted.fetch_add(1, Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let drive = &drive;
            scope.spawn(move || drive(thread));
        }
        let mut random = Random::seeded(plan.seed);
        for _ in 0..RELOADS {
            limiter.replace(set_of(&changed(&mut random)));
            // Some requests between two reloads, however busy the machine is.
            let before = asked.load(Relaxed);
            while asked.load(Relaxed) < before + 100 {
                thread::yield_now();
            }
        }
        is_over.store(true, Relaxed);
    });
    let (asked, admitted) = (asked.into_inner(), admitted.into_inner());
    let usage = limiter.usage();
    let rows = usage.rows.iter();
    let booked: u64 = rows
        .map(|row| row.tally.requests + row.tally.rejected)
        .sum();
    let served: u64 = usage.rows.iter().map(|row| row.tally.requests).sum();
    Verdict::one(
        "reload: requests lost",
        Bound::AtMost(0.0),
        (asked.abs_diff(booked) + admitted.abs_diff(served)) as f64,
        format!("{RELOADS} reloads under {asked} requests, {admitted} admitted"),
    )
}
