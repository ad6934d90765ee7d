//! What requests cost: instructions and allocations of each kind, counted.
//!
//! Embedded, the dispatcher and the engine are in one process; through the hop, the engine is behind a shard node. A
//! range and a multi-get are counted by the row. A put is counted up to its answer: its share of an apply comes later.
//! Refusals reach no store, so there is one figure of each; one by an overload costs no more than a cached hit.

use super::callgrind::{Counted, of_answer, of_row};
use super::cases::{Case, run_all};
use super::plan::{Check, Plan};
use crate::counted::Kind;
use crate::failure::Failure;
use crate::verdict::{Bound, Verdict};

pub(super) const CHECKS: [Check; 1] = [Check {
    name: "cost",
    about: "instructions and allocations of each kind of answer, embedded and through a shard node",
    run: cost,
}];

/// How much worse than its last value a figure of instructions may be, in per cent: one of a get or a refusal, and one
/// of a put or through the hop, where commits and batches of frames vary.
const SLACK: f64 = 2.0;
const SLACK_OF_MANY_THREADS: f64 = 5.0;

/// Counts of a kind before it falls short: those of one program differ by up to one per cent, as its tables are seeded by
/// chance and its timers run.
const COUNTS_MAX: u32 = 3;

/// A kind of answer, and what it may cost.
struct Kept {
    kind: Kind,
    is_remote: bool,
    is_row: bool,
    instructions_max: f64,
    allocations_max: f64,
}

const fn kept(kind: Kind, is_remote: bool, instructions_max: f64, allocations_max: f64) -> Kept {
    Kept {
        kind,
        is_remote,
        is_row: matches!(kind, Kind::Range | Kind::MultiGet),
        instructions_max,
        allocations_max,
    }
}

const ALL: [Kept; 13] = [
    kept(Kind::Get, false, 27_300.0, 21.0),
    kept(Kind::Put, false, 80_000.0, 28.0),
    kept(Kind::Range, false, 2_400.0, 0.0),
    kept(Kind::MultiGet, false, 10_800.0, 9.2),
    kept(Kind::Hit, false, 25_000.0, 21.0),
    kept(Kind::Rejected, false, 54_700.0, 57.0),
    kept(Kind::ShedGet, false, 27_800.0, 25.0),
    kept(Kind::ShedPut, false, 27_300.0, 25.0),
    kept(Kind::Get, true, 56_000.0, 24.0),
    kept(Kind::Put, true, 105_000.0, 40.0),
    kept(Kind::Range, true, 7_500.0, 0.1),
    kept(Kind::MultiGet, true, 16_300.0, 10.9),
    kept(Kind::Hit, true, 25_600.0, 21.0),
];

impl Kept {
    fn name(&self) -> String {
        let row = if self.is_row { " row" } else { "" };
        let place = if self.is_remote { ", hop" } else { "" };
        format!("{}{row}{place}", self.kind.as_str())
    }

    fn count(&self) -> Result<Counted, Failure> {
        let count = if self.is_row { of_row } else { of_answer };
        let mut counted = count(self.kind, self.is_remote);
        for _ in 1..COUNTS_MAX {
            match &counted {
                Ok(counted) if counted.instructions <= self.instructions_max => break,
                Ok(counted) => println!("{}: {:.0}, once more", self.name(), counted.instructions),
                Err(failure) => println!("{}: {failure}, once more", self.name()),
            }
            counted = count(self.kind, self.is_remote);
        }
        counted
    }

    fn verdicts(&self, counted: Counted) -> [Verdict; 2] {
        let name = self.name();
        let verdict = |what: &str, most, figure| {
            Verdict::one(format!("{name}: {what}"), Bound::AtMost(most), figure, "")
        };
        let slack = if self.is_remote || self.kind == Kind::Put {
            SLACK_OF_MANY_THREADS
        } else {
            SLACK
        };
        // A table that grows now and then is no allocation of each answer.
        let parts = if self.is_row { 10.0 } else { 1.0 };
        let allocations = (counted.allocations * parts).round() / parts;
        [
            verdict("instructions", self.instructions_max, counted.instructions).with_slack(slack),
            verdict("allocations", self.allocations_max, allocations),
        ]
    }
}

fn cost(_: &Plan) -> Result<Vec<Verdict>, Failure> {
    let cases = ALL.map(|scenario| Case {
        name: scenario.name(),
        scenario,
    });
    let counted = run_all(&cases, |case| case.scenario.count());
    let counted = counted.into_iter().collect::<Result<Vec<_>, _>>()?;
    let each = cases.iter().zip(&counted);
    let mut verdicts: Vec<_> = each
        .flat_map(|(case, counted)| case.scenario.verdicts(*counted))
        .collect();
    let of = |kind| {
        let at = ALL
            .iter()
            .position(|kept| kept.kind == kind && !kept.is_remote);
        counted[at.expect("every kind is counted")].instructions
    };
    for (what, kind) in [("get", Kind::ShedGet), ("put", Kind::ShedPut)] {
        let what = format!("instructions: of a shed {what}, of a cached hit");
        let ratio = of(kind) / of(Kind::Hit);
        verdicts.push(Verdict::one(what, Bound::AtMost(1.0), ratio, "").with_slack(SLACK));
    }
    Ok(verdicts)
}
