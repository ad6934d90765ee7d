//! How fast the simulator is: an hour of eight pods with a thousand requests a second each.

use std::time::Instant;

use crate::check::plan::Plan;
use crate::simulate::{Knowledge, Pattern, Quota, REFILL, SettleError, Study};
use crate::verdict::{Bound, Verdict};

/// Simulated seconds.
const HOUR_S: u64 = 3_600;

pub(super) fn speed(plan: &Plan) -> Vec<Verdict> {
    // Twice the quota is a thousand requests a second on each pod.
    let rate = 20_000_000_000;
    let study = Study {
        seed: plan.seed,
        patterns: Vec::new(),
        errors: Vec::new(),
        knowledge: Knowledge::Declared,
        length_s: if plan.is_quick { HOUR_S / 20 } else { HOUR_S },
        pods: 8,
        quota: Quota { rate, burst: rate },
        refill: REFILL,
        mean_cost: 40_000_000,
    };
    let begun = Instant::now();
    let outcome = study.scenario(Pattern::Poisson, SettleError::Noise).run();
    let seconds = begun.elapsed().as_secs_f64();
    let of_an_hour = seconds * HOUR_S as f64 / study.length_s as f64;
    let detail = format!(
        "{} decisions, {:.2} µs each",
        outcome.decided,
        seconds * 1e6 / outcome.decided as f64
    );
    vec![Verdict::one(
        "speed: seconds for an hour of 8 x 1,000 a second",
        Bound::AtMost(60.0),
        of_an_hour,
        detail,
    )]
}
