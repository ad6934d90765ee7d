//! The checks of a server with the configuration that it ships with: a flood, and the callers beside it.
//!
//! Each case starts a server without any setting but its ports and folder. Two victims, `critical` and an innocent one
//! of tier `sheddable-plus`, send small requests at a steady pace: alone, beside ten connections of tier `sheddable`
//! that ask for as much as they get, and from two seconds after them on. The first second of the flood is left out of
//! latencies and shares, but not of refusals.

mod culprit;
mod flood;
mod run;
mod victims;

use std::time::Duration;

use self::culprit::Culprit;
use self::flood::Flood;
use self::run::{Outcome, Times, run};
use self::victims::{Got, Victim};
use super::plan::{Check, Plan};
use crate::bench::lab::Lab;
use crate::failure::Failure;
use crate::verdict::{Bound, Verdict, median_of};

/// Callers of the floods that are of many.
const MANY: usize = 50;
/// Latency beside a flood, of alone, at most; unless one commit of the flood explains more.
const RATIO_MAX: f64 = 1.5;

pub(super) const CHECKS: [Check; 8] = [
    Check {
        name: "large-puts",
        about: "ten connections put 1 MB each, as told by Retry-After: critical within 1.5 x or one commit",
        run: |plan| case(plan, "large-puts", Flood::LargePuts, ONE),
    },
    Check {
        name: "large-puts-rude",
        about: "the same, by a caller that never waits",
        run: |plan| case(plan, "large-puts-rude", Flood::LargePuts, RUDE),
    },
    Check {
        name: "large-puts-of-fifty",
        about: "the same load from fifty callers",
        run: |plan| case(plan, "large-puts-of-fifty", Flood::LargePuts, FIFTY),
    },
    Check {
        name: "ranges",
        about: "ranges of 100,000 rows",
        run: |plan| case(plan, "ranges", Flood::Ranges, ONE),
    },
    Check {
        name: "scans",
        about: "scans of 100,000 rows",
        run: |plan| case(plan, "scans", Flood::Scans, ONE),
    },
    Check {
        name: "multi-gets",
        about: "multi-gets of 1,000 keys",
        run: |plan| case(plan, "multi-gets", Flood::MultiGets, ONE),
    },
    Check {
        name: "batches",
        about: "batches of 1,000 rows",
        run: |plan| case(plan, "batches", Flood::Batches, ONE),
    },
    Check {
        name: "ttl-storm",
        about: "batches of rows that expire after 2 s, and their removal",
        run: |plan| case(plan, "ttl-storm", Flood::TtlStorm, ONE),
    },
];

const ONE: Culprit = Culprit {
    callers: 1,
    is_rude: false,
};
const RUDE: Culprit = Culprit {
    callers: 1,
    is_rude: true,
};
const FIFTY: Culprit = Culprit {
    callers: MANY,
    is_rude: false,
};

/// Runs a case as often as is asked for.
fn case(plan: &Plan, name: &str, flood: Flood, culprit: Culprit) -> Result<Vec<Verdict>, Failure> {
    let given = plan.flood;
    let culprit = Culprit {
        callers: given.callers.unwrap_or(culprit.callers).max(1),
        is_rude: culprit.is_rude || given.is_rude,
    };
    let calm = Duration::from_secs(if plan.is_quick { 3 } else { 6 });
    let seconds = given.seconds.unwrap_or(if plan.is_quick { 4 } else { 8 });
    let times = Times {
        alone: calm,
        flood: Duration::from_secs(seconds.max(2)),
        after: calm,
    };
    let runs = given.runs.unwrap_or(if plan.is_quick { 1 } else { 5 });
    let mut outcomes = Vec::new();
    for turn in 0..runs.max(1) as u64 {
        // A lab of its own: the files of a flood are not kept for the next one.
        let mut lab = Lab::open(None, true)?;
        outcomes.push(run(&mut lab, (flood, culprit), times, plan.seed + turn)?);
    }
    Ok(verdicts(name, &outcomes))
}

/// Judges all runs of a case.
fn verdicts(name: &str, outcomes: &[Outcome]) -> Vec<Verdict> {
    let mut verdicts = vec![
        latency(
            outcomes,
            format!("{name}: critical p50, of its bound"),
            1,
            |got| got.p50,
        ),
        latency(
            outcomes,
            "  critical p95, of its bound".to_owned(),
            1,
            |got| got.p95,
        ),
    ];
    verdicts.extend(
        Victim::ALL
            .iter()
            .enumerate()
            .map(|(at, victim)| of_alone(outcomes, at, *victim)),
    );
    verdicts.extend(innocence(outcomes));
    verdicts.extend(culprits(outcomes));
    verdicts.push(latency(
        outcomes,
        "  critical p50 2 s after, of its bound".to_owned(),
        2,
        |got| got.p50,
    ));
    verdicts.push(latency(
        outcomes,
        "  critical p95 2 s after, of its bound".to_owned(),
        2,
        |got| got.p95,
    ));
    let left: Vec<&str> = outcomes
        .iter()
        .flat_map(|outcome| &outcome.left)
        .map(String::as_str)
        .collect();
    verdicts.push(Verdict::worst(
        "  not as before 2 s after",
        Bound::AtMost(0.0),
        all(outcomes, |outcome| outcome.left.len() as f64),
        left.join("; "),
    ));
    verdicts
}

/// Judges a latency of `critical` beside a flood (1) or after it (2), of the most that it may be.
fn latency(
    outcomes: &[Outcome],
    what: String,
    window: usize,
    figure: impl Fn(&Got) -> f64,
) -> Verdict {
    let of = |outcome: &Outcome| {
        let alone = figure(&outcome.got[0].1[0]);
        let bound = (RATIO_MAX * alone).max(alone + outcome.commit_ms);
        figure(&outcome.got[0].1[window]) / bound
    };
    let times =
        |window: usize| median_of(&all(outcomes, |outcome| figure(&outcome.got[0].1[window])));
    let detail = format!(
        "{:.2} ms, alone {:.2}; one commit {:.2}",
        times(window),
        times(0),
        median_of(&all(outcomes, |outcome| outcome.commit_ms)),
    );
    Verdict::new(what, Bound::AtMost(1.0), all(outcomes, of), detail)
}

/// Shows the latencies of a victim: the ratio of its p95, and the rest in words.
fn of_alone(outcomes: &[Outcome], at: usize, victim: Victim) -> Verdict {
    let ratio = |outcome: &Outcome| outcome.got[at].1[1].p95 / outcome.got[at].1[0].p95;
    let times = |window: usize| {
        let of = |figure: fn(&Got) -> f64| {
            median_of(&all(outcomes, |outcome| figure(&outcome.got[at].1[window])))
        };
        format!("{:.2}/{:.2}", of(|got| got.p50), of(|got| got.p95))
    };
    let p50 = |outcome: &Outcome| outcome.got[at].1[1].p50 / outcome.got[at].1[0].p50;
    let detail = format!(
        "p50 {:.2} of alone; p50/p95 ms: alone {}, beside {}, after {}",
        median_of(&all(outcomes, p50)),
        times(0),
        times(1),
        times(2)
    );
    let what = format!("  {} p95, of alone", victim.as_str());
    Verdict::new(what, Bound::Nothing, all(outcomes, ratio), detail)
}

/// Judges what became of the victims: nothing but answers.
fn innocence(outcomes: &[Outcome]) -> [Verdict; 3] {
    let reasons = outcomes.iter().map(|outcome| outcome.refused.1.as_str());
    let first = reasons.into_iter().find(|reason| !reason.is_empty());
    let good = |outcome: &Outcome| {
        let of = outcome
            .got
            .iter()
            .map(|(_, [alone, beside, _])| beside.good / alone.good);
        of.fold(f64::INFINITY, f64::min)
    };
    let dearest = all(outcomes, |outcome| outcome.price.1);
    let dearest = dearest.into_iter().fold(0.0, f64::max);
    [
        Verdict::worst(
            "  victims refused",
            Bound::AtMost(0.0),
            all(outcomes, |outcome| outcome.refused.0 as f64),
            first.unwrap_or_default(),
        ),
        Verdict::worst(
            "  victims' price, of the plain one",
            Bound::AtMost(1.001),
            all(outcomes, |outcome| outcome.price.0),
            format!("the dearest put {dearest:.2} of alone, with its time"),
        ),
        Verdict::new(
            "  victims' goodput, of alone",
            Bound::AtLeast(0.98),
            all(outcomes, good),
            "of the victim that has least",
        ),
    ]
}

/// Shows what became of the culprit.
fn culprits(outcomes: &[Outcome]) -> Vec<Verdict> {
    let refused = |outcome: &Outcome| {
        let refused = outcome.tally.refused.values().sum::<u64>() as f64;
        refused / (refused + outcome.tally.answered.len() as f64)
    };
    let reasons: Vec<String> = outcomes
        .iter()
        .map(|outcome| {
            let first = outcome.engaged_ms;
            let first = first.map_or(String::new(), |millis| {
                format!(", the first after {millis:.0} ms")
            });
            format!("{}{first}", outcome.tally.reasons())
        })
        .collect();
    let cores = |server: bool| {
        let of = |outcome: &Outcome| {
            if server {
                outcome.cores.0
            } else {
                outcome.cores.1
            }
        };
        median_of(&all(outcomes, of))
    };
    let mut verdicts = vec![
        Verdict::new(
            "  culprit answered, a second",
            Bound::Nothing,
            all(outcomes, |outcome| outcome.answered_per_s),
            format!(
                "cores: server {:.2}, clients {:.2}",
                cores(true),
                cores(false)
            ),
        ),
        Verdict::new(
            "  culprit refused, share",
            Bound::Nothing,
            all(outcomes, refused),
            reasons.join(" | "),
        ),
    ];
    let busy: Vec<(f64, f64)> = outcomes.iter().filter_map(|outcome| outcome.busy).collect();
    if !busy.is_empty() {
        verdicts.push(Verdict::new(
            "  culprit's busy time, of its share + 10 %",
            Bound::AtMost(1.0),
            busy.iter().map(|(own, fair)| own / (fair + 0.1)).collect(),
            "",
        ));
    }
    verdicts
}

fn all(outcomes: &[Outcome], figure: impl Fn(&Outcome) -> f64) -> Vec<f64> {
    outcomes.iter().map(figure).collect()
}
