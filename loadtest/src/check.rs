//! The checks: what can be simulated, counted or measured as a ratio, beside its bound.
//!
//! Owns the command and how a check is run; what must hold is in a module for each subject.
//! Deliberately holds nothing against the clock but ratios within one run. A figure that is simulated
//! or counted is the worst of all cases, one that is measured is the median of rounds.

mod cases;
mod client;
mod connection;
mod hotkeys;
mod loads;
mod overload;
mod plan;
mod price;
mod quota;
mod server;
mod storage;

use self::plan::{Check, Plan};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::verdict::Verdict;

/// What can be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// Admission by quotas
    Quota,
    /// Many reads of few keys
    Hotkeys,
    /// More than the shards can do
    Overload,
    /// Shards on nodes of their own
    Storage,
    /// What the time of the store costs
    Price,
    /// The Rust client after an overload
    Client,
    /// Datasets that are uploaded and applied by the servers
    Loads,
}

impl Subject {
    fn checks(self) -> &'static [Check] {
        match self {
            Self::Quota => &quota::CHECKS,
            Self::Hotkeys => &hotkeys::CHECKS,
            Self::Overload => &overload::CHECKS,
            Self::Storage => &storage::CHECKS,
            Self::Price => &price::CHECKS,
            Self::Client => &client::CHECKS,
            Self::Loads => &loads::CHECKS,
        }
    }
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

impl Arguments {
    /// Runs the checks, prints each verdict when it is known, and fails where a bound does not hold.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let checks = self.subject.checks();
        if self.list {
            for check in checks {
                println!("{:<13} {}", check.name, check.about);
            }
            return Ok(ExitCode::SUCCESS);
        }
        let chosen = chosen(checks, &self.names)?;
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

fn chosen<'a>(checks: &'a [Check], names: &[String]) -> Result<Vec<&'a Check>, Failure> {
    if names.is_empty() {
        return Ok(checks.iter().collect());
    }
    let find = |name: &String| {
        let found = checks.iter().find(|check| check.name == name);
        found.ok_or_else(|| Failure::UnknownName {
            kind: "check",
            name: name.clone(),
            known: checks
                .iter()
                .map(|check| check.name)
                .collect::<Vec<_>>()
                .join(", "),
        })
    };
    names.iter().map(find).collect()
}
