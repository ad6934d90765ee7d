//! The checks of quotas: what can be simulated, counted or measured as a ratio, beside its bound.
//!
//! Owns what a limiter must hold and under which circumstances. Deliberately holds nothing against
//! the clock but ratios within one run. A figure that is simulated or counted is the worst of all
//! cases, one that is measured is the median of rounds.

mod attack;
mod bad_input;
mod cases;
mod conservation;
mod cost;
mod full_use;
mod neighbour;
mod reload;
mod server;
mod setting;
mod shadow;
mod speed;
mod throughput;
mod truth;

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::verdict::Verdict;

/// What can be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// Admission by quotas
    Quota,
}

/// Arguments of `umbo-loadtest check`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What is checked
    #[arg(value_enum)]
    subject: Subject,
    /// Checks to run; all where none is named
    names: Vec<String>,
    /// Fewer and shorter cases: about a minute for all
    #[arg(long)]
    quick: bool,
    /// Of everything that is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// List the checks and their bounds
    #[arg(long)]
    list: bool,
}

/// How a check is to be run.
#[derive(Debug)]
struct Plan {
    seed: u64,
    is_quick: bool,
}

/// A check.
struct Check {
    name: &'static str,
    about: &'static str,
    run: fn(&Plan) -> Result<Vec<Verdict>, Failure>,
}

const CHECKS: [Check; 11] = [
    Check {
        name: "truth",
        about: "admitted of the quota over 60 s: 0.98 to 1.01; in any second: burst + 1.05 x rate",
        run: |plan| Ok(truth::truth(plan)),
    },
    Check {
        name: "full-use",
        about: "64 obedient clients at 4 x demand: 0.97 of the quota, 1.2 rejections a success",
        run: |plan| Ok(full_use::full_use(plan)),
    },
    Check {
        name: "conservation",
        about: "10 million requests that end in all ways there are: not a micro-RU is lost",
        run: |plan| Ok(conservation::conservation(plan)),
    },
    Check {
        name: "shadow",
        about: "shadow policies change no decision and count what they would refuse",
        run: |plan| Ok(shadow::shadow(plan)),
    },
    Check {
        name: "reload",
        about: "1,000 reloads: no balance jumps by more than a refill, no request is lost",
        run: |plan| Ok(reload::reload(plan)),
    },
    Check {
        name: "cost",
        about: "admit + settle: 2 x governor's check, a fifth of limitador's, no allocation",
        run: cost::cost,
    },
    Check {
        name: "attack",
        about: "a million strangers: memory within its bound, known balances exactly kept",
        run: |plan| Ok(attack::attack(plan)),
    },
    Check {
        name: "bad-input",
        about: "policies that cannot be meant: refused with place and value",
        run: |plan| Ok(bad_input::bad_input(plan)),
    },
    Check {
        name: "throughput",
        about: "gets a second of a real server with quotas, of without: 0.97",
        run: throughput::throughput,
    },
    Check {
        name: "neighbour",
        about: "beside a flood of ranges no get of another is refused, and its p99 stays within 1.3",
        run: neighbour::neighbour,
    },
    Check {
        name: "speed",
        about: "an hour of 8 pods x 1,000 requests a second, simulated within 60 s on one core",
        run: |plan| Ok(speed::speed(plan)),
    },
];

impl Arguments {
    /// Runs the checks, prints each verdict when it is known, and fails where a bound does not hold.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let Subject::Quota = self.subject;
        if self.list {
            for check in CHECKS {
                println!("{:<13} {}", check.name, check.about);
            }
            return Ok(ExitCode::SUCCESS);
        }
        let chosen = chosen(&self.names)?;
        let plan = Plan {
            seed: self.seed,
            is_quick: self.quick,
        };
        println!("{}", Verdict::HEADING);
        let mut failed = 0;
        for check in chosen {
            for verdict in (check.run)(&plan)? {
                println!("{verdict}");
                failed += u32::from(!verdict.holds());
            }
        }
        if failed > 0 {
            println!("{failed} fall short");
            return Ok(ExitCode::FAILURE);
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Check>, Failure> {
    if names.is_empty() {
        return Ok(CHECKS.iter().collect());
    }
    let find = |name: &String| {
        let found = CHECKS.iter().find(|check| check.name == name);
        found.ok_or_else(|| Failure::UnknownName {
            kind: "check",
            name: name.clone(),
            known: CHECKS.each_ref().map(|check| check.name).join(", "),
        })
    };
    names.iter().map(find).collect()
}
