//! The checks: what can be simulated, counted or measured as a ratio, beside its bound.
//!
//! Owns the command and how a check is run; what must hold is in a module for each subject.
//! Deliberately holds nothing against the clock but ratios within one run. A figure that is simulated
//! or counted is the worst of all cases, one that is measured is the median of rounds.

mod callgrind;
mod cases;
mod client;
mod connection;
mod defaults;
mod figures;
mod hotkeys;
mod loads;
mod overload;
mod plan;
mod price;
mod quota;
mod requests;
mod server;
mod storage;

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use self::figures::Record;
use self::plan::{Check, FloodPlan, Plan};
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
    /// Instructions and allocations of requests
    Requests,
    /// A flood of a server with the configuration it ships with
    Defaults,
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
            Self::Requests => &requests::CHECKS,
            Self::Defaults => &defaults::CHECKS,
        }
    }

    /// Returns the names of the checks whose figures a busy machine cannot change.
    const fn counted(self) -> &'static [&'static str] {
        match self {
            Self::Quota => &["truth", "full-use"],
            Self::Overload => &["spike", "stall", "trouble", "inversions"],
            Self::Requests => &["cost"],
            Self::Hotkeys
            | Self::Storage
            | Self::Price
            | Self::Client
            | Self::Loads
            | Self::Defaults => &[],
        }
    }
}

/// Arguments of `umbo-loadtest check`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command")]
pub(crate) struct Arguments {
    /// What is checked; everything if it is not given
    #[arg(value_enum)]
    subject: Option<Subject>,
    /// Checks to run; all where none is named
    names: Vec<String>,
    /// Fewer and shorter cases: about a minute for all
    #[arg(long)]
    quick: bool,
    /// Only what is counted and simulated, quick, held to loadtest/figures.toml
    #[arg(long, conflicts_with = "seed")]
    counted: bool,
    /// Write better figures to loadtest/figures.toml
    #[arg(long, requires = "counted")]
    record: bool,
    /// Of everything that is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    flood: FloodPlan,
    /// List the checks and their bounds
    #[arg(long)]
    list: bool,
}

impl Arguments {
    /// Runs the checks, prints each verdict when it is known, and fails where a bound does not hold.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let subjects = match &self.subject {
            Some(subject) => std::slice::from_ref(subject),
            None => Subject::value_variants(),
        };
        let mut chosen = Vec::new();
        for subject in subjects {
            chosen.extend(self.chosen(*subject)?);
        }
        if self.list {
            for check in chosen {
                println!("{:<13} {}", check.name, check.about);
            }
            return Ok(ExitCode::SUCCESS);
        }
        let plan = Plan {
            seed: self.seed,
            is_quick: self.quick || self.counted,
            flood: self.flood,
        };
        println!("{}", Verdict::HEADING);
        let mut verdicts = Vec::new();
        for check in chosen {
            for verdict in (check.run)(&plan)? {
                println!("{verdict}");
                verdicts.push(verdict);
            }
        }
        let failed = if self.counted {
            self.hold(&verdicts)?
        } else {
            verdicts.iter().filter(|verdict| !verdict.holds()).count()
        };
        if failed > 0 {
            println!("{failed} fall short");
            return Ok(ExitCode::FAILURE);
        }
        Ok(ExitCode::SUCCESS)
    }

    fn chosen(&self, subject: Subject) -> Result<Vec<&'static Check>, Failure> {
        let chosen = chosen(subject.checks(), &self.names)?.into_iter();
        let is_counted = |check: &&Check| !self.counted || subject.counted().contains(&check.name);
        Ok(chosen.filter(is_counted).collect())
    }

    /// Holds figures to the record; returns the number of those that do not hold.
    fn hold(&self, verdicts: &[Verdict]) -> Result<usize, Failure> {
        let mut record = Record::read()?;
        let is_all = self.subject.is_none() && self.names.is_empty();
        let judgement = record.judge(verdicts, figures::versions()?, is_all);
        for line in judgement.notes.iter().chain(&judgement.complaints) {
            println!("{line}");
        }
        if self.record {
            record.write()?;
        }
        Ok(judgement.complaints.len())
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
