//! Shadow policies: they change no decision, and count what they would refuse if they were enforced.
//!
//! Open-loop traffic with more than one caller is replayed on two limiters of the same seed. Costs are
//! known beforehand here: an enforced policy keeps requests away from the estimator that a shadow
//! policy lets through, so that with learned costs the two would not be asked the same.

use std::time::{Duration, Instant};

use umbo_quota::Limiter;

use super::setting::{CheckedPolicy, USUAL, limiter, put, work_of_put};
use crate::check::plan::Plan;
use crate::random::Random;
use crate::verdict::{Bound, Verdict};

const CALLERS: u64 = 20;
/// Requests a second.
const REQUESTS: u64 = 1_000;

const SHADOWS: [CheckedPolicy; 4] = [
    CheckedPolicy {
        name: "shadow-callers",
        rate: 300,
        burst: 300,
        mode: "shadow",
        ..USUAL
    },
    CheckedPolicy {
        name: "shadow-requests",
        unit: "requests",
        per: &["namespace"],
        rate: 300,
        burst: 30,
        mode: "shadow",
        ..USUAL
    },
    CheckedPolicy {
        name: "a-shadow-of-bytes",
        unit: "write-bytes",
        rate: 100_000,
        burst: 100_000,
        refill_ms: 200,
        mode: "shadow",
        ..USUAL
    },
    CheckedPolicy {
        name: "shadow-for-all",
        per: &[],
        rate: 2_000,
        burst: 8_000,
        mode: "shadow",
        ..USUAL
    },
];

/// What was decided on a request.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// Admitted; what was charged.
    Admitted(u64),
    /// Rejected by a policy; the wait.
    Rejected(String, Duration),
}

pub(super) fn shadow(plan: &Plan) -> Vec<Verdict> {
    let seconds = if plan.is_quick { 60 } else { 600 };
    let enforced = CheckedPolicy {
        rate: 600,
        burst: 900,
        ..USUAL
    };
    let mut with = vec![enforced];
    with.extend(SHADOWS);
    let run = |rules: &[CheckedPolicy]| replay(rules, plan.seed, seconds);
    let (alone, beside) = (run(&[enforced]), run(&with));
    let differ = |one: &Run, other: &Run| {
        let pairs = one.decisions.iter().zip(&other.decisions);
        pairs.filter(|(one, other)| one != other).count() as f64
    };
    let detail = format!(
        "{} requests, {} rejected; with and without {} shadow policies",
        alone.decisions.len(),
        alone.rejected(),
        SHADOWS.len()
    );
    let mut verdicts = vec![Verdict::one(
        "shadow: decisions changed",
        Bound::AtMost(0.0),
        differ(&alone, &beside),
        detail,
    )];
    let mut counts = Vec::new();
    let mut details = Vec::new();
    for rule in SHADOWS {
        let of_shadow = run(&[rule]);
        let of_enforced = run(&[CheckedPolicy {
            mode: "enforce",
            ..rule
        }]);
        counts.push(of_shadow.shadow_rejected.abs_diff(of_enforced.rejected()) as f64);
        details.push(format!("{} of {}", of_shadow.shadow_rejected, rule.name));
    }
    verdicts.push(Verdict::worst(
        "shadow: counted and not refused when enforced",
        Bound::AtMost(0.0),
        counts,
        details.join(", "),
    ));
    verdicts
}

/// A run of the traffic.
struct Run {
    decisions: Vec<Decision>,
    /// What all shadow policies counted.
    shadow_rejected: u64,
}

impl Run {
    fn rejected(&self) -> u64 {
        let rejected = |decision: &&Decision| matches!(decision, Decision::Rejected(..));
        self.decisions.iter().filter(rejected).count() as u64
    }
}

fn replay(rules: &[CheckedPolicy], seed: u64, seconds: u64) -> Run {
    let origin = Instant::now();
    let limiter = limiter(rules, origin, seed);
    let mut random = Random::seeded(seed);
    let mut decisions = Vec::new();
    let callers: Vec<String> = (0..CALLERS).map(|number| format!("c{number}")).collect();
    let mut now_ns = 0.0;
    while now_ns < (seconds * 1_000_000_000) as f64 {
        now_ns += random.exponential() * (1_000_000_000 / REQUESTS) as f64;
        let now = origin + Duration::from_nanos(now_ns as u64);
        // Few of them ask for most.
        let number = random.below(CALLERS).min(random.below(CALLERS));
        let body_len = random.below(200_000);
        let caller = &callers[number as usize];
        decisions.push(decide(&limiter, caller, body_len, now, random.next()));
    }
    let end = origin + Duration::from_nanos(now_ns as u64);
    let reports = limiter.policy_report(end);
    Run {
        decisions,
        shadow_rejected: reports.iter().map(|report| report.shadow_rejected).sum(),
    }
}

fn decide(limiter: &Limiter, caller: &str, body_len: u64, now: Instant, random: u64) -> Decision {
    match limiter.admit(&put(caller, body_len), now, random) {
        Ok(mut reservation) => {
            reservation.sent();
            Decision::Admitted(reservation.settle(&work_of_put(body_len)).as_micros())
        }
        Err(rejection) => Decision::Rejected(rejection.policy.name.to_string(), rejection.wait),
    }
}
