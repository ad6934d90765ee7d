//! Steps of latency: found soon, over soon, once; and what is no step.

use std::time::Duration;

use umbo_overload::{Class, OverloadController, PressureSettings, TICK, TickInput};
use umbo_types::{Criticality, ShardId};

use crate::draw::{Draw, Shape};
use crate::lab::{Lab, Stream};

fn gets(rate: f64, shape: Shape, scale_micros: f64) -> Vec<Stream> {
    let class = Class::PointRead;
    vec![Stream {
        class,
        rate,
        shape,
        scale_micros,
    }]
}

/// Every shape at several rates and at every phase of a slice.
#[test]
fn a_fourfold_step_engages_within_a_second_and_releases_within_three() {
    let (mut slowest_on, mut slowest_off) = (Duration::ZERO, Duration::ZERO);
    for rate in [500.0, 1_000.0, 3_000.0] {
        for shape in Shape::FIVE {
            if shape == Shape::Pareto && rate < 1_000.0 {
                continue; // the p95s of so few samples scatter as much as the step
            }
            for phase in [0, 3, 5, 8] {
                let mut lab = Lab::new(phase, 2);
                lab.run(20.0 + phase as f64 / 10.0, |_, _| gets(rate, shape, 400.0));
                assert!(!lab.is_engaged(0) && !lab.is_engaged(1));
                let slow = |_: &mut Draw, shard| {
                    gets(
                        rate,
                        shape,
                        if shard == ShardId(0) { 1_600.0 } else { 400.0 },
                    )
                };
                let on = lab.run_until(true, 5.0, slow);
                lab.run(7.0, slow);
                assert!(lab.is_engaged(0), "{rate} {shape:?} {on:?}: held");
                let back = lab.instant();
                lab.run(19.0, |_, _| gets(rate, shape, 400.0));
                let log = lab.overload.episodes();
                assert_eq!(log.len(), 1, "{rate} {shape:?}: {log:?}");
                let off = log[0].ended.unwrap().saturating_duration_since(back);
                assert_eq!(log[0].shard, ShardId(0));
                let (ratio, class) = (log[0].ratio_min, log[0].class);
                assert!(
                    (0.1..0.4).contains(&ratio) && class == Class::PointRead,
                    "{log:?}"
                );
                if on > slowest_on || off > slowest_off {
                    println!("{rate}/s {shape:?} phase {phase}: on {on:?} off {off:?}");
                }
                (slowest_on, slowest_off) = (slowest_on.max(on), slowest_off.max(off));
            }
        }
    }
    assert!(slowest_on <= Duration::from_secs(1), "{slowest_on:?}");
    assert!(slowest_off <= Duration::from_secs(3), "{slowest_off:?}");
}

/// A release comes before the longest window has forgotten the overload.
#[test]
fn what_is_over_is_not_found_again() {
    let shape = Shape::Bimodal(1.0 / 0.12);
    for seed in 0..20 {
        let mut lab = Lab::new(seed, 1);
        lab.run(20.0, |_, _| gets(2_000.0, shape, 400.0));
        lab.run(10.0, |_, _| gets(2_000.0, shape, 1_600.0));
        lab.run(4.0, |_, _| gets(2_000.0, shape, 400.0));
        let log = lab.overload.episodes();
        assert_eq!(log.len(), 1, "{log:?}");
    }
}

#[test]
fn a_pause_is_no_overload() {
    for seed in 0..10 {
        let mut lab = Lab::new(seed, 1);
        lab.run(30.0 + seed as f64 / 10.0, |_, _| {
            gets(1_000.0, Shape::Lognormal, 400.0)
        });
        for _ in 0..20 {
            lab.run(0.3, |_, _| gets(1_000.0, Shape::Lognormal, 40_000.0));
            lab.run(5.0, |_, _| gets(1_000.0, Shape::Lognormal, 400.0));
        }
        assert!(lab.overload.episodes().is_empty());
    }
}

/// Three microseconds that become twelve are no trouble; those that become a millisecond are.
#[test]
fn what_is_fast_enough_is_no_overload() {
    let mut lab = Lab::new(9, 1);
    lab.run(30.0, |_, _| gets(1_000.0, Shape::Lognormal, 3.0));
    lab.run(10.0, |_, _| gets(1_000.0, Shape::Lognormal, 40.0));
    let class = lab.overload.report(lab.instant()).shards[0].classes[0];
    assert!(class.ratio.is_some_and(|ratio| ratio > 0.5), "{class:?}");
    assert!(lab.overload.episodes().is_empty());
    lab.run(1.0, |_, _| gets(1_000.0, Shape::Lognormal, 1_000.0));
    assert!(lab.is_engaged(0));
}

#[test]
fn nothing_is_judged_by_a_handful_and_little_is_judged_within_seconds() {
    for (rate, is_judged) in [(15.0, false), (40.0, true)] {
        let mut lab = Lab::new(3, 1);
        lab.run(60.0, |_, _| gets(200.0, Shape::Lognormal, 400.0));
        lab.run(3.0, |_, _| gets(rate, Shape::Lognormal, 400.0));
        // The longest window holds twelve of the few, and 32 of the others.
        lab.run(4.0, |_, _| gets(rate, Shape::Lognormal, 4_000.0));
        assert_eq!(lab.is_engaged(0), is_judged, "{rate}");
        lab.run(60.0, |_, _| gets(rate, Shape::Lognormal, 4_000.0));
        assert_eq!(lab.overload.episodes().len(), usize::from(is_judged));
    }
}

#[test]
fn without_a_baseline_nothing_is_judged() {
    let mut lab = Lab::new(3, 1);
    lab.run(8.0, |_, _| gets(500.0, Shape::Lognormal, 400.0));
    lab.run(40.0, |_, _| gets(500.0, Shape::Lognormal, 4_000.0));
    assert!(lab.overload.episodes().is_empty());
}

/// A crowd that comes in bursts half a second apart is one episode, which ends with its last burst.
#[test]
fn bursts_of_one_crowd_are_one_episode() {
    let start = std::time::Instant::now();
    let controller = OverloadController::new(PressureSettings::default(), 1, start);
    let mut shed = 0;
    let (mut begun, mut ended) = (0, Vec::new());
    for tick in 1..=60 {
        // Something is shed in every fifth of the first thirty ticks, and once more after two seconds.
        if (tick <= 30 && tick % 5 == 0) || tick == 50 {
            shed += 3;
        }
        let input = TickInput {
            shed: [shed, 0, 0, 0],
            shed_by_queue: [shed, 0],
            ..TickInput::default()
        };
        let changes = controller.tick(start + TICK * tick, |_| input);
        begun += changes.begun.len();
        ended.extend(changes.ended);
    }
    assert_eq!(begun, 2, "the crowd, and what came two seconds later");
    let crowd = &ended[0];
    assert_eq!(crowd.shed_total(), 18);
    assert_eq!(crowd.ended, Some(start + TICK * 30));
}

#[test]
fn where_everything_stops_being_asked_it_is_over() {
    let mut lab = Lab::new(4, 1);
    lab.run(30.0, |_, _| gets(1_000.0, Shape::Exponential, 400.0));
    lab.run(5.0, |_, _| gets(1_000.0, Shape::Exponential, 4_000.0));
    assert!(lab.is_engaged(0));
    let off = lab.run_until(false, 20.0, |_, _| Vec::new());
    assert!(off <= Duration::from_secs(6), "{off:?}");
}

#[test]
fn where_nothing_is_answered_it_is_not() {
    let mut lab = Lab::new(5, 1);
    lab.run(30.0, |_, _| gets(1_000.0, Shape::Exponential, 400.0));
    lab.run(5.0, |_, _| gets(1_000.0, Shape::Exponential, 4_000.0));
    let from = lab.now;
    for _ in 0..200 {
        lab.oldest = lab.now.saturating_sub(from);
        lab.tick(|_, _| Vec::new());
    }
    assert!(lab.is_engaged(0));
    lab.oldest = Duration::ZERO;
    let off = lab.run_until(false, 20.0, |_, _| gets(1_000.0, Shape::Exponential, 400.0));
    assert!(off <= Duration::from_secs(6), "{off:?}");
    assert_eq!(lab.overload.episodes().len(), 1);
}

/// The baseline stands still while the shard is engaged, and follows after a quarter of an hour.
#[test]
fn what_does_not_end_becomes_normal() {
    let mut lab = Lab::new(6, 1);
    lab.run(60.0, |_, _| gets(200.0, Shape::Lognormal, 400.0));
    lab.run(880.0, |_, _| gets(200.0, Shape::Lognormal, 2_000.0));
    assert!(lab.is_engaged(0));
    let normal = |lab: &Lab| lab.overload.report(lab.instant()).shards[0].classes[0].p95_long;
    assert!(normal(&lab).unwrap() < Duration::from_millis(2));
    let log = lab.overload.episodes();
    assert_eq!(log[0].tier_max, Some(Criticality::SheddablePlus), "{log:?}");
    lab.run(400.0, |_, _| gets(200.0, Shape::Lognormal, 2_000.0));
    assert!(!lab.is_engaged(0));
    assert!(normal(&lab).unwrap() > Duration::from_millis(4));
    assert_eq!(lab.overload.episodes().len(), 1);
}

#[test]
fn time_that_stands_still_or_jumps_changes_nothing() {
    let mut lab = Lab::new(7, 1);
    lab.run(30.0, |_, _| gets(1_000.0, Shape::Lognormal, 400.0));
    for _ in 0..100 {
        lab.overload.tick(lab.instant(), |_| TickInput::default());
        lab.overload.tick(lab.start, |_| TickInput::default());
    }
    lab.now += Duration::from_hours(3);
    lab.run(30.0, |_, _| gets(1_000.0, Shape::Lognormal, 400.0));
    assert!(lab.overload.episodes().is_empty());
    // A tick that comes late is one window.
    for at in 0..40 {
        let slow = if at < 20 { 400.0 } else { 1_600.0 };
        for _ in 0..500 {
            let time = Shape::Lognormal.draw(&mut lab.draw) * slow / 1e6;
            lab.overload
                .record(ShardId(0), Class::PointRead, Duration::from_secs_f64(time));
        }
        lab.now += 5 * TICK;
        lab.overload.tick(lab.instant(), |_| TickInput::default());
        assert_eq!(lab.is_engaged(0), at >= 23, "{at}");
    }
}

#[test]
fn a_pod_without_shards_and_shards_that_do_not_exist_do_nothing() {
    let lab = Lab::new(8, 0);
    let overload: &OverloadController = &lab.overload;
    overload.record(ShardId(5), Class::Scan, Duration::from_secs(1));
    assert_eq!(
        overload.tick(lab.start + TICK, |_| TickInput::default()),
        umbo_overload::Changes::default()
    );
    assert!(overload.report(lab.start).shards.is_empty());
}
