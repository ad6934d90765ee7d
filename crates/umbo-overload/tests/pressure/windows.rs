//! The p95 of the short window and of the baseline, beside exact ones of the same samples.

use std::time::Duration;

use umbo_overload::{Class, TICK, TickInput};
use umbo_types::ShardId;

use crate::draw::Shape;
use crate::lab::Lab;

const SHARD: ShardId = ShardId(0);
/// Samples below which a window is not judged.
const SAMPLES_MIN: usize = 100;
/// What a second leaves of the weight of the samples of the baseline before it.
const KEPT: f64 = 1.0 - 1.0 / 120.0;
const SECONDS: usize = 120;
/// Seconds from one look at the baseline to the next.
const BASELINE_EVERY: usize = 20;

#[test]
fn the_p95_is_close_to_that_of_the_samples() {
    let shapes = Shape::FIVE.into_iter().map(Some).chain([None]);
    for (shape, rate) in shapes.flat_map(|shape| [200.0, 1_000.0].map(|rate| (shape, rate))) {
        for (errors, window) in run(rate, shape).iter_mut().zip(["short", "baseline"]) {
            errors.sort_by(f64::total_cmp);
            let of = |share: f64| errors[((errors.len() - 1) as f64 * share) as usize];
            let (median, p99) = (of(0.5), of(0.99));
            let case = format!("{window}, {shape:?} at {rate}/s: median {median}, p99 {p99}");
            assert!(median <= 0.03 && p99 <= 0.1, "{case}");
        }
    }
}

/// Returns the errors of the short window and of the baseline, as parts of the exact p95. Without a shape the median
/// doubles and halves by turns.
fn run(rate: f64, shape: Option<Shape>) -> [Vec<f64>; 2] {
    let mut lab = Lab::new(1, 1);
    let (mut of_short, mut of_baseline) = (Vec::new(), Vec::new());
    let mut window: Vec<(Duration, f64)> = Vec::new();
    let (mut slices, mut slice) = (Vec::new(), Vec::new());
    for tick in 0..SECONDS * 10 {
        let is_shifted = shape.is_none() && tick / 100 % 2 == 1;
        let median = if is_shifted { 600.0 } else { 300.0 };
        for _ in 0..lab.draw.poisson(rate * TICK.as_secs_f64()) {
            let micros = shape.unwrap_or(Shape::Lognormal).draw(&mut lab.draw) * median;
            let time = Duration::from_secs_f64(micros / 1e6);
            lab.overload.record(SHARD, Class::PointRead, time);
            window.push((lab.now, micros));
            slice.push(micros);
        }
        lab.now += TICK;
        lab.overload.tick(lab.instant(), |_| TickInput::default());
        let report = lab.overload.report(lab.instant());
        let Some(class) = report.shards[0].classes.first() else {
            continue;
        };
        let from = lab.now.saturating_sub(class.short_window);
        window.retain(|(at, _)| *at >= from);
        if let Some(short) = class.p95_short
            && tick.is_multiple_of(5)
            && window.len() >= SAMPLES_MIN
        {
            let equal = window.iter().map(|(_, micros)| (*micros, 1.0)).collect();
            of_short.push(error(short, p95(equal)));
        }
        // At these rates a slice is a second.
        if (tick + 1) % 10 == 0 {
            slices.push(std::mem::take(&mut slice));
            if let Some(long) = class.p95_long
                && slices.len().is_multiple_of(BASELINE_EVERY)
            {
                of_baseline.push(error(long, p95(weighted(&slices))));
            }
        }
    }
    [of_short, of_baseline]
}

/// Weighs the samples of each second; older ones weigh less.
fn weighted(slices: &[Vec<f64>]) -> Vec<(f64, f64)> {
    let mut weight = 1.0 / KEPT;
    let of_slice = |slice: &Vec<f64>| {
        weight *= KEPT;
        slice.iter().map(|&micros| (micros, weight)).collect()
    };
    slices
        .iter()
        .rev()
        .flat_map::<Vec<_>, _>(of_slice)
        .collect()
}

/// Returns the least sample that is not among the largest 5 % of the weight.
fn p95(mut samples: Vec<(f64, f64)>) -> f64 {
    samples.sort_unstable_by(|(one, _), (other, _)| other.total_cmp(one));
    let total: f64 = samples.iter().map(|(_, weight)| weight).sum();
    let mut beyond = 0.05 * total;
    let found = samples.iter().find(|(_, weight)| {
        beyond -= weight;
        beyond < 0.0
    });
    found.expect("there are samples").0
}

fn error(found: Duration, exact_micros: f64) -> f64 {
    (found.as_secs_f64() * 1e6 / exact_micros - 1.0).abs()
}
