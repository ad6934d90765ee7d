//! A few seeds of each world, and the check that equal seeds give equal runs.
#![cfg(test)]

use std::process::Command;

use umbo_simulation::worlds::World;

/// Seed of each world that every change must pass, beside those of the test of traces; `tests/run` runs many more.
const SEED: u64 = 1;

#[test]
fn a_seed_of_each_world_violates_nothing() {
    for world in World::ALL {
        let report = world.run(SEED, false);
        assert_eq!(
            report.violation,
            None,
            "{}: {:#?}",
            world.name(),
            report.lines
        );
    }
}

#[test]
fn seeds_that_once_found_something_find_nothing() {
    // A failed read unwound while redb held a lock, and the drop of a table ended the process.
    assert_eq!(World::Store.run(0x21, false).violation, None);
    // A file that a bad sector kept from opening was not tried again.
    assert_eq!(World::Store.run(0x4f6, false).violation, None);
    // A group that a bad sector aborted was applied when it was repeated under its key.
    assert_eq!(World::Store.run(0x8c, false).violation, None);
    // Asynchronous writes that a failed sync undid were off the disk for longer than the bound.
    assert_eq!(World::Store.run(0xdeb76, false).violation, None);
    // A row of a batch that was not applied was applied when the batch was repeated under its key.
    assert_eq!(World::Hop.run(0x48, false).violation, None);
}

#[test]
fn the_same_seed_gives_the_same_trace_in_two_processes_and_violates_nothing() {
    for world in World::ALL {
        let trace_of = |seed: &str| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_umbo-simulation"));
            let output = command
                .args(["--world", world.name(), "--seed", seed])
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            let output = String::from_utf8(output.stdout).unwrap();
            // The line after it holds the time that the run took.
            output.lines().next().unwrap().to_owned()
        };
        // In the fifth of the loads many are ready at the same time.
        let traces = ["2", "3", "5"].map(|seed| {
            let first = trace_of(seed);
            assert!(first.contains("trace"), "{first}");
            assert_eq!(first, trace_of(seed));
            first
        });
        assert_ne!(traces[0], traces[1]);
    }
}
