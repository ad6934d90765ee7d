//! A step of latency: at every phase of a slice, for every shape of service times.

use std::time::Duration;

use umbo_overload::{Class, TICK};
use umbo_types::ShardId;

use super::service::{Calls, Lab, Shape};
use crate::check::plan::Plan;
use crate::verdict::{Bound, Verdict};

/// How much slower the store becomes.
const STEP: f64 = 4.0;
/// Calls a second.
const RATES: [f64; 2] = [1_000.0, 5_000.0];
/// Power of the tail. With less the p95 of a thousand samples scatters by an eighth, and the ratio of
/// one step in twenty is above the threshold for half a second by chance.
const TAIL: f64 = 2.0;
/// Seconds before the step, of the step, and after it.
const BEFORE_S: u32 = 30;
const DURING_S: u32 = 20;
const AFTER_S: u32 = 30;

pub(super) fn step(plan: &Plan) -> Vec<Verdict> {
    let seeds = if plan.is_quick { 2 } else { 10 };
    let (mut engaged, mut released, mut pairs, mut others) = (vec![], vec![], vec![], vec![]);
    for rate in RATES {
        for shape in Shape::ALL {
            let shape = match shape {
                Shape::Pareto(_) => Shape::Pareto(TAIL),
                other => other,
            };
            for phase in 0..seeds {
                let run = run(plan.seed + u64::from(phase), phase, rate, shape);
                engaged.push(run.engaged.as_secs_f64());
                released.push(run.released.as_secs_f64());
                pairs.push((f64::from(run.episodes) - 1.0).abs());
                others.push(f64::from(run.others));
            }
        }
    }
    let detail = format!("{} steps", engaged.len());
    vec![
        Verdict::worst(
            "step: seconds to engage",
            Bound::AtMost(1.0),
            engaged,
            &*detail,
        ),
        Verdict::worst(
            "step: seconds to release",
            Bound::AtMost(3.0),
            released,
            &*detail,
        ),
        Verdict::worst(
            "step: episodes but one",
            Bound::AtMost(0.0),
            pairs,
            &*detail,
        ),
        Verdict::worst(
            "step: episodes of other shards",
            Bound::AtMost(0.0),
            others,
            detail,
        ),
    ]
}

/// What became of one step.
#[derive(Debug)]
struct Run {
    engaged: Duration,
    released: Duration,
    episodes: u32,
    others: u32,
}

fn run(seed: u64, phase: u32, rate: f64, shape: Shape) -> Run {
    let mut lab = Lab::new(seed, 2);
    let (slow, healthy) = (ShardId(0), ShardId(1));
    let begin = BEFORE_S * 10 + phase;
    let end = begin + DURING_S * 10;
    let (mut engaged, mut released) = (None, None);
    for tick in 0..end + AFTER_S * 10 {
        let scale = if (begin..end).contains(&tick) {
            STEP
        } else {
            1.0
        };
        for (shard, scale) in [(slow, scale), (healthy, 1.0)] {
            let calls = Calls {
                class: Class::PointRead,
                rate,
                shape,
                micros: 400.0 * scale,
            };
            lab.call(shard, &calls, |_| {});
        }
        lab.tick();
        let is_engaged = lab.is_engaged(slow);
        if is_engaged && tick >= begin && engaged.is_none() {
            engaged = Some(TICK * (tick + 1 - begin));
        }
        if !is_engaged && tick >= end && released.is_none() {
            released = Some(TICK * (tick + 1 - end));
        }
    }
    let log = lab.overload.episodes();
    let others = log.iter().filter(|episode| episode.shard != slow);
    let others = others.count() as u32;
    Run {
        engaged: engaged.unwrap_or(Duration::MAX),
        released: released.unwrap_or(Duration::MAX),
        episodes: log.len() as u32 - others,
        others,
    }
}
