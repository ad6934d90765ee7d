//! A million reads a second of ten keys, simulated: how many of them the store sees.

use super::pod::{Outcome, Stampede};
use crate::check::cases::{Case, Figure, run_all, verdicts_of};
use crate::check::plan::Plan;
use crate::verdict::{Bound, Verdict};

/// Ten keys at a million reads a second, and a store that takes half a millisecond.
const USUAL: Stampede = Stampede {
    seed: 1,
    seconds: 30,
    keys: 10,
    rate: 1_000_000,
    burst: 1,
    cold: 0.02,
    cold_keys: 1_000_000,
    store_ns: 500_000,
    are_absent: false,
};

/// Returns stores and arrivals that differ, with their names.
fn variants(seed: u64) -> Vec<(&'static str, Stampede)> {
    let usual = Stampede { seed, ..USUAL };
    vec![
        ("a store of 0.5 ms", usual),
        (
            "a store that answers at once",
            Stampede {
                store_ns: 0,
                ..usual
            },
        ),
        (
            "a store of 20 ms",
            Stampede {
                store_ns: 20_000_000,
                ..usual
            },
        ),
        (
            "a millisecond's reads at one instant",
            Stampede {
                burst: 1_000,
                ..usual
            },
        ),
        (
            "many other keys",
            Stampede {
                cold: 0.5,
                store_ns: 0,
                ..usual
            },
        ),
        (
            "nothing under the keys",
            Stampede {
                are_absent: true,
                ..usual
            },
        ),
    ]
}

pub(super) fn stampede(plan: &Plan) -> Vec<Verdict> {
    // Less, and the reads before detection weigh more than the collapse allows.
    let seconds = if plan.is_quick { 24 } else { 30 };
    let variants = variants(plan.seed).into_iter();
    let cases: Vec<Case<Stampede>> = variants
        .map(|(name, stampede)| Case {
            name: name.to_owned(),
            scenario: Stampede {
                seconds,
                ..stampede
            },
        })
        .collect();
    let metrics = [
        (
            "stampede: reads of the store since detection, of keys x ceil(T/TTL) x 1.05",
            Bound::AtMost(1.0),
        ),
        (
            "stampede: collapse at 1 M reads a second, to one",
            Bound::AtLeast(10_000.0),
        ),
        ("stampede: errors, wrong answers", Bound::AtMost(0.0)),
        ("stampede: reads that wait for ever", Bound::AtMost(0.0)),
    ];
    let measured = run_all(&cases, |case| {
        let Outcome {
            wanted,
            store_reads,
            undetected,
            errors,
            stuck,
        } = case.scenario.run();
        let reads = store_reads as f64;
        let figure = |figure| Figure {
            name: format!(
                "{} ({reads} of {wanted} in {seconds} s, {undetected} before detection)",
                case.name
            ),
            figure,
        };
        // Before a store that answers at once reads are shared from detection on, before another one
        // from the first.
        let collapse = if case.scenario.store_ns == 0 {
            (wanted - undetected) as f64 / reads
        } else {
            wanted as f64 / (reads + undetected as f64)
        };
        [
            figure(reads / case.scenario.reads_max(seconds)),
            figure(collapse),
            figure(errors as f64),
            figure(stuck as f64),
        ]
    });
    verdicts_of(metrics, measured)
}
