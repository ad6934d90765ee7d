//! The proof of coalescing, at the size that every run of the tests can afford: 5,000 random programs each way.
//! `UMBO_RANDOM_PROGRAMS=1000000` runs a million.
//!
//! `proof` says what is promised and how it is checked.

#[allow(dead_code, unreachable_pub)] // it holds modules of the crate, which uses more of them
#[path = "../interleavings/proof.rs"]
mod proof;

use proof::{adversarial, cases, exhaustive, random};

/// Runs that one walk through a program may take here.
const RUNS_MAX: usize = 6_000;

fn random_programs() -> usize {
    let runs = std::env::var("UMBO_RANDOM_PROGRAMS").ok();
    runs.and_then(|runs| runs.parse().ok()).unwrap_or(5_000)
}

#[test]
fn every_interleaving_of_the_smallest_programs_keeps_the_promises() {
    for (name, program) in cases() {
        let mut preemptions = 0;
        while preemptions < 3 {
            let (tally, is_complete) = exhaustive(program.clone(), preemptions + 1, RUNS_MAX);
            assert!(tally.runs > 1, "{name}: nothing was walked through");
            if !is_complete {
                break;
            }
            preemptions += 1;
        }
        assert!(
            preemptions > 0,
            "{name}: one preemption was not walked through"
        );
    }
}

#[test]
fn random_programs_keep_the_promises() {
    let tally = random(1, random_programs());
    // All of what a run may come to has happened.
    for count in [
        tally.answered,
        tally.from_cache,
        tally.direct,
        tally.followers,
        tally.failed,
        tally.cancelled,
        tally.orphans,
        tally.overtaken,
        tally.stale,
    ] {
        assert!(count > 100, "{tally:#?}");
    }
    assert!(tally.store_reads <= tally.leaders, "{tally:#?}");
}

#[test]
fn random_programs_keep_the_promises_when_preempted_at_the_worst_moments() {
    let runs = random_programs();
    let tally = adversarial(1, runs, 3);
    assert_eq!(tally.runs, runs as u64);
    assert!(tally.store_reads <= tally.leaders, "{tally:#?}");
}
