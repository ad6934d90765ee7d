//! `umbo-loadtest scenario`: overload over real sockets, open loop, and what each tier got.
//!
//! Owns the scenarios, which have the names they have in the simulator, and their report. The server is
//! a dispatcher over a store of known capacity (see `modelled`), in a process of its own; requests
//! come at random instants at their rate, whatever the answers are.

mod outcome;
mod plan;
mod traffic;

use clap::Args;

pub(crate) use self::outcome::Outcome;
use self::plan::{Plan, SCENARIOS, Scenario, steady};
pub(crate) use self::traffic::Sample;
use crate::failure::Failure;
use crate::process::{Cores, Process, check_free};

/// Port of the server, beside those of the benchmarks.
const PORT: u16 = 18_092;

/// The usual traffic is little more than half of what the store can do: so many times of it are nearly all,
/// all, and somewhat more.
const PEAK_TIMES: [f64; 3] = [1.6, 1.9, 2.4];

/// Arguments of `umbo-loadtest scenario`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Which: spike, stall, slow-disk, scan-storm, noisy-neighbour, bulk-at-peak or recovery
    name: String,
    /// Seconds for which something is wrong
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Seconds before and after
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=600))]
    calm: u32,
    /// Also run a server that sheds nothing because of a shard, and print its result
    #[arg(long)]
    beside: bool,
}

impl Arguments {
    /// Runs the scenario and prints its report.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let scenario = find(&self.name)?;
        let plan = scenario.plan(f64::from(self.calm), f64::from(self.seconds));
        println!("{}: {}", scenario.name, scenario.about);
        let outcome = run(&plan, true)?;
        outcome.print();
        if self.beside {
            println!("\nthe same without protection");
            run(&plan, false)?.print();
        }
        Ok(())
    }
}

fn find(name: &str) -> Result<&'static Scenario, Failure> {
    let found = SCENARIOS.iter().find(|scenario| scenario.name == name);
    found.ok_or_else(|| {
        let known: Vec<_> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        Failure::UnknownName {
            kind: "scenario",
            name: name.to_owned(),
            known: known.join(", "),
        }
    })
}

/// Runs a scenario for so many seconds, with so many before and after it.
pub(crate) fn measure(
    name: &str,
    calm_s: f64,
    trouble_s: f64,
    is_protected: bool,
) -> Result<Outcome, Failure> {
    run(&find(name)?.plan(calm_s, trouble_s), is_protected)
}

/// Runs as much traffic as the store can just do, and somewhat more and less, and returns how many reads a
/// second were answered at most. Writes share commits: there is no most of them.
pub(crate) fn peak(seconds: f64) -> Result<f64, Failure> {
    let mut most = 0.0_f64;
    for times in PEAK_TIMES {
        let outcome = run(&steady(times, 2.0, seconds), true)?;
        most = most.max(outcome.trouble(|sample| !sample.is_write).goodput);
    }
    Ok(most)
}

/// Runs a plan against a server of its own.
fn run(plan: &Plan, is_protected: bool) -> Result<Outcome, Failure> {
    check_free(&[PORT])?;
    let program = std::env::current_exe().map_err(Failure::io("own program"))?;
    let mut arguments = vec!["modelled".to_owned(), format!("--port={PORT}")];
    arguments.extend(plan.faults.iter().map(|fault| format!("--fault={fault}")));
    if !is_protected {
        arguments.push("--unprotected".to_owned());
    }
    let folder = tempfile::tempdir().map_err(Failure::io("a folder"))?;
    let mut server = Process::start(&program, &arguments, Cores::Server, folder.path())?;
    server.wait_for(PORT)?;
    let samples = traffic::run(plan, PORT)?;
    server.stop()?;
    Ok(Outcome::of(plan, samples))
}
