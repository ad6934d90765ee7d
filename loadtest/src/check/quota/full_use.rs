//! Full use: clients in a closed loop that wait as they are told use up their quota, are rejected
//! about once a request, and are let in when they come back.
//!
//! Clients that obey bring the retry ticket of their last rejection, as `umbo-client` does. They come up
//! to two milliseconds later than told.

use std::time::Duration;

use umbo_quota::Unit;

use crate::check::cases::{Case, Figure, run_all, verdicts_of};
use crate::check::plan::Plan;
use crate::simulate::{
    Account, Behaviour, CLIENTS, Caller, Knowledge, Quota, REFILL, Scenario, SettleError, Shape,
    one_quota,
};
use crate::verdict::{Bound, Verdict};

/// Demand of the clients, as a multiple of their quota.
const DEMAND: f64 = 4.0;

/// What a case differs in.
struct Variant {
    unit: Unit,
    /// Units a second.
    rate: u64,
    burst_ms: u64,
    refill: Duration,
    error: SettleError,
    /// In request units.
    mean_cost: u64,
    beside: Option<Behaviour>,
}

pub(super) fn full_use(plan: &Plan) -> Vec<Verdict> {
    let cases: Vec<Case<Scenario>> = variants()
        .into_iter()
        .map(|(name, variant)| Case {
            name,
            scenario: scenario(plan, &variant),
        })
        .collect();
    let measured = run_all(&cases, |case| {
        let outcome = case.scenario.run();
        let shares = outcome.accounts.iter().flatten();
        let shares = shares.filter_map(Account::shares);
        let least = shares.fold(f64::INFINITY, |least, share| least.min(share.0));
        let clients = &outcome.clients.obedient;
        let wait_least = clients.wait_least.unwrap_or_default();
        let refill = case.refill();
        let figures = [
            least,
            clients.rejections_a_success(),
            wait_least.as_secs_f64() / refill.as_secs_f64(),
            clients.first_retry_share(),
        ];
        figures.map(|figure| Figure {
            name: case.name.clone(),
            figure,
        })
    });
    let metrics = [
        ("full use: share of the quota", Bound::AtLeast(0.97)),
        ("full use: rejections a success", Bound::AtMost(1.2)),
        ("full use: shortest wait, in quanta", Bound::AtLeast(1.0)),
        ("full use: let in on the first retry", Bound::AtLeast(0.9)),
    ];
    verdicts_of(metrics, measured)
}

impl Case<Scenario> {
    fn refill(&self) -> Duration {
        let policies = self.scenario.policies.iter();
        policies
            .map(|policy| policy.refill)
            .next()
            .unwrap_or(REFILL)
    }
}

fn variants() -> Vec<(String, Variant)> {
    let usual = || Variant {
        unit: Unit::Ru,
        rate: 40_000,
        burst_ms: 1_000,
        refill: REFILL,
        error: SettleError::Exact,
        mean_cost: 40,
        beside: None,
    };
    let mut variants = Vec::new();
    for rate in [10, 100, 1_000, 10_000] {
        for burst_ms in [1_000, 10_000] {
            variants.push((
                format!("{rate} requests a second, burst {burst_ms} ms"),
                Variant {
                    unit: Unit::Requests,
                    rate,
                    burst_ms,
                    ..usual()
                },
            ));
        }
    }
    for (rate, mean_cost) in [(1_000, 20), (10_000, 100), (100_000, 100)] {
        variants.push((
            format!("{rate} RU/s, {mean_cost} RU a request"),
            Variant {
                rate,
                mean_cost,
                ..usual()
            },
        ));
    }
    for error in SettleError::ALL {
        let name = format!("estimates: {}", error.as_str());
        variants.push((name, Variant { error, ..usual() }));
    }
    for (burst_ms, refill_ms) in [(200, 50), (1_000, 10), (1_000, 200)] {
        variants.push((
            format!("burst {burst_ms} ms, refill {refill_ms} ms"),
            Variant {
                burst_ms,
                refill: Duration::from_millis(refill_ms),
                ..usual()
            },
        ));
    }
    for (name, beside) in besides() {
        let variant = Variant {
            beside: Some(beside),
            ..usual()
        };
        variants.push((name, variant));
    }
    variants
}

/// Returns those who ask from the same bucket and do not obey.
fn besides() -> Vec<(String, Behaviour)> {
    let stubborn = |demand: f64| {
        let behaviour = Behaviour::Closed {
            clients: CLIENTS,
            demand,
            is_obedient: false,
        };
        (
            format!("beside clients at {demand} x that ask again at once"),
            behaviour,
        )
    };
    let flood = |scale: f64| {
        let behaviour = Behaviour::Open {
            shape: Shape::Level(1.0),
            scale,
            is_random: true,
        };
        (
            format!("beside a flood of {scale} x that never comes back"),
            behaviour,
        )
    };
    vec![
        stubborn(1.0),
        stubborn(4.0),
        flood(1.0),
        flood(4.0),
        flood(10.0),
    ]
}

fn scenario(plan: &Plan, variant: &Variant) -> Scenario {
    let atoms = variant.unit.atoms_per_unit();
    let quota = Quota {
        rate: variant.rate * atoms,
        burst: (variant.rate * variant.burst_ms * atoms / 1_000).max(atoms),
    };
    let caller = |behaviour| Caller {
        name: "caller".to_owned(),
        behaviour,
    };
    let obedient = Behaviour::Closed {
        clients: CLIENTS,
        demand: DEMAND,
        is_obedient: true,
    };
    let behaviours = [Some(obedient), variant.beside];
    // With few requests a second it takes long until there are enough to judge by.
    let length_s = match (variant.rate, plan.is_quick) {
        (..=100, true) => 150,
        (..=100, false) => 600,
        (_, true) => 65,
        (_, false) => 150,
    };
    Scenario {
        seed: plan.seed,
        length_s,
        pods: 1,
        fleet: None,
        callers: behaviours.into_iter().flatten().map(caller).collect(),
        quota,
        unit: variant.unit,
        error: variant.error,
        mean_cost: variant.mean_cost * 1_000_000,
        knowledge: Knowledge::Declared,
        policies: one_quota(variant.unit, quota, variant.refill),
    }
}
