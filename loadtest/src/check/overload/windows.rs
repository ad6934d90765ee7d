//! Quantiles of the short window and of the baseline beside exact ones of the same samples.

use std::time::Duration;

use umbo_overload::Class;
use umbo_types::ShardId;

use super::service::{Calls, Lab, Shape};
use crate::check::plan::Plan;
use crate::random::Random;
use crate::verdict::{Bound, Verdict};

const SHARD: ShardId = ShardId(0);
/// Samples below which nothing is said of a window.
const SAMPLES_MIN: usize = 100;
/// What a second leaves of the weight of the samples of the baseline before it.
const KEPT: f64 = 1.0 - 1.0 / 120.0;
/// Seconds from one look at the baseline to the next.
const BASELINE_EVERY: usize = 20;

/// Errors of one distribution, as parts of the exact value.
#[derive(Debug, Default)]
struct Errors {
    short: Vec<f64>,
    baseline: Vec<f64>,
}

pub(super) fn windows(plan: &Plan) -> Vec<Verdict> {
    let seconds = if plan.is_quick { 120 } else { 600 };
    let kinds = Shape::ALL.into_iter().map(Some).chain([None]);
    let mut verdicts = Vec::new();
    for kind in kinds {
        let name = kind.map_or("shifting", Shape::name);
        let mut random = Random::seeded(plan.seed);
        let rates = [200.0, 1_000.0, 8_000.0];
        let errors = rates.map(|rate| run(random.next(), seconds, rate, kind));
        for (what, bound, share) in [("median", 0.03, 0.5), ("p99", 0.1, 0.99)] {
            let figures = |of: fn(&Errors) -> &Vec<f64>| {
                errors
                    .iter()
                    .map(|errors| quantile(of(errors), share))
                    .collect()
            };
            let title = |of| format!("windows: {what} error of the p95 of the {of}, {name}");
            let bound = Bound::AtMost(bound);
            let detail = "200, 1,000 and 8,000 calls a second";
            verdicts.push(Verdict::worst(
                title("short window"),
                bound,
                figures(|e| &e.short),
                detail,
            ));
            verdicts.push(Verdict::worst(
                title("baseline"),
                bound,
                figures(|e| &e.baseline),
                detail,
            ));
        }
    }
    verdicts
}

/// Compares all windows of a run. Without a shape the median doubles and halves by turns.
fn run(seed: u64, seconds: u32, rate: f64, shape: Option<Shape>) -> Errors {
    let mut lab = Lab::new(seed, 1);
    let mut errors = Errors::default();
    let mut window: Vec<(Duration, f64)> = Vec::new();
    let mut slice = Vec::new();
    let mut baseline = WeightedSamples::default();
    for tick in 0..seconds * 10 {
        let is_shifted = shape.is_none() && tick / 100 % 2 == 1;
        let calls = Calls {
            class: Class::PointRead,
            rate,
            shape: shape.unwrap_or(Shape::Lognormal(0.6)),
            micros: if is_shifted { 600.0 } else { 300.0 },
        };
        let begun = lab.now;
        lab.call(SHARD, &calls, |micros| {
            window.push((begun, micros));
            slice.push(micros);
        });
        lab.tick();
        let report = lab.overload.report(lab.instant());
        let Some(class) = report
            .shards
            .first()
            .and_then(|shard| shard.classes.first())
        else {
            continue;
        };
        let from = lab.now.saturating_sub(class.short_window);
        window.retain(|(at, _)| *at >= from);
        let exact: Vec<f64> = window.iter().map(|(_, micros)| *micros).collect();
        if let Some(short) = class.p95_short
            && exact.len() >= SAMPLES_MIN
        {
            errors.short.push(error(short, p95(&exact)));
        }
        // At these rates a slice is a second.
        if (tick + 1) % 10 == 0 {
            baseline.slices.push(std::mem::take(&mut slice));
            if let Some(long) = class.p95_long
                && baseline.slices.len().is_multiple_of(BASELINE_EVERY)
            {
                errors.baseline.push(error(long, baseline.p95()));
            }
        }
    }
    errors
}

/// The samples of each second so far; older ones weigh less.
#[derive(Debug, Default)]
struct WeightedSamples {
    slices: Vec<Vec<f64>>,
}

impl WeightedSamples {
    fn p95(&self) -> f64 {
        let mut samples = Vec::new();
        let mut weight = 1.0;
        for slice in self.slices.iter().rev() {
            samples.extend(slice.iter().map(|&micros| (micros, weight)));
            weight *= KEPT;
        }
        samples.sort_unstable_by(|(one, _), (other, _)| one.total_cmp(other));
        let total: f64 = samples.iter().map(|(_, weight)| weight).sum();
        let mut beyond = 0.05 * total;
        let largest_first = samples.iter().rev();
        let p95 = largest_first.map_while(|(micros, weight)| {
            beyond -= weight;
            (beyond >= 0.0).then_some(*micros)
        });
        p95.last().unwrap_or(f64::NAN)
    }
}

fn error(found: Duration, exact_micros: f64) -> f64 {
    (found.as_secs_f64() * 1e6 / exact_micros - 1.0).abs()
}

/// The p95 by nearest rank.
fn p95(samples: &[f64]) -> f64 {
    let mut samples = samples.to_vec();
    samples.sort_by(f64::total_cmp);
    samples[(samples.len() * 19).div_ceil(20) - 1]
}

fn quantile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share) as usize]
}
