//! The command: the seeds to run, the number of threads, and the output.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::simulation::RunReport;
use crate::worlds::World;

const USAGE: &str = "usage: umbo-simulation [--world WORLD] [--seeds N] [--from SEED] [--seed SEED] \
                     [--seconds S] [--threads N] [--trace] [--until-found]";
/// Number of seeds from which every event of a world's list must have occurred.
const MET_SEEDS: u64 = 150;
/// Number of failing seeds after which no other is begun.
const FAILED_MAX: usize = 5;
/// Lines of a trace that are printed for a failing seed.
const LINES_PRINTED: usize = 60;

/// Arguments of the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOptions {
    /// The worlds.
    pub worlds: Vec<World>,
    /// First seed.
    pub from: u64,
    /// Number of seeds of each world.
    pub seeds: u64,
    /// Time after which no seed is begun.
    pub seconds: Option<u64>,
    /// Threads.
    pub threads: usize,
    /// Whether each line of the trace is printed.
    pub is_traced: bool,
    /// Whether no seed is begun after the first failing one.
    pub is_until_found: bool,
}

impl RunOptions {
    /// Reads the arguments of the command line.
    pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            worlds: World::ALL.to_vec(),
            from: 1,
            seeds: 100,
            seconds: None,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            is_traced: false,
            is_until_found: false,
        };
        let mut arguments = arguments;
        while let Some(name) = arguments.next() {
            if name == "--trace" {
                options.is_traced = true;
                continue;
            }
            if name == "--until-found" {
                options.is_until_found = true;
                continue;
            }
            let text = arguments
                .next()
                .ok_or_else(|| format!("{name} needs a value\n{USAGE}"))?;
            let number =
                || number(&text).ok_or_else(|| format!("{name}: '{text}' is no number\n{USAGE}"));
            match &name[..] {
                "--world" => options.worlds = vec![world(&text)?],
                "--seeds" => options.seeds = number()?,
                "--from" => options.from = number()?,
                "--seconds" => options.seconds = Some(number()?),
                "--threads" => options.threads = number()?.clamp(1, 256) as usize,
                "--seed" => {
                    options.from = number()?;
                    options.seeds = 1;
                    options.threads = 1;
                }
                _ => return Err(format!("{name} is not an option\n{USAGE}")),
            }
        }
        Ok(options)
    }
}

fn world(name: &str) -> Result<World, String> {
    let found = World::ALL.into_iter().find(|world| world.name() == name);
    found.ok_or_else(|| {
        let names: Vec<_> = World::ALL.iter().map(|world| world.name()).collect();
        format!("'{name}' is no world; there are {}", names.join(", "))
    })
}

fn number(text: &str) -> Option<u64> {
    text.strip_prefix("0x").map_or_else(
        || text.parse().ok(),
        |hex| u64::from_str_radix(hex, 16).ok(),
    )
}

/// The summed results of all seeds of a world.
#[derive(Debug, Default)]
struct Sum {
    seeds: u64,
    events: u64,
    failed: Vec<RunReport>,
    met: BTreeMap<&'static str, u64>,
}

/// Runs the seeds and prints the results.
pub fn run(options: &RunOptions) -> ExitCode {
    // The engine catches panics of redb, so they are not printed; a run that panics reports that itself.
    std::panic::set_hook(Box::new(|_| ()));
    let mut is_clean = true;
    for &world in &options.worlds {
        let began = Instant::now();
        let sum = run_world(world, options);
        is_clean &= report(world, options, &sum, began.elapsed());
    }
    ExitCode::from(u8::from(!is_clean))
}

fn run_world(world: World, options: &RunOptions) -> Sum {
    let (next, is_enough) = (AtomicU64::new(0), AtomicBool::new(false));
    let sum = Mutex::new(Sum::default());
    let began = Instant::now();
    let is_late = || {
        let limit = options.seconds.map(Duration::from_secs);
        limit.is_some_and(|limit| began.elapsed() >= limit)
    };
    std::thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= options.seeds || is_late() || is_enough.load(Ordering::Relaxed) {
                        return;
                    }
                    let report = world.run(options.from.wrapping_add(at), options.is_traced);
                    let mut sum = sum.lock().expect("nothing panics under this lock");
                    sum.seeds += 1;
                    sum.events += report.events;
                    for (&name, times) in &report.met {
                        *sum.met.entry(name).or_default() += times;
                    }
                    if report.violation.is_some() || options.seeds == 1 {
                        sum.failed.push(report);
                        let enough = if options.is_until_found {
                            1
                        } else {
                            FAILED_MAX
                        };
                        is_enough.store(sum.failed.len() >= enough, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    sum.into_inner().expect("nothing panics under this lock")
}

/// Prints the results. Returns whether there was no failure.
fn report(world: World, options: &RunOptions, sum: &Sum, took: Duration) -> bool {
    let mut is_clean = true;
    for report in &sum.failed {
        let Some(violation) = &report.violation else {
            println!(
                "{} seed {:#x}: clean, {} events, trace {:016x}",
                world.name(),
                report.seed,
                report.events,
                report.hash
            );
            continue;
        };
        is_clean = false;
        println!(
            "{} seed {:#x} FAILED: {violation}",
            world.name(),
            report.seed
        );
        if !options.is_traced {
            let skipped = report.lines.len().saturating_sub(LINES_PRINTED);
            for line in report.lines.iter().skip(skipped) {
                println!("    {line}");
            }
        }
        println!(
            "    replay: cargo run --release -p umbo-simulation -- --world {} --seed {:#x} --trace",
            world.name(),
            report.seed
        );
    }
    let never: Vec<_> = world
        .must_meet()
        .iter()
        .filter(|name| !sum.met.contains_key(*name))
        .collect();
    if sum.seeds >= MET_SEEDS && !never.is_empty() {
        is_clean = false;
        println!(
            "{}: never met in {} seeds: {never:?}",
            world.name(),
            sum.seeds
        );
    }
    let met: Vec<_> = sum
        .met
        .iter()
        .map(|(name, times)| format!("{name} {times}"))
        .collect();
    println!(
        "{}: {} seeds, {} failed, {} events, {:.1} s; met: {}",
        world.name(),
        sum.seeds,
        sum.failed
            .iter()
            .filter(|report| report.violation.is_some())
            .count(),
        sum.events,
        took.as_secs_f64(),
        met.join(", ")
    );
    is_clean
}
