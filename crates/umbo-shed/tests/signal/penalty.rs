//! Who pays for an overload: a store that grows slower with load, and callers of every tier.

use std::time::Duration;

use umbo_shed::{Class, TICK, Work};
use umbo_types::{Criticality, RequestUnits, ShardId};

use crate::lab::Lab;

const SHARD: ShardId = ShardId(0);
/// What the store does in a second before it grows slow.
const CAPACITY: f64 = 1_000.0;

#[derive(Debug, Clone, Copy)]
struct Client {
    caller: u64,
    tier: Criticality,
    /// Requests a second, of one unit each.
    rate: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Served {
    asked: u32,
    passed: u32,
}

impl Served {
    fn share(self) -> f64 {
        f64::from(self.passed) / f64::from(self.asked)
    }
}

const fn client(caller: u64, tier: Criticality, rate: f64) -> Client {
    Client { caller, tier, rate }
}

/// Runs clients against a store whose service times grow with what is let through.
fn run(lab: &mut Lab, seconds: u64, clients: &[Client]) -> Vec<Served> {
    run_on(lab, seconds * 10, clients, 1.0)
}

/// Runs clients for some ticks against a store that is slow by itself.
fn run_on(lab: &mut Lab, ticks: u64, clients: &[Client], slow: f64) -> Vec<Served> {
    let mut served = vec![Served::default(); clients.len()];
    for _ in 0..ticks {
        let now = lab.instant();
        let mut passed = 0;
        for (client, served) in clients.iter().zip(&mut served) {
            let work = Work {
                shard: SHARD,
                tier: client.tier,
                caller: client.caller.wrapping_mul(0x9E37_79B9_7F4A_7C15),
                cost: RequestUnits::from_micros(1_000_000),
            };
            for at in 0..lab.draw.poisson(client.rate / 10.0) {
                served.asked += 1;
                let now = now + Duration::from_micros(u64::from(at) * 97 % 100_000);
                if lab.overload.admit(&work, now, lab.draw.next()).is_ok() {
                    served.passed += 1;
                    passed += 1;
                    lab.overload.charged(&work);
                }
            }
        }
        let load = f64::from(passed) * 10.0 / CAPACITY;
        let slowness = if load < 0.9 {
            1.0
        } else {
            1.0 + 20.0 * (load - 0.9)
        };
        for _ in 0..passed {
            let micros = 400.0 * slow * slowness * (0.3 * lab.draw.normal()).exp();
            let time = Duration::from_secs_f64(micros / 1e6);
            lab.overload.record(SHARD, Class::PointRead, time);
        }
        lab.now += TICK;
        lab.overload.tick(lab.instant());
    }
    served
}

const CALM: [Client; 4] = [
    client(1, Criticality::Sheddable, 150.0),
    client(2, Criticality::SheddablePlus, 250.0),
    client(3, Criticality::SheddablePlus, 150.0),
    client(4, Criticality::Critical, 150.0),
];

fn surge(at: usize, rate: f64) -> [Client; 4] {
    let mut clients = CALM;
    clients[at].rate = rate;
    clients
}

#[test]
fn a_batch_that_asks_for_more_pays_alone() {
    let mut lab = Lab::new(1, 1);
    let calm = run(&mut lab, 60, &CALM);
    assert!(calm.iter().all(|served| served.passed == served.asked));
    run(&mut lab, 2, &surge(0, 1_500.0));
    let served = run(&mut lab, 30, &surge(0, 1_500.0));
    assert!((0.1..0.5).contains(&served[0].share()), "{served:?}");
    for others in &served[1..] {
        assert!(others.share() > 0.97, "{served:?}");
    }
    assert_eq!(served[3].asked, served[3].passed, "critical");
    run(&mut lab, 5, &CALM);
    let engagements = lab.overload.engagements();
    assert_eq!(engagements.len(), 1, "{engagements:?}");
    assert!(engagements[0].ended.is_some() && engagements[0].shed[2..] == [0, 0]);
}

#[test]
fn of_one_tier_the_one_above_its_baseline_pays_first() {
    let mut lab = Lab::new(2, 1);
    run(&mut lab, 60, &CALM);
    run(&mut lab, 3, &surge(1, 2_500.0));
    let served = run(&mut lab, 20, &surge(1, 2_500.0));
    let [_, noisy, quiet, critical] = served[..] else {
        panic!("four clients");
    };
    assert!(
        noisy.share() < 0.4 && quiet.share() > 1.5 * noisy.share(),
        "{served:?}"
    );
    assert_eq!(critical.asked, critical.passed);
}

#[test]
fn every_tier_keeps_a_tenth_and_higher_ones_no_less() {
    let mut lab = Lab::new(3, 1);
    run(&mut lab, 60, &CALM);
    let tenfold = CALM.map(|calm| client(calm.caller, calm.tier, calm.rate * 10.0));
    run(&mut lab, 5, &tenfold);
    let served = run(&mut lab, 20, &tenfold);
    // What passed before counts for a second or so.
    assert!(
        served.iter().all(|served| served.share() >= 0.095),
        "{served:?}"
    );
    assert!(served[0].share() <= served[2].share() + 0.01, "{served:?}");
    assert!(served[2].share() <= served[3].share(), "{served:?}");
}

#[test]
fn a_flood_of_strangers_does_not_drown_those_who_are_known() {
    let mut lab = Lab::new(4, 1);
    run(&mut lab, 60, &CALM);
    let flood = |round: u64| {
        let strangers = (0..400)
            .map(move |at| client(1_000 + round * 400 + at, Criticality::SheddablePlus, 10.0));
        CALM.into_iter().chain(strangers).collect::<Vec<_>>()
    };
    run(&mut lab, 3, &flood(0));
    let mut known = Served::default();
    let mut strangers = Served::default();
    for round in 0..10 {
        let served = run(&mut lab, 1, &flood(round));
        for (at, served) in served.iter().enumerate() {
            let sum = match at {
                1 | 2 => &mut known,
                4.. => &mut strangers,
                _ => continue,
            };
            sum.asked += served.asked;
            sum.passed += served.passed;
        }
    }
    assert!(
        known.share() > 2.0 * strangers.share(),
        "{known:?} {strangers:?}"
    );
    let report = lab.overload.report(lab.instant());
    assert!(report.memory < 1 << 20, "{}", report.memory);
}

/// As long as the load stays, so does the engagement: what the penalty cures must not end it.
#[test]
fn an_overload_that_goes_on_is_one_engagement() {
    let mut lab = Lab::new(5, 1);
    run(&mut lab, 60, &CALM);
    let mut served = Served::default();
    for _ in 0..12 {
        let of_round = run(&mut lab, 10, &surge(0, 4_000.0))[3];
        served.asked += of_round.asked;
        served.passed += of_round.passed;
    }
    run(&mut lab, 5, &CALM);
    let engagements = lab.overload.engagements();
    assert_eq!(engagements.len(), 1, "{engagements:?}");
    assert_eq!(served.asked, served.passed, "critical");
    let lasted = engagements[0].duration(lab.instant());
    assert!(
        lasted > Duration::from_secs(118) && lasted < Duration::from_secs(124),
        "{lasted:?}"
    );
}

/// What shedding does not cure: the store is slow whatever is let through.
#[test]
fn a_slow_store_is_one_engagement_that_ends_within_three_seconds() {
    for seed in 0..10 {
        let mut lab = Lab::new(seed, 1);
        run(&mut lab, 30, &CALM);
        let ticks_until = |lab: &mut Lab, is_engaged: bool, slow: f64| {
            let tick = (1..100).find(|_| {
                run_on(lab, 1, &CALM, slow);
                lab.is_engaged(0) == is_engaged
            });
            tick.expect("within ten seconds")
        };
        let on = ticks_until(&mut lab, true, 4.0);
        let served = run_on(&mut lab, 300, &CALM, 4.0);
        assert!(
            served[0].share() < 0.3 && served[1].share() < 0.3,
            "{served:?}"
        );
        assert_eq!(served[3].asked, served[3].passed, "critical");
        let off = ticks_until(&mut lab, false, 1.0);
        assert!(on <= 10 && off <= 30, "{on} {off}");
        let calm = run(&mut lab, 10, &CALM);
        assert!(calm.iter().all(|served| served.asked == served.passed));
        assert_eq!(lab.overload.engagements().len(), 1);
    }
}
