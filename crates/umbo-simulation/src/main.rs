//! Runs seeds of the simulation: `umbo-simulation [--world W] [--seeds N] [--from SEED] [--seed 0x..]
//! [--seconds S] [--threads N]`.
//!
//! Prints each failing seed with the last lines of its trace and the command that replays it, and ends with
//! one line of counts. Exits with 1 if an oracle was violated, or if an event did not occur that every long
//! run must include.

use std::process::ExitCode;

use mimalloc::MiMalloc;
use umbo_simulation::command::{RunOptions, run};

// The server's allocator; a quarter of a run is allocation.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    match RunOptions::parse(std::env::args().skip(1)) {
        Ok(options) => run(&options),
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::from(2)
        }
    }
}
