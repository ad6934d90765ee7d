//! `umbo doctor`: checks on one screen whether a machine and its settings are fit to run a server, and whether the
//! server is healthy. Syncs a file in the data folder and removes it again; changes nothing else.
//!
//! The module `machine` checks this machine, the module `server` asks the server. Each check reports its finding, with
//! advice if something should be done. The exit code is 1 if there is a problem.

mod disk;
mod finding;
mod machine;
mod server;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use self::finding::{Finding, Severity};
use crate::cli_error::CliError;
use crate::connection::{ConnectionArgs, block_on};
use crate::output::{self, Listing, counted};
use crate::settings::LoadedSettings;

/// Arguments of `umbo doctor`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Settings file; else the file in `UMBO_CONFIG`, else `umbo.toml` if it exists
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check this machine only, and ask no server and no node
    #[arg(long)]
    offline: bool,
}

/// All findings.
#[derive(Debug, Serialize)]
struct DoctorReport {
    version: &'static str,
    problems: usize,
    warnings: usize,
    checks: Vec<Finding>,
}

impl Arguments {
    /// Runs the command.
    pub(crate) fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let checks = block_on(async { Ok::<_, CliError>(self.check(connection).await) })?;
        let count = |health| checks.iter().filter(|one| one.health == health).count();
        let report = DoctorReport {
            version: env!("CARGO_PKG_VERSION"),
            problems: count(Severity::Problem),
            warnings: count(Severity::Warning),
            checks,
        };
        output::write_report(connection.listing_format(), &report, || {
            output::write_bytes(report.screen().as_bytes())
        })?;
        match report.problems {
            0 => Ok(()),
            problems => Err(CliError::Unwell { problems }),
        }
    }

    async fn check(&self, connection: &ConnectionArgs) -> Vec<Finding> {
        let loaded = LoadedSettings::of_file(self.config.clone());
        let mut findings = Vec::new();
        match &loaded {
            Ok(loaded) => {
                findings.push(Finding::ok("settings", loaded.source()));
                findings.extend(machine::check(&loaded.settings));
                if !self.offline {
                    findings.extend(machine::check_nodes(&loaded.settings).await);
                }
            }
            Err(error) => findings.push(Finding::problem(
                "settings",
                error.to_string(),
                "mend the setting; config/umbo.toml explains each one, and 'umbo config check FILE' checks a file",
            )),
        }
        if self.offline {
            findings.push(Finding::skipped("server", "--offline"));
        } else {
            findings.extend(server::check(connection).await);
        }
        findings
    }
}

impl DoctorReport {
    fn screen(&self) -> String {
        let mut text = Listing::new("CHECK  HEALTH  FOUND")
            .with("HEALTH", |one: &Finding| match one.health {
                Severity::Ok => "ok".to_owned(),
                Severity::Warning => "warning".to_owned(),
                Severity::Problem => "PROBLEM".to_owned(),
                Severity::Skipped => "skipped".to_owned(),
            })
            .table(&self.checks);
        let unwell = self.checks.iter().filter_map(|one| {
            let advice = one.advice.as_ref()?;
            Some(format!("{}: {advice}\n", one.check))
        });
        let unwell: String = unwell.collect();
        if !unwell.is_empty() {
            text.push_str("\nWhat to do\n");
            text.push_str(&unwell);
        }
        let problems = counted(self.problems as u64, "problem");
        let warnings = counted(self.warnings as u64, "warning");
        text + &format!("\n{problems}, {warnings}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_screen_has_each_check_and_what_to_do() {
        let report = DoctorReport {
            version: "1",
            problems: 1,
            warnings: 0,
            checks: vec![
                Finding::ok("settings", "default settings"),
                Finding::problem("disk", "3 MB free", "make room"),
            ],
        };
        let screen = report.screen();
        let expected = "\nWhat to do\ndisk: make room\n\n1 problem, 0 warnings\n";
        assert!(screen.ends_with(expected), "{screen}");
        assert_eq!(screen.lines().count(), 8);
        assert!(screen.contains("disk      PROBLEM  3 MB free"), "{screen}");
    }
}
