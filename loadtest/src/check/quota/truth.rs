//! Quota truth: what is admitted is the quota, whatever the traffic and however wrong the estimates.
//!
//! Two figures over every window of 60 s, the first one of a run included, for every caller on every
//! pod: what was admitted (in settled costs, counted at the instant of admission) of what an exact,
//! continuous bucket of the same rate and burst serves of the same demand. Where the demand exceeds
//! the rate throughout, that bucket serves the rate, and the figure is the share of the quota as it
//! is usually meant; where the demand is lower for a while, it is what the quota grants of it, and a
//! limiter gets no discount for silence that filled its burst. The third figure is the most that was
//! admitted within any second, wherever it begins, of burst + 1.05 × rate.

use std::time::Duration;

use umbo_quota::Unit;

use crate::check::cases::{Case, Figure, run_all, verdicts_of};
use crate::check::plan::Plan;
use crate::simulate::{
    Account, Knowledge, Outcome, Pattern, Quota, REFILL, Scenario, SettleError, Study, one_quota,
};
use crate::verdict::{Bound, Verdict};

const LEAST: Bound = Bound::AtLeast(0.98);
const MOST: Bound = Bound::AtMost(1.01);
const SECOND: Bound = Bound::AtMost(1.0);

/// Rate of the main cases, in micro-RU a second.
const RATE: u64 = 40_000_000_000;
/// Mean cost of a request, in micro-RU. The heaviest one of the heavy tail costs 62 times as much,
/// which is a twenty-fifth of a second of the rate. Requests are admitted whole, so a bucket gives as
/// much more than it has as one of them costs, and the bound of a second leaves a twentieth for it.
const MEAN_COST: u64 = 25_000_000;

pub(super) fn truth(plan: &Plan) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for (knowledge, label) in [
        (Knowledge::Declared, "writes, sizes declared"),
        (Knowledge::Learned, "reads, costs learned"),
    ] {
        let cases = matrix(plan, knowledge);
        verdicts.extend(figures(&cases, label));
    }
    verdicts.extend(figures(&other_limits(plan), "other limits"));
    verdicts.extend(small_rates(plan));
    verdicts
}

/// Returns every pattern with every model of the error.
fn matrix(plan: &Plan, knowledge: Knowledge) -> Vec<Case<Scenario>> {
    let study = Study {
        seed: plan.seed,
        patterns: Vec::new(),
        errors: Vec::new(),
        knowledge,
        length_s: if plan.is_quick { 70 } else { 100 },
        pods: if plan.is_quick { 1 } else { 2 },
        fleet: None,
        quota: Quota {
            rate: RATE,
            burst: RATE,
        },
        refill: REFILL,
        mean_cost: MEAN_COST,
    };
    let mut cases = Vec::new();
    for pattern in Pattern::ALL {
        for error in SettleError::ALL {
            cases.push(Case {
                name: format!("{} x {}", pattern.as_str(), error.as_str()),
                scenario: study.scenario(pattern, error),
            });
        }
    }
    cases
}

/// Returns traffic of all kinds under bursts, refills, costs and rates other than the usual ones.
///
/// A refill is at most a tenth of a second here, so that one more or less in each phase of traffic is
/// within the bounds. A burst is at least two refills: one that holds a single refill loses what is
/// left of it at each point of the grid, which a continuous bucket does not; and at most two seconds,
/// because a limiter may give out a long one later than at once.
fn other_limits(plan: &Plan) -> Vec<Case<Scenario>> {
    let limits = [
        (RATE, 100, 50, MEAN_COST),
        (RATE, 200, 50, MEAN_COST),
        (RATE, 2_000, 50, MEAN_COST),
        (RATE, 1_000, 10, MEAN_COST),
        (RATE, 2_000, 100, MEAN_COST),
        (1_000_000_000, 1_000, 50, 10_000_000),
        (1_000_000_000_000, 1_000, 50, 1_000_000_000),
    ];
    let patterns = [
        Pattern::Steady,
        Pattern::Poisson,
        Pattern::OnOff,
        Pattern::Diurnal,
        Pattern::Sawtooth,
        Pattern::Runaway,
    ];
    let mut cases = Vec::new();
    for (rate, burst_ms, refill_ms, mean_cost) in limits {
        for pattern in patterns {
            let quota = Quota {
                rate,
                burst: rate / 1_000 * burst_ms,
            };
            let study = Study {
                seed: plan.seed,
                patterns: Vec::new(),
                errors: Vec::new(),
                knowledge: Knowledge::Declared,
                length_s: if plan.is_quick { 65 } else { 100 },
                pods: 1,
                fleet: None,
                quota,
                refill: Duration::from_millis(refill_ms),
                mean_cost,
            };
            cases.push(Case {
                name: format!(
                    "{} at {} RU/s, burst {burst_ms} ms, refill {refill_ms} ms",
                    pattern.as_str(),
                    rate / 1_000_000
                ),
                scenario: study.scenario(pattern, SettleError::Noise),
            });
        }
    }
    cases
}

fn figures(cases: &[Case<Scenario>], label: &str) -> Vec<Verdict> {
    let measured = run_all(cases, |case| {
        let outcome = case.scenario.run();
        let figure = |figure| Figure {
            name: case.name.clone(),
            figure,
        };
        let (least, most) = shares(&outcome);
        let second = accounts(&outcome).map(Account::worst_second);
        let worst_second = second.fold(0.0, f64::max);
        let unbooked = outcome.charged.abs_diff(outcome.ledger) as f64;
        [least, most, worst_second, unbooked].map(figure)
    });
    let what = [
        "least over 60 s",
        "most over 60 s",
        "any second",
        "not booked",
    ]
    .map(|what| format!("truth, {label}: {what}"));
    let bounds = [LEAST, MOST, SECOND, Bound::AtMost(0.0)];
    let metrics: [_; 4] = std::array::from_fn(|at| (what[at].as_str(), bounds[at]));
    verdicts_of(metrics, measured)
}

fn accounts(outcome: &Outcome) -> impl Iterator<Item = &Account> {
    outcome.accounts.iter().flatten()
}

/// Returns the least and the greatest share of all callers and windows.
fn shares(outcome: &Outcome) -> (f64, f64) {
    let none = (f64::INFINITY, f64::NEG_INFINITY);
    accounts(outcome)
        .filter_map(Account::shares)
        .fold(none, |all, one| (all.0.min(one.0), all.1.max(one.1)))
}

/// Checks that small rates are neither rounded up nor down: over ten minutes, in whole requests. A
/// bucket that holds few of them holds one more in fact, because the last is admitted into debt.
fn small_rates(plan: &Plan) -> Vec<Verdict> {
    let length_s = 600;
    let mut cases = Vec::new();
    for rate in [1, 2, 3, 7, 19, 30] {
        for pattern in [Pattern::Steady, Pattern::Poisson, Pattern::Sawtooth] {
            let quota = Quota {
                rate: rate * 1_000_000,
                burst: rate.div_ceil(2) * 1_000_000,
            };
            cases.push(Case {
                name: format!("{} at {rate} requests a second", pattern.as_str()),
                scenario: Scenario {
                    seed: plan.seed,
                    length_s,
                    pods: 1,
                    fleet: None,
                    callers: pattern.callers(),
                    quota,
                    unit: Unit::Requests,
                    error: SettleError::Exact,
                    mean_cost: 10_000_000,
                    knowledge: Knowledge::Declared,
                    policies: one_quota(Unit::Requests, quota, REFILL),
                },
            });
        }
    }
    let measured = run_all(&cases, |case| {
        let outcome = case.scenario.run();
        let account = &outcome.accounts[0][0];
        let Quota { rate, burst } = case.scenario.quota;
        let served: u64 = account.seconds().iter().map(|second| second.ideal).sum();
        let most = rate * length_s + burst + 1_000_000;
        let admitted = (account.admitted * 1_000_000) as f64;
        let figure = |figure| Figure {
            name: case.name.clone(),
            figure,
        };
        [
            figure(admitted / served as f64),
            figure(admitted / most as f64),
            figure(account.worst_second()),
        ]
    });
    let metrics = [
        ("truth, small rates: least over ten minutes", LEAST),
        ("truth, small rates: most over ten minutes", MOST),
        ("truth, small rates: any second", SECOND),
    ];
    verdicts_of(metrics, measured)
}
