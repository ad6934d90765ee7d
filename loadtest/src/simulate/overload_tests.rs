//! The goals at short durations, and the simulator against what is known without it.

use umbo_overload::{LimitSettings, QueueSettings};
use umbo_types::{Criticality, Operation};

use super::account::{Account, SourceAccount};
use super::*;

fn figures(scenario: &Scenario, discipline: Discipline, calm: &Calm) -> Figures {
    let account = run(scenario, discipline, QueueSettings::default());
    if discipline == Discipline::Umbo {
        let inverted = inversions(scenario, &account);
        assert!(inverted <= 0.001, "{:?}: {inverted}", scenario.kind);
    }
    Figures::of(scenario, &account, calm)
}

/// Returns what became of all reads, or of all writes.
fn of<'a>(
    account: &'a Account,
    scenario: &'a Scenario,
    is_write: bool,
) -> impl Iterator<Item = &'a SourceAccount> + Clone {
    let sources = account.sources.iter().zip(&scenario.sources);
    let meant = sources.filter(move |(_, source)| source.operation.is_write() == is_write);
    meant.map(|(account, _)| account)
}

#[test]
fn ten_times_the_load_costs_neither_goodput_nor_what_is_critical() {
    for (spread, workers) in [(Spread::Usual, 4), (Spread::Wide, 4)] {
        let mut scenario = Scenario::new(Kind::Spike, 1, 5.0);
        (scenario.spread, scenario.workers) = (spread, workers);
        let calm = Calm::of(&scenario);
        let umbo = figures(&scenario, Discipline::Umbo, &calm);
        let case = format!("{spread:?}, {workers} workers: {umbo:?}");
        assert!(umbo.goodput >= 0.9, "{case}");
        assert!(umbo.success >= 0.999, "{case}");
        // The time in which the limit is found is a larger part of so short a spike.
        assert!(umbo.p99 <= 2.5, "{case}");
        assert!(
            umbo.recovery_ms.is_some_and(|millis| millis <= 200.0),
            "{case}"
        );
        for simpler in [Discipline::Fifo, Discipline::Codel, Discipline::Quotas] {
            let other = figures(&scenario, simpler, &calm);
            let case = format!("{case}, {other:?}");
            assert!(
                other.goodput < umbo.goodput && other.success < umbo.success,
                "{case}"
            );
            assert!(other.p99 > umbo.p99, "{case}");
        }
    }
}

#[test]
fn writes_wait_for_no_read() {
    let scenario = Scenario::new(Kind::Spike, 8, 3.0);
    let account = run(&scenario, Discipline::Umbo, QueueSettings::default());
    let spike = |is_write| {
        let sources = of(&account, &scenario, is_write);
        let (from_ns, to_ns) = (scenario.from_ns, scenario.to_ns);
        let calm = account::sum(sources.clone(), 0, from_ns);
        (calm, account::sum(sources, from_ns, to_ns))
    };
    let (_, reads) = spike(false);
    assert!(reads.good < reads.offered / 5, "{reads:?}");
    let (calm, writes) = spike(true);
    assert_eq!(writes.good, writes.offered);
    assert!(writes.p99 <= 1.1 * calm.p99, "{writes:?}, {calm:?}");
}

#[test]
fn an_import_waits_for_slots_of_writes_and_costs_no_read_and_no_higher_tier() {
    let scenario = Scenario::new(Kind::BulkAtPeak, 9, 3.0);
    let account = run(&scenario, Discipline::Umbo, QueueSettings::default());
    let answered = |at: usize| {
        let source = [&account.sources[at]].into_iter();
        let sum = account::sum(source, scenario.from_ns, scenario.to_ns);
        sum.good as f64 / sum.offered as f64
    };
    for (at, source) in scenario.sources.iter().enumerate() {
        let share = answered(at);
        let case = format!("{source:?}: {share}");
        match (source.operation, source.criticality) {
            (Operation::BatchWrite, _) => assert!((0.3..0.7).contains(&share), "{case}"),
            // They share their tier with it.
            (Operation::Put, Criticality::Sheddable) => {}
            (Operation::Put, _) => assert!(share >= 0.99, "{case}"),
            (_, Criticality::Sheddable) => {}
            _ => assert!(share >= 0.98, "{case}"),
        }
    }
}

#[test]
fn a_stalled_shard_takes_nothing_from_the_others() {
    let scenario = Scenario::new(Kind::Stall, 2, 5.0);
    let calm = Calm::of(&scenario);
    let umbo = figures(&scenario, Discipline::Umbo, &calm);
    assert!(umbo.sound.0 >= 0.98 && umbo.sound.1 <= 1.2, "{umbo:?}");
    assert!(
        umbo.recovery_ms.is_some_and(|millis| millis <= 200.0),
        "{umbo:?}"
    );
}

#[test]
fn a_slow_store_serves_what_is_critical() {
    let scenario = Scenario::new(Kind::SlowDisk, 3, 6.0);
    let calm = Calm::of(&scenario);
    let umbo = figures(&scenario, Discipline::Umbo, &calm);
    // An eighth of the store is left.
    assert!(
        umbo.success >= 0.999 && umbo.goodput >= 0.9 / 8.0,
        "{umbo:?}"
    );
    assert!(
        umbo.recovery_ms.is_some_and(|millis| millis <= 200.0),
        "{umbo:?}"
    );
}

#[test]
fn one_caller_takes_nothing_from_others_of_its_tier() {
    let mut scenario = Scenario::new(Kind::NoisyNeighbour, 4, 4.0);
    scenario.workers = 4;
    let account = run(&scenario, Discipline::Umbo, QueueSettings::default());
    let share = |at: usize| {
        let sum = account::sum(
            [&account.sources[at]].into_iter(),
            scenario.from_ns,
            scenario.to_ns,
        );
        sum.good as f64 / sum.offered as f64
    };
    let noisy = scenario.sources.len() - 1;
    for (at, source) in scenario.sources.iter().enumerate() {
        if at == noisy {
            assert!(share(at) < 0.1);
        } else if source.criticality >= Criticality::SheddablePlus {
            // One in a hundred waits longer for its turn among twenty than the queue is patient.
            assert!(share(at) >= 0.98, "{source:?}: {}", share(at));
        }
    }
}

/// A queue without a bound, one worker at a time: what fits into the clients' patience is answered
/// in time, then nothing is.
#[test]
fn a_fifo_does_what_can_be_added_up_by_hand() {
    let mut scenario = Scenario::new(Kind::Spike, 5, 3.0);
    scenario.degradation = 0.0;
    let account = run(&scenario, Discipline::Fifo, QueueSettings::default());
    let sum = account::sum(
        of(&account, &scenario, false),
        scenario.from_ns,
        scenario.to_ns,
    );
    // The backlog grows by nine parts of ten: after 56 ms it takes half a second, and what came
    // until then is what is answered in time.
    let expected = 10.0 * scenario.capacity() * 0.5 / 9.0;
    let ratio = sum.good as f64 / expected;
    assert!((0.9..1.15).contains(&ratio), "{ratio}");
}

#[test]
fn below_capacity_everything_is_answered_whoever_is_at_the_door() {
    let scenario = Scenario::new(Kind::Spike, 6, 2.0).calm(0.5);
    for discipline in Discipline::ALL {
        let account = run(&scenario, discipline, QueueSettings::default());
        let sum = account::sum(account.sources.iter(), 1_000_000_000, scenario.to_ns);
        assert!(sum.good + 1 >= sum.offered, "{discipline:?}: {sum:?}");
        let share = sum.goodput / (scenario.shards * scenario.workers) as f64;
        assert!((share - 0.5).abs() < 0.02, "{discipline:?}: {share}");
    }
}

#[test]
fn the_same_seed_gives_the_same_figures_and_another_gives_others() {
    let figures_of = |seed| {
        let mut scenario = Scenario::new(Kind::ScanStorm, seed, 1.0);
        scenario.workers = 2;
        let calm = Calm {
            peak: 8.0,
            p99: 10.0,
            sound: (4.0, 10.0),
        };
        format!("{:?}", figures(&scenario, Discipline::Umbo, &calm))
    };
    assert_eq!(figures_of(7), figures_of(7));
    assert_ne!(figures_of(7), figures_of(8));
}

/// A store of few places and long calls, which a gate sees little of, and a tier that needs more than half
/// of it by itself: what the limit has to be is found within a fraction of a second.
#[test]
fn a_spike_on_a_slow_store_costs_nothing_that_is_critical() {
    for (sharing, seed) in slow_cases() {
        let scenario = Scenario::slow(Kind::Spike, sharing, seed, 6.0);
        let calm = Calm::of(&scenario);
        let umbo = figures(&scenario, Discipline::Umbo, &calm);
        let case = format!("{sharing:?}, seed {seed}: {umbo:?}");
        assert!(umbo.goodput >= 0.9 && umbo.success >= 0.998, "{case}");
        assert!(umbo.p99 <= 2.3, "{case}");
        assert!(
            umbo.recovery_ms.is_some_and(|millis| millis <= 200.0),
            "{case}"
        );
    }
}

/// And the same store eight times as slow: a call takes a fifth of what its client waits.
#[test]
fn a_slow_store_that_becomes_slower_serves_what_is_critical() {
    for (sharing, seed) in slow_cases() {
        let scenario = Scenario::slow(Kind::SlowDisk, sharing, seed, 15.0);
        let calm = Calm::of(&scenario);
        let umbo = figures(&scenario, Discipline::Umbo, &calm);
        let case = format!("{sharing:?}, seed {seed}: {umbo:?}");
        assert!(umbo.success >= 0.985, "{case}");
        // An eighth of it is left.
        assert!(umbo.goodput >= 0.9 / 8.0, "{case}");
    }
}

fn slow_cases() -> impl Iterator<Item = (Sharing, u64)> {
    let sharings = [Sharing::InTurn, Sharing::AtOnce].into_iter();
    sharings.flat_map(|sharing| (1..=3).map(move |seed| (sharing, seed)))
}

/// Twelve at once on four workers take three times as long as one alone does, eight times as slow all the
/// more, and no time of the store is lost.
#[test]
fn where_all_go_on_at_once_they_share_what_the_workers_do() {
    for kind in [Kind::Spike, Kind::SlowDisk] {
        let mut scenario = Scenario::slow(kind, Sharing::AtOnce, 1, 10.0);
        let load = |load: f64| [0.0, load];
        scenario.sources.truncate(1);
        scenario.sources[0].load = load(10.0);
        scenario.timeout_ns = 5_000_000_000;
        let limit = LimitSettings {
            min: 12,
            max: 12,
            initial: 12,
        };
        let settings = QueueSettings {
            limit,
            ..QueueSettings::default()
        };
        let account = run(&scenario, Discipline::Umbo, settings);
        let (from_ns, to_ns) = (scenario.from_ns, scenario.to_ns);
        let sum = account::sum(account.sources.iter(), from_ns, to_ns);
        let p50 = account::quantile_ms(account.sources.iter(), (from_ns, to_ns), 0.5);
        let slowness = if kind == Kind::Spike { 1.0 } else { 8.0 };
        let whole = (scenario.shards * scenario.workers) as f64 / slowness;
        let share = sum.goodput / whole;
        // What is begun is done in whole steps.
        assert!((0.85..1.15).contains(&share), "{kind:?}: {share}");
        let alone = scenario.service_ns / 1e6 * slowness;
        // And longer by the time in the queue: up to a tenth of what is left of the deadline, at least.
        let target = scenario.timeout_ns as f64 / 1e6 / 10.0;
        assert!(
            (2.7 * alone..4.5 * alone + target).contains(&p50),
            "{kind:?}: {p50} of {alone}"
        );
    }
}
