//! A day on which nothing is overloaded, and everything else happens.
//!
//! Two peaks and a night with lulls of two calls a second; service times that follow the load and
//! scatter from tick to tick; pauses; a share of slow reads that grows over the 5 % of a p95 and
//! shrinks again; scans that come and go. A quick day has an hour, and so changes 24 times as fast.

use std::f64::consts::TAU;

use umbo_overload::Class;
use umbo_types::ShardId;

use super::service::{Calls, Lab, Shape, normal};
use crate::check::plan::Plan;
use crate::verdict::{Bound, Verdict};

const SHARDS: u16 = 2;
/// Ticks of a pause, in which everything takes thirty times as long, and least ticks between two.
const PAUSE_TICKS: u32 = 3;
const PAUSE_GAP_TICKS: u32 = 30;
/// One tick in so many begins a pause.
const PAUSE_ONE_IN: u64 = 270;

pub(super) fn noise(plan: &Plan) -> Vec<Verdict> {
    let (hours, days) = if plan.is_quick { (1, 1) } else { (24, 2) };
    let episodes = (0..days).map(|day| {
        let mut lab = Lab::new(plan.seed + day, SHARDS);
        spend_day(&mut lab, hours * 36_000);
        lab.overload.report(lab.instant()).episodes as f64
    });
    vec![Verdict::worst(
        "noise: false episodes",
        Bound::AtMost(0.0),
        episodes.collect(),
        format!("{days} x {hours} hours, {SHARDS} shards, four classes"),
    )]
}

fn spend_day(lab: &mut Lab, ticks: u32) {
    let mut paused_at = 0;
    for tick in 0..ticks {
        // Two pauses in a row would be an overload.
        if tick > paused_at + PAUSE_GAP_TICKS && lab.random.below(PAUSE_ONE_IN) == 0 {
            paused_at = tick;
        }
        let is_pause = paused_at > 0 && tick < paused_at + PAUSE_TICKS;
        let day = f64::from(tick) / f64::from(ticks);
        for shard in (0..SHARDS).map(ShardId) {
            let noise = (0.12 * normal(&mut lab.random)).exp();
            let pause = if is_pause { 30.0 } else { 1.0 };
            for calls in calls(day, f64::from(shard.0), noise * pause) {
                lab.call(shard, &calls, |_| {});
            }
        }
        lab.tick();
    }
}

/// What is asked at a time of the day, from 0 to 1; less of a shard with a higher number.
fn calls(day: f64, shard: f64, slowness: f64) -> [Calls; 4] {
    let load = 0.55 - 0.3 * (TAU * day).cos() - 0.15 * (2.0 * TAU * day).cos();
    let is_lull = (0.9..0.98).contains(&day) || (0.02..0.1).contains(&day);
    let part = 1.0 / (1.0 + 3.0 * shard);
    let reads = 600.0 * load * part;
    let misses = 0.05 - 0.04 * (3.0 * TAU * day).cos();
    let scans = 0.5 - 0.5 * (5.0 * TAU * day).sin();
    let calls = |class, rate, shape, micros| Calls {
        class,
        rate: if is_lull { 2.0 } else { rate },
        shape,
        micros: micros * slowness * (1.0 + load),
    };
    [
        calls(Class::PointRead, reads, Shape::Bimodal(misses), 120.0),
        calls(
            Class::Range,
            reads * 0.5 * scans,
            Shape::Lognormal(0.6),
            900.0,
        ),
        calls(
            Class::PointWrite,
            reads * 0.5 * (1.0 - scans),
            Shape::Exponential,
            2_500.0,
        ),
        calls(
            Class::Scan,
            90.0 * scans * part,
            Shape::Pareto(1.5),
            4_000.0,
        ),
    ]
}
