//! Overload, simulated: Umbo's gates beside plain FIFO, `CoDel` alone and fixed quotas alone.
//!
//! Every case is run with its own figures of the same shards without trouble. The worst case decides.

use umbo_overload::QueueSettings;

use crate::check::cases::{Case, Figure, run_all, verdicts_of};
use crate::check::plan::Plan;
use crate::simulate::overload::{
    Calm, Discipline, Figures, Kind, Scenario, Sharing, Spread, inversions as share_inverted, run,
};
use crate::verdict::{Bound, Verdict};

/// Where something is not over within what is looked at.
const NEVER: f64 = f64::INFINITY;
/// What is known at least of a recovery that was not seen, in milliseconds.
const UNSEEN_MS: f64 = 3_000.0;
/// Recoveries are told apart by as much: one that is over at once may have taken nearly so long.
const RESOLUTION_MS: f64 = 50.0;

/// The results of all disciplines in a case; the first is Umbo.
type AllFigures = [Figures; Discipline::ALL.len()];

fn measured(scenario: &Scenario) -> AllFigures {
    let calm = Calm::of(scenario);
    Discipline::ALL.map(|discipline| of(discipline, scenario, &calm))
}

fn of(discipline: Discipline, scenario: &Scenario, calm: &Calm) -> Figures {
    let account = run(scenario, discipline, QueueSettings::default());
    Figures::of(scenario, &account, calm)
}

fn of_umbo(scenario: &Scenario) -> Figures {
    of(Discipline::Umbo, scenario, &Calm::of(scenario))
}

fn trouble_s(plan: &Plan) -> f64 {
    if plan.is_quick { 15.0 } else { 30.0 }
}

fn case(plan: &Plan, kind: Kind, spread: Spread, workers: usize, seed: u64) -> Case<Scenario> {
    let mut scenario = Scenario::new(kind, plan.seed + seed, trouble_s(plan));
    (scenario.spread, scenario.workers) = (spread, workers);
    let name = format!(
        "{}, {spread:?}, {workers} workers, seed {}",
        kind.as_str(),
        scenario.seed
    );
    Case { name, scenario }
}

/// Cases on the slow shards of the scenarios over sockets, and on such that do one after the other.
fn slow(plan: &Plan, kind: Kind) -> impl Iterator<Item = Case<Scenario>> {
    let (first, trouble_s) = (plan.seed, trouble_s(plan));
    let seeds = (0..seeds(plan)).map(move |seed| first + seed);
    let sharings = [Sharing::InTurn, Sharing::AtOnce];
    sharings.into_iter().flat_map(move |sharing| {
        seeds.clone().map(move |seed| {
            let scenario = Scenario::slow(kind, sharing, seed, trouble_s);
            let name = format!("{}, slow store, {sharing:?}, seed {seed}", kind.as_str());
            Case { name, scenario }
        })
    })
}

const fn seeds(plan: &Plan) -> u64 {
    if plan.is_quick { 1 } else { 3 }
}

fn cases_of(plan: &Plan, kind: Kind, shapes: &[(Spread, usize)]) -> Vec<Case<Scenario>> {
    let cases = shapes.iter().flat_map(|&(spread, workers)| {
        (0..seeds(plan)).map(move |seed| case(plan, kind, spread, workers, seed))
    });
    cases.collect()
}

fn spikes(plan: &Plan) -> Vec<Case<Scenario>> {
    let shapes = [
        (Spread::Usual, 8),
        (Spread::Usual, 4),
        (Spread::Usual, 32),
        (Spread::Wide, 8),
        (Spread::Bimodal, 8),
    ];
    let mut cases = cases_of(plan, Kind::Spike, &shapes);
    cases.extend(slow(plan, Kind::Spike));
    cases
}

/// Cases of each scenario, and of a slow disk below shards that are slow already.
fn scenarios(plan: &Plan) -> Vec<Case<Scenario>> {
    let kinds = Kind::ALL.into_iter();
    let mut cases: Vec<_> = kinds
        .flat_map(|kind| cases_of(plan, kind, &[(Spread::Usual, 8)]))
        .collect();
    cases.extend(slow(plan, Kind::SlowDisk));
    cases
}

fn named<const N: usize>(case: &Case<Scenario>, figures: [f64; N]) -> [Figure; N] {
    figures.map(|figure| Figure {
        name: case.name.clone(),
        figure,
    })
}

pub(super) fn spike(plan: &Plan) -> Vec<Verdict> {
    let cases = spikes(plan);
    let all = run_all(&cases, |case| (case.name.clone(), measured(&case.scenario)));
    let umbo = cases.iter().zip(&all).map(|(case, (_, [umbo, ..]))| {
        let recovery = umbo.recovery_ms.unwrap_or(NEVER);
        named(case, [umbo.goodput, umbo.success, umbo.p99, recovery])
    });
    let metrics = [
        ("spike: goodput, of the peak", Bound::AtLeast(0.9)),
        ("spike: critical and above answered", Bound::AtLeast(0.999)),
        ("spike: their p99, of unloaded", Bound::AtMost(2.3)),
        ("spike: recovery, ms", Bound::AtMost(200.0)),
    ];
    let mut verdicts = verdicts_of(metrics, umbo.collect());
    for (at, discipline) in Discipline::ALL.into_iter().enumerate().skip(1) {
        let beside = cases.iter().zip(&all).map(|(case, (_, figures))| {
            let (umbo, other) = (&figures[0], &figures[at]);
            let recoveries = (
                umbo.recovery_ms.unwrap_or(NEVER),
                other.recovery_ms.unwrap_or(UNSEEN_MS),
            );
            let pairs = [
                (umbo.goodput, other.goodput),
                (umbo.success, other.success),
                (umbo.p99, other.p99),
                (recoveries.0, recoveries.1.max(RESOLUTION_MS)),
            ];
            pairs.map(|(ours, theirs)| Figure {
                name: format!("{}: {ours:.3} and {theirs:.3}", case.name),
                figure: ours / theirs,
            })
        });
        let name = discipline.as_str();
        // A recovery of a quarter of FIFO's is asked for, and none that is longer than any other's.
        let recovery = if discipline == Discipline::Fifo {
            0.25
        } else {
            1.0
        };
        let whats = ["goodput", "critical answered", "their p99", "recovery"]
            .map(|what| format!("spike: {what}, of {name}"));
        let metrics = [
            (whats[0].as_str(), Bound::AtLeast(0.99)),
            (whats[1].as_str(), Bound::AtLeast(1.0)),
            (whats[2].as_str(), Bound::AtMost(1.0)),
            (whats[3].as_str(), Bound::AtMost(recovery)),
        ];
        verdicts.extend(verdicts_of(metrics, beside.collect()));
    }
    verdicts
}

pub(super) fn stall(plan: &Plan) -> Vec<Verdict> {
    let cases = cases_of(plan, Kind::Stall, &[(Spread::Usual, 8), (Spread::Wide, 4)]);
    let figures = run_all(&cases, |case| {
        let umbo = of_umbo(&case.scenario);
        named(case, [umbo.sound.0, umbo.sound.1])
    });
    let metrics = [
        ("stall: goodput of the other shards", Bound::AtLeast(0.98)),
        ("stall: p99 of the other shards", Bound::AtMost(1.2)),
    ];
    verdicts_of(metrics, figures)
}

pub(super) fn trouble(plan: &Plan) -> Vec<Verdict> {
    let figures = run_all(&scenarios(plan), |case| {
        let umbo = of_umbo(&case.scenario);
        // What belongs to a shard that sleeps cannot be answered.
        let success = if case.scenario.kind == Kind::Stall {
            umbo.sound.0.min(1.0)
        } else {
            umbo.success
        };
        named(case, [success, umbo.recovery_ms.unwrap_or(NEVER)])
    });
    let metrics = [
        ("trouble: critical and above answered", Bound::AtLeast(0.99)),
        ("trouble: recovery, ms", Bound::AtMost(200.0)),
    ];
    verdicts_of(metrics, figures)
}

pub(super) fn inversions(plan: &Plan) -> Vec<Verdict> {
    let mut cases = scenarios(plan);
    cases.extend(spikes(plan));
    // Where service times are spread wide, shards stand still for a moment now and then.
    for kind in [Kind::SlowDisk, Kind::ScanStorm] {
        let shapes = [(Spread::Wide, 8), (Spread::Bimodal, 8)];
        cases.extend(cases_of(plan, kind, &shapes));
    }
    let figures = run_all(&cases, |case| {
        let account = run(&case.scenario, Discipline::Umbo, QueueSettings::default());
        named(case, [share_inverted(&case.scenario, &account)])
    });
    verdicts_of(
        [("inversions: of all requests", Bound::AtMost(0.001))],
        figures,
    )
}
