//! Quantiles of windows beside exact ones of the same samples.

use std::time::Duration;

use umbo_overload::Class;
use umbo_types::ShardId;

use super::Plan;
use super::service::{Calls, Lab, Shape};
use crate::random::Random;
use crate::verdict::{Bound, Verdict};

const SHARD: ShardId = ShardId(0);
/// Samples below which nothing is said of a window.
const SAMPLES_MIN: usize = 100;
/// Slices in a period of the long window.
const PERIOD_SLICES: usize = 5;

/// Errors of one distribution, as parts of the exact value.
#[derive(Debug, Default)]
struct Errors {
    short: Vec<f64>,
    long: Vec<f64>,
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
            let title = |window| format!("windows: {what} error of the {window} p95, {name}");
            let bound = Bound::AtMost(bound);
            let detail = "200, 1,000 and 8,000 calls a second";
            verdicts.push(Verdict::worst(
                title("short"),
                bound,
                figures(|e| &e.short),
                detail,
            ));
            verdicts.push(Verdict::worst(
                title("long"),
                bound,
                figures(|e| &e.long),
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
    let mut slices = Vec::new();
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
        // At these rates a slice is a second, and a period five of them.
        if (tick + 1) % 10 == 0 {
            slices.push(p95(&std::mem::take(&mut slice)));
            let periods: Vec<f64> = slices
                .chunks_exact(PERIOD_SLICES)
                .map(|period| quantile(period, 0.5))
                .collect();
            if let Some(long) = class.p95_long
                && slices.len() % PERIOD_SLICES == 0
            {
                let mut last: Vec<f64> = periods.iter().rev().take(60).copied().collect();
                last.sort_by(f64::total_cmp);
                errors.long.push(error(long, last[last.len() / 2]));
            }
        }
    }
    errors
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
