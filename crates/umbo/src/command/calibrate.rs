//! `umbo calibrate`: measures what operations cost on this machine, and fits the weights of `[cost]` to it.
//!
//! Owns the order: rows are stored in a temporary folder, operations of many sizes are measured on hot and cold pages,
//! the folder is removed, after a failure too, and then the weights are fitted and shown. Changes no setting.

mod fit;
mod measure;
mod report;
mod steps;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use umbo_quota::Weights;

use self::report::CalibrationReport;
use crate::cli_error::CliError;
use crate::connection::ConnectionArgs;
use crate::output;
use crate::run_to_end::run_to_end;
use crate::settings::LoadedSettings;
use crate::signals::interrupts;

/// Shortest and longest calibration, in seconds.
const SECONDS: std::ops::RangeInclusive<u64> = 1..=3_600;

/// Arguments of `umbo calibrate`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Settings file; else the file in `UMBO_CONFIG`, else `umbo.toml` if it exists
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder for the temporary data [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Seconds to measure for, 1 to 3600; at least four passes over all operations are made
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(SECONDS))]
    seconds: u64,
    /// Also write the `[cost]` block to this new file
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

impl Arguments {
    /// Runs the command.
    pub(crate) fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let settings = LoadedSettings::of_file(self.config)?.settings;
        if let Some(path) = self.write.as_ref().filter(|path| path.exists()) {
            let error = ErrorKind::AlreadyExists.into();
            return Err(CliError::file("create", path)(error));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(CliError::start)?;
        // Ctrl-C is heard before there is a folder that it would leave behind.
        let mut interrupts = run_to_end(&runtime, async { interrupts() })?;
        let parent = self.data.unwrap_or_else(std::env::temp_dir);
        let folder = tempfile::Builder::new()
            .prefix(".umbo-calibrate-")
            .tempdir_in(&parent);
        let folder = folder.map_err(CliError::file("use", &parent))?;
        let data = folder.path().join("data");
        let end = Instant::now() + Duration::from_secs(self.seconds);
        let measured = run_to_end(&runtime, async {
            tokio::select! {
                biased;
                measured = measure::measure(&settings.store, &data, end) => measured,
                _ = interrupts.recv() => Err(CliError::Interrupted),
            }
        });
        // Calls that were given up still hold the store, and end with the runtime.
        drop(runtime);
        drop(folder);
        let (costs, is_cold) = measured?;
        let report = CalibrationReport::new(&costs, &Weights::from(&settings.cost), is_cold);
        if let Some(path) = &self.write {
            std::fs::write(path, &report.block).map_err(CliError::file("write", path))?;
        }
        output::write_report(connection.listing_format(), &report, || {
            output::write_bytes(report.screen().as_bytes())
        })
    }
}
