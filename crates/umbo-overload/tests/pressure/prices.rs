//! Who pays for an overload: prices by tier and share, and what each input of the pressure does.

use std::time::Duration;

use umbo_overload::{
    Class, DesignatedClass, OverloadController, PressureInput, PressureSettings, ShardCall, TICK,
    TickInput,
};
use umbo_types::{Criticality, RequestUnits, ShardId};

use crate::draw::Shape;
use crate::lab::{Lab, Stream};

const SHARD: ShardId = ShardId(0);
const GREEDY: u64 = 1;
const MODEST: u64 = 2;

fn call(tier: Criticality, caller: u64) -> ShardCall {
    ShardCall {
        shard: SHARD,
        class: Class::PointWrite,
        tier,
        caller: Some(caller),
        size: RequestUnits::from_micros(6_000_000),
    }
}

/// Lets two callers of a tier keep the shard busy for a tick: one for ten times as long.
fn work(overload: &OverloadController, tier: Criticality) {
    for (caller, millis) in [(GREEDY, 10), (MODEST, 1)] {
        let (call, busy) = (call(tier, caller), Duration::from_millis(millis));
        if overload.refusal(&call).is_none() {
            overload.was_busy(&call, busy, Duration::ZERO);
        }
    }
}

/// Ticks with an input; every tick both callers of both lower tiers do work.
fn ticks(lab: &mut Lab, ticks: u32, input: &TickInput) {
    for _ in 0..ticks {
        for tier in [Criticality::Sheddable, Criticality::SheddablePlus] {
            work(&lab.overload, tier);
        }
        lab.now += TICK;
        lab.overload.tick(lab.instant(), |_| *input);
    }
}

fn times(lab: &Lab, tier: Criticality, caller: u64) -> f64 {
    lab.overload.multiplier(SHARD, tier, caller).as_f64()
}

fn slow_queue() -> TickInput {
    TickInput {
        queue_delay: [4.0, 0.0],
        ..TickInput::default()
    }
}

#[test]
fn a_caller_above_its_share_pays_before_the_others_of_its_tier() {
    let mut lab = Lab::new(1, 2);
    ticks(&mut lab, 30, &TickInput::default());
    assert!((times(&lab, Criticality::Sheddable, GREEDY) - 1.0).abs() < 1e-9);
    ticks(&mut lab, 3, &slow_queue());
    let (greedy, modest) = (
        times(&lab, Criticality::Sheddable, GREEDY),
        times(&lab, Criticality::Sheddable, MODEST),
    );
    assert!(
        greedy > 1.5 && (modest - 1.0).abs() < 1e-9,
        "{greedy} {modest}"
    );
    assert!((times(&lab, Criticality::SheddablePlus, GREEDY) - 1.0).abs() < 1e-9);
    // It does not end: the greedy one is held to its share, and the next tier follows; the modest one never pays.
    assert!(
        lab.overload
            .refusal(&call(Criticality::Sheddable, GREEDY))
            .is_some()
    );
    ticks(&mut lab, 60, &slow_queue());
    for tier in [Criticality::Sheddable, Criticality::SheddablePlus] {
        assert!(times(&lab, tier, GREEDY) > 7.9);
        assert!((times(&lab, tier, MODEST) - 1.0).abs() < 1e-9);
    }
    // The greedy one may use a tenth of its share, in all its tiers together: one of its requests a second.
    let mut refused = [0, 0];
    for _ in 0..10 {
        ticks(&mut lab, 1, &slow_queue());
        for (tier, refused) in [Criticality::Sheddable, Criticality::SheddablePlus]
            .into_iter()
            .zip(&mut refused)
        {
            *refused += u32::from(lab.overload.refusal(&call(tier, GREEDY)).is_some());
            assert!(lab.overload.refusal(&call(tier, MODEST)).is_none());
        }
    }
    assert!(refused.iter().all(|refused| *refused >= 8), "{refused:?}");
    assert!((times(&lab, Criticality::Critical, GREEDY) - 1.0).abs() < 1e-9);
}

#[test]
fn equal_callers_pay_together_after_two_seconds_of_pressure() {
    let mut lab = Lab::new(6, 1);
    let mut ticks = |ticks: u32, input: TickInput| {
        for _ in 0..ticks {
            for caller in [GREEDY, MODEST] {
                let call = call(Criticality::Sheddable, caller);
                lab.overload
                    .was_busy(&call, Duration::from_millis(10), Duration::ZERO);
            }
            lab.now += TICK;
            lab.overload.tick(lab.instant(), |_| input);
        }
        times(&lab, Criticality::Sheddable, MODEST)
    };
    ticks(30, TickInput::default());
    assert!((ticks(20, slow_queue()) - 1.0).abs() < 1e-9);
    assert!(ticks(10, slow_queue()) > 7.9);
    assert!((ticks(10, TickInput::default()) - 1.0).abs() < 1e-9);
}

#[test]
fn times_are_charged_in_full_but_for_what_an_overload_adds() {
    let read = |rate: f64, scale_micros: f64| Stream {
        class: Class::PointRead,
        rate,
        shape: Shape::Exponential,
        scale_micros,
    };
    let charged = |lab: &Lab, class: Class, millis: u64| {
        let time = Duration::from_millis(millis);
        let charged = lab.overload.charged_time(SHARD, class, time);
        charged.as_secs_f64() * 1_000.0
    };
    let mut lab = Lab::new(5, 1);
    lab.run(60.0, |_, _| vec![read(500.0, 1_000.0)]);
    assert_eq!(charged(&lab, Class::PointRead, 2_000).round() as u64, 2_000);
    ticks(&mut lab, 3, &slow_queue());
    assert!(lab.is_engaged(0));
    // The usual p99, and nothing is taken from what is no slower.
    let usual = charged(&lab, Class::PointRead, 2_000);
    // Of an exponential distribution with a median of 1 ms.
    let exact = 100_f64.log2();
    assert!((usual / exact - 1.0).abs() < 0.15, "{usual} {exact}");
    assert!((charged(&lab, Class::PointRead, 1) - 1.0).abs() < 1e-9);
    // What is usual of scans is not known.
    assert_eq!(charged(&lab, Class::Scan, 2_000).round() as u64, 2_000);
    ticks(&mut lab, 100, &TickInput::default());
    assert!(!lab.is_engaged(0));
    assert_eq!(charged(&lab, Class::PointRead, 2_000).round() as u64, 2_000);
}

#[test]
fn prices_are_plain_within_two_seconds_after_the_pressure() {
    let mut lab = Lab::new(2, 1);
    ticks(&mut lab, 100, &slow_queue());
    let tiers = [Criticality::Sheddable, Criticality::SheddablePlus];
    assert!(
        tiers
            .into_iter()
            .all(|tier| times(&lab, tier, GREEDY) > 7.9)
    );
    // From now on the greedy one asks for no more than the modest one, and nothing is slow.
    let ended = lab.instant();
    for _ in 0..30 {
        for caller in [GREEDY, MODEST] {
            let call = call(Criticality::Sheddable, caller);
            lab.overload.was_busy(&call, TICK / 100, Duration::ZERO);
        }
        lab.now += TICK;
        lab.overload.tick(lab.instant(), |_| TickInput::default());
    }
    assert!((times(&lab, Criticality::Sheddable, GREEDY) - 1.0).abs() < 1e-9);
    let episodes = lab.overload.episodes();
    assert_eq!(episodes.len(), 1);
    // As of the last raised price.
    let plain = episodes[0].ended.unwrap();
    assert!(plain > ended && plain <= ended + Duration::from_secs(2));
    assert_eq!(episodes[0].input, PressureInput::QueueDelay);
    assert_eq!(episodes[0].tier_max, Some(Criticality::SheddablePlus));
}

#[test]
fn each_input_is_a_pressure_of_its_classes_and_the_greatest_counts() {
    let lag = TickInput {
        lag: 8.0,
        ..TickInput::default()
    };
    let writes = TickInput {
        queue_delay: [0.0, 2.0],
        ..TickInput::default()
    };
    for (input, of_read, of_write) in [(lag, 1.0, 1.0), (writes, 0.0, 1.0 / 3.0)] {
        let mut lab = Lab::new(3, 1);
        ticks(&mut lab, 1, &input);
        let report = lab.overload.report(lab.instant());
        let pressure = |class: Class| {
            let classes = report.shards[0].classes.iter();
            let mut found = classes.filter(|report| report.class == class);
            found.next().map_or(0.0, |report| report.pressure)
        };
        assert!(
            (pressure(Class::PointRead) - of_read).abs() < 1e-9,
            "{report:?}"
        );
        assert!(
            (pressure(Class::PointWrite) - of_write).abs() < 1e-9,
            "{report:?}"
        );
    }
}

/// However many more requests there are: as long as each takes what it did, nothing is overloaded.
#[test]
fn a_rise_in_concurrency_alone_is_no_pressure() {
    let mut lab = Lab::new(4, 1);
    let gets = |rate| {
        vec![Stream {
            class: Class::PointRead,
            rate,
            shape: Shape::Lognormal,
            scale_micros: 400.0,
        }]
    };
    lab.run(20.0, |_, _| gets(200.0));
    lab.run(10.0, |_, _| gets(20_000.0));
    assert!(lab.overload.episodes().is_empty());
}

#[test]
fn a_designated_class_pays_alone() {
    let mut lab = Lab::new(5, 1);
    let designated = DesignatedClass::new(Criticality::Sheddable, Some(vec![MODEST]));
    let settings = PressureSettings {
        designated,
        ..PressureSettings::default()
    };
    lab.overload = OverloadController::new(settings, 1, lab.start);
    ticks(&mut lab, 60, &slow_queue());
    assert!(times(&lab, Criticality::Sheddable, MODEST) > 7.9);
    assert!((times(&lab, Criticality::Sheddable, GREEDY) - 1.0).abs() < 1e-9);
    assert!((times(&lab, Criticality::SheddablePlus, MODEST) - 1.0).abs() < 1e-9);
}

/// Lets a caller, Umbo's own work and perhaps another caller ask a shard that becomes ten times as slow. Returns the
/// episodes, and whether the first caller ever paid more or was refused.
fn asked_by(other: Option<u64>) -> (u64, bool) {
    let mut lab = Lab::new(11, 1);
    let mut is_reached = false;
    for tick in 0..400_u32 {
        let millis = if tick < 300 { 1 } else { 10 };
        let service = Duration::from_millis(millis);
        for _ in 0..20 {
            lab.overload.record(SHARD, Class::PointWrite, service);
        }
        for caller in [Some(GREEDY), None, other] {
            let call = ShardCall {
                caller,
                ..call(Criticality::SheddablePlus, 0)
            };
            let busy = if caller == Some(GREEDY) { 80 } else { 1 };
            let busy = Duration::from_millis(busy);
            lab.overload.was_busy(&call, busy, Duration::ZERO);
        }
        lab.now += TICK;
        lab.overload.tick(lab.instant(), |_| TickInput::default());
        let greedy = call(Criticality::SheddablePlus, GREEDY);
        is_reached |= lab.overload.refusal(&greedy).is_some();
        is_reached |= times(&lab, Criticality::SheddablePlus, GREEDY) > 1.0;
    }
    (lab.overload.report(lab.instant()).episodes, is_reached)
}

#[test]
fn a_caller_alone_is_never_reached_by_its_own_latency() {
    assert_eq!(asked_by(None), (0, false));
    assert_eq!(asked_by(Some(MODEST)), (1, true));
}
