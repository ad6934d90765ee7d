//! Quantiles of windows against exact ones: six kinds of service times, from few samples to many.

use std::time::{Duration, Instant};

use umbo_shed::{Class, ClassReport, Overload, SignalSettings, TICK};
use umbo_types::ShardId;

use crate::draw::{Draw, Shape, exact_p95, quantile};
use crate::p_square::PSquare;

const SHARD: ShardId = ShardId(0);

/// Errors, as parts of the exact value.
#[derive(Debug, Default)]
struct Errors {
    short: Vec<f64>,
    long: Vec<f64>,
    p_square: Vec<f64>,
}

fn report(overload: &Overload, now: Instant) -> ClassReport {
    overload.report(now).shards[0].classes[0]
}

fn error(found: Duration, exact_micros: f64) -> f64 {
    (found.as_secs_f64() * 1e6 / exact_micros - 1.0).abs()
}

/// Runs a minute at a rate; `at` gives the service time in microseconds of a second.
fn run(seed: u64, rate: f64, mut at: impl FnMut(&mut Draw, f64) -> f64) -> Errors {
    let start = Instant::now();
    let overload = Overload::new(SignalSettings::default(), 1, start);
    let mut draw = Draw::seeded(seed);
    let (mut errors, mut all) = (Errors::default(), Vec::new());
    let (mut slice_from, mut slice, mut slices) = (Duration::ZERO, Vec::new(), Vec::new());
    for tick in 0..600 {
        let begin = TICK * tick;
        for _ in 0..draw.poisson(rate / 10.0) {
            let micros = at(&mut draw, begin.as_secs_f64());
            overload.record(
                SHARD,
                Class::PointRead,
                Duration::from_secs_f64(micros / 1e6),
            );
            all.push((begin, micros));
            slice.push(micros);
        }
        let now = begin + TICK;
        overload.tick(start + now);
        let Some(class) = overload.report(start + now).shards[0]
            .classes
            .first()
            .copied()
        else {
            continue;
        };
        assert!(!class.is_engaged, "{class:?}");
        let from = now.saturating_sub(class.short_window);
        all.retain(|(at, _)| *at >= from);
        let mut exact: Vec<f64> = all
            .iter()
            .filter(|(at, _)| *at >= from)
            .map(|s| s.1)
            .collect();
        assert_eq!(exact.len(), class.short_samples as usize);
        if exact.len() >= 100 {
            errors.short.push(error(
                class.p95_short.expect("samples"),
                exact_p95(&mut exact),
            ));
        }
        if now >= slice_from + Duration::from_secs(1) && slice.len() >= 100 {
            let mut peer = PSquare::new(0.95);
            for micros in &slice {
                peer.add(*micros);
            }
            let exact = exact_p95(&mut slice);
            errors
                .p_square
                .push((peer.value().expect("five values") / exact - 1.0).abs());
            slices.push(exact);
            (slice_from, slice) = (now, Vec::new());
            // Whole periods of five slices, and the median of theirs.
            let medians = slices
                .chunks_exact(5)
                .map(|five| quantile(&mut five.to_vec(), 0.5));
            let mut medians: Vec<f64> = medians.collect();
            if slices.len() % 5 == 0 && medians.len() >= 2 {
                medians.sort_by(f64::total_cmp);
                let exact = medians[medians.len() / 2];
                errors.long.push(error(
                    report(&overload, start + now)
                        .p95_long
                        .expect("two periods"),
                    exact,
                ));
            }
        }
    }
    errors
}

/// Median and 99th percentile, in percent.
fn judge(errors: &mut [f64]) -> (f64, f64) {
    (
        100.0 * quantile(errors, 0.5),
        100.0 * quantile(errors, 0.99),
    )
}

#[test]
fn six_kinds_of_service_times_are_within_three_percent() {
    let mut peer_worst: f64 = 0.0;
    for rate in [200.0, 1_000.0, 5_000.0] {
        for kind in 0..6 {
            let mut errors = run(kind as u64 + 1, rate, |draw, second| {
                match Shape::FIVE.get(kind) {
                    Some(shape) => 300.0 * shape.draw(draw),
                    // Doubles and halves every ten seconds.
                    None => {
                        300.0
                            * (1.0 + (second as u64 / 10 % 2) as f64)
                            * Shape::Lognormal.draw(draw)
                    }
                }
            });
            let (short, long) = (judge(&mut errors.short), judge(&mut errors.long));
            let peer = judge(&mut errors.p_square);
            peer_worst = peer_worst.max(peer.1);
            println!("{rate}/s, kind {kind}: short {short:.2?} long {long:.2?} P² {peer:.2?}");
            assert!(errors.short.len() > 500 && errors.long.len() > 5);
            assert!(
                short.0 <= 3.0 && short.1 <= 10.0,
                "{rate} {kind} short {short:?}"
            );
            assert!(
                long.0 <= 3.0 && long.1 <= 10.0,
                "{rate} {kind} long {long:?}"
            );
        }
    }
    assert!(peer_worst > 30.0, "P² would do: {peer_worst}");
}
