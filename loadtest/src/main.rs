//! `umbo-loadtest`: scenario data, load, and the benchmarks of Umbo against its peers.
//!
//! Owns everything that measures. Deliberately uses no crate of the server on a measured path: the
//! server is the `umbo` binary, run as a process of its own like every peer. The invariant: a
//! figure is a ratio of two processes driven alike, by turns, within one run.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "what is counted here stays far below two to the power of 52, and is not negative"
)]

use std::process::ExitCode;

use alloc_tracker::Allocator;
use clap::{Parser, Subcommand};
use mimalloc::MiMalloc;

mod admit;
mod allocations;
mod bench;
mod check;
mod counted;
mod dataset;
mod ddos;
mod failure;
mod latencies;
mod load;
mod modelled;
mod peer;
mod process;
mod random;
mod scenario;
mod simulate;
mod verdict;

use crate::failure::Failure;

/// The allocator of the server, so that the peers built here are no slower for theirs. It is counted,
/// in words of the thread that asks.
#[global_allocator]
static ALLOCATOR: Allocator<MiMalloc> = Allocator::new(MiMalloc);

/// Load, scenario data, and benchmarks against peers
#[derive(Debug, Parser)]
#[command(name = "umbo-loadtest", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run benchmarks against peers and say whether their bounds hold
    Bench(bench::Arguments),
    /// Simulate callers and traffic on the limiters of quotas; print a table
    Simulate(simulate::Arguments),
    /// Check what must hold, and say of each figure whether its bound holds
    Check(check::Arguments),
    /// Attack a few keys of a real server beside normal traffic; print a report
    Ddos(ddos::Arguments),
    /// Overload a real dispatcher over a store of known capacity; print a report
    Scenario(scenario::Arguments),
    /// Write the rows of the scenario as NDJSON to standard output
    Rows(dataset::Arguments),
    /// Send prepared requests in a closed loop (what the benchmarks run)
    #[command(hide = true)]
    Load(load::Arguments),
    /// Send prepared requests at fixed instants (what the checks run)
    #[command(hide = true)]
    Pace(load::pace::Arguments),
    /// Serve with a store of known capacity (what the scenarios run)
    #[command(hide = true)]
    Modelled(modelled::Arguments),
    /// Answer requests in this process (what the checks count)
    #[command(hide = true)]
    Counted(counted::Arguments),
    /// Decide as one of several dispatchers (what the checks run)
    #[command(hide = true)]
    Admit(admit::Arguments),
    /// Serve as a peer (what the benchmarks run)
    #[command(hide = true)]
    Peer(peer::Arguments),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Bench(arguments) => arguments.run(),
        Command::Check(arguments) => arguments.run(),
        Command::Simulate(arguments) => arguments.run().map(|()| ExitCode::SUCCESS),
        Command::Ddos(arguments) => arguments.run().map(|()| ExitCode::SUCCESS),
        Command::Scenario(arguments) => arguments.run().map(|()| ExitCode::SUCCESS),
        Command::Modelled(arguments) => arguments.run().map(|()| ExitCode::SUCCESS),
        Command::Counted(arguments) => arguments.run().map(|()| ExitCode::SUCCESS),
        Command::Rows(arguments) => arguments.run().map(|()| ExitCode::SUCCESS),
        Command::Load(arguments) => arguments.run().map(|()| ExitCode::SUCCESS),
        Command::Pace(arguments) => arguments.run().map(|()| ExitCode::SUCCESS),
        Command::Admit(arguments) => arguments.run().map(|()| ExitCode::SUCCESS),
        Command::Peer(arguments) => arguments.run().map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|failure: Failure| {
        eprintln!("umbo-loadtest: {failure}");
        ExitCode::FAILURE
    })
}
