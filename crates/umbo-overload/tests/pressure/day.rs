//! A day of everything that is no overload: noise, a diurnal load, changing mixes, lulls of two
//! requests a second, pauses, and slow requests that become common and rare again.

use std::f64::consts::TAU;

use umbo_overload::Class;
use umbo_types::ShardId;

use crate::draw::{Draw, Shape};
use crate::lab::{Lab, Stream};

/// How many hours of the day are simulated. A test has time for half of one, so that a day passes 48
/// times as fast; `UMBO_DAY_HOURS=24` takes all of its time.
fn hours() -> f64 {
    let hours = std::env::var("UMBO_DAY_HOURS").ok();
    hours.and_then(|hours| hours.parse().ok()).unwrap_or(0.5)
}

/// What a shard is asked at a time of the day, from 0 to below 1.
fn script(draw: &mut Draw, shard: ShardId, day: f64, is_pause: bool) -> Vec<Stream> {
    // Two peaks and a night, in which hardly anything is asked for a sixth of the day.
    let load = 0.55 - 0.3 * (TAU * day).cos() - 0.15 * (2.0 * TAU * day).cos();
    let is_lull = (0.9..0.98).contains(&day) || (0.02..0.1).contains(&day);
    let busy = if shard == ShardId(0) { 1.0 } else { 0.25 };
    let noise = (0.12 * draw.normal()).exp();
    let pause = if is_pause { 30.0 } else { 1.0 };
    let slowness = noise * pause * (1.0 + load);
    let reads = 600.0 * load * busy;
    // The share of misses goes from 1 % to 9 % and back: over the p95 and back.
    let misses = 0.05 - 0.04 * (3.0 * TAU * day).cos();
    let scans = 0.5 - 0.5 * (5.0 * TAU * day).sin();
    let kinds = [
        (Class::PointRead, reads, Shape::Bimodal(1.0 / misses), 120.0),
        (Class::Range, reads * 0.5 * scans, Shape::Lognormal, 900.0),
        (
            Class::PointWrite,
            reads * 0.5 * (1.0 - scans),
            Shape::Exponential,
            2_500.0,
        ),
        (Class::Scan, 90.0 * scans * busy, Shape::Pareto, 4_000.0),
    ];
    let stream = |(class, rate, shape, micros)| Stream {
        class,
        rate: if is_lull { 2.0 } else { rate },
        shape,
        scale_micros: micros * slowness,
    };
    kinds.map(stream).into()
}

#[test]
fn a_day_of_noise_engages_nothing() {
    for seed in 0..2 {
        let mut lab = Lab::new(seed, 2);
        let ticks = (hours() * 36_000.0) as u32;
        let mut paused_at = 0;
        for tick in 0..ticks {
            // A pause of 0.3 s twice a minute, for whatever reason stores pause; no two in a row, for
            // that would be trouble.
            if tick > paused_at + 30 && lab.draw.next().is_multiple_of(270) {
                paused_at = tick;
            }
            let is_pause = paused_at > 0 && tick < paused_at + 3;
            let day = f64::from(tick) / f64::from(ticks);
            lab.tick(|draw, shard| script(draw, shard, day, is_pause));
            assert!(
                lab.overload.episodes().is_empty(),
                "at {day}: {:?}",
                lab.overload.episodes()
            );
        }
        let report = lab.overload.report(lab.instant());
        assert_eq!(report.episodes, 0);
    }
}
