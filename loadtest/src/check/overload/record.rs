//! What it costs to record a service time, beside reading the clock, and how much memory it takes.

use std::hint::black_box;
use std::time::{Duration, Instant};

use umbo_overload::{Class, OverloadController, PressureSettings, ShardCall, TICK, TickInput};
use umbo_types::{Criticality, RequestUnits, ShardId};

use crate::check::plan::Plan;
use crate::random::Random;
use crate::verdict::{Bound, Verdict};

const SHARDS: u16 = 8;

pub(super) fn record(plan: &Plan) -> Vec<Verdict> {
    let (rounds, turns) = if plan.is_quick {
        (7, 100_000)
    } else {
        (21, 500_000)
    };
    let mut random = Random::seeded(plan.seed);
    let mut time = || Duration::from_secs_f64(random.exponential() / 1e4);
    let times: Vec<Duration> = (0..4_096).map(|_| time()).collect();
    let start = Instant::now();
    let overload = OverloadController::new(PressureSettings::default(), SHARDS, start);
    let shard = |at: usize| ShardId(at as u16 % SHARDS);
    let call = |at: usize| ShardCall {
        shard: shard(at),
        class: Class::PointRead,
        tier: Criticality::SheddablePlus,
        caller: Some((at as u64 % 64).wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        size: RequestUnits::from_micros(1_000_000),
    };
    let (mut clock, mut recorded, mut admitted) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=rounds {
        let read = |_| {
            black_box(Instant::now());
        };
        clock.push(nanos(turns, read));
        let record = |at: usize| {
            overload.record(
                shard(at),
                Class::PointRead,
                black_box(times[at % times.len()]),
            );
        };
        recorded.push(nanos(turns, record));
        let admit = |at: usize| {
            let call = black_box(call(at));
            black_box(overload.multiplier(call.shard, call.tier, call.caller.unwrap_or_default()));
        };
        admitted.push(nanos(turns, admit));
        // Two seconds later the next slice has begun, and none is ever full.
        overload.tick(start + 20 * TICK * round, |_| TickInput::default());
    }
    let bytes = OverloadController::CLASS_BYTES as f64;
    vec![
        Verdict::of_nanos(
            "record: a service time, over reading the clock",
            Bound::AtMost(2.0),
            &recorded,
            &clock,
        ),
        Verdict::of_nanos(
            "record: a price without an overload, over the clock",
            Bound::AtMost(0.5),
            &admitted,
            &clock,
        ),
        Verdict::one(
            "record: bytes of a shard and class",
            Bound::AtMost(1_536.0),
            bytes,
            "both slices, and the baseline as a histogram",
        ),
    ]
}

fn nanos(turns: usize, mut turn: impl FnMut(usize)) -> f64 {
    let begun = Instant::now();
    for at in 0..turns {
        turn(at);
    }
    begun.elapsed().as_secs_f64() * 1e9 / turns as f64
}
