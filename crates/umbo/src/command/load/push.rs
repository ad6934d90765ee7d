//! `umbo load push`: uploads files as a load. Creates the load, uploads its parts, seals it and, if asked to, waits for
//! its end. Each step has the same effect when it is repeated, so a push that is run again continues.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use umbo_api::loads::{LoadGuards, LoadMode, LoadSpec};
use umbo_api::time_to_live;
use umbo_types::Namespace;

use super::job::LoadJob;
use super::progress::{Pushed, PushedFile};
use super::{report, watch};
use crate::cli_error::{CliError, usage};
use crate::command::kv::format::FormatOptions;
use crate::command::kv::patience::SharedPatience;
use crate::command::location::{files_in, is_object};
use crate::connection::ConnectionArgs;
use crate::output::{self, Format, note};

/// The effect of a load on the rows that exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModeOption {
    /// Add rows, and replace rows with the same keys, one by one
    Merge,
    /// Replace all rows at once
    Replace,
}

/// Arguments of `umbo load push`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Arguments {
    /// Namespace
    ns: Namespace,
    /// Files to upload; a folder, or an address that ends in /, stands for all files in it
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Effect on the rows that exist
    #[arg(long, value_enum, default_value = "merge")]
    mode: ModeOption,
    /// Instant of the data (like 2026-11-23T02:00:00Z, or milliseconds since 1970) [default: the creation of the load]
    #[arg(long, value_name = "TIME", value_parser = instant)]
    as_of: Option<u64>,
    /// Fail before any row is applied if the files hold another number of rows
    #[arg(long, value_name = "ROWS")]
    expected_rows: Option<u64>,
    /// Part of the rows, from 0 to 1, that may be rejected
    #[arg(long, value_name = "RATIO", default_value_t = 0.0, value_parser = ratio)]
    max_reject_ratio: f64,
    /// Replace newer rows too
    #[arg(long)]
    force: bool,
    /// With --mode replace: make the rows the live ones as soon as they are ready, without 'umbo version activate'
    #[arg(long)]
    activate: bool,
    /// With --mode replace: fail if the number of rows differs from the live rows by more than this part of it
    /// [default: 0.3]
    #[arg(long, value_name = "RATIO", value_parser = change)]
    rows_change_max: Option<f64>,
    /// With --mode replace, and a namespace without rows: keep the versions that the rows have in their export
    #[arg(long)]
    keep_row_versions: bool,
    #[command(flatten)]
    format: FormatOptions,
    /// Wait until the load has ended
    #[arg(long)]
    wait: bool,
    /// Parts to send in parallel, 1 to 32
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=32))]
    connections: u8,
    /// Length of a part before compression, in MiB, 1 to 256; more for files of hundreds of GiB
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    part_mib: u32,
    /// How long to go on while nothing at all is taken, in addition to the wait that the server asks for
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = time_to_live::span)]
    patience: Duration,
}

fn instant(text: &str) -> Result<u64, String> {
    if let Ok(millis) = text.parse() {
        return Ok(millis);
    }
    let bad = |_| "a time is like 2026-11-23T02:00:00Z, or milliseconds since 1970".to_owned();
    let instant = humantime::parse_rfc3339_weak(text).map_err(bad)?;
    let since = instant.duration_since(std::time::SystemTime::UNIX_EPOCH);
    Ok(since.unwrap_or_default().as_millis() as u64)
}

fn change(text: &str) -> Result<f64, String> {
    ratio_up_to(f64::MAX, text)
        .ok_or_else(|| "a ratio is a number that is not negative, like 0.3".to_owned())
}

fn ratio(text: &str) -> Result<f64, String> {
    ratio_up_to(1.0, text).ok_or_else(|| "a ratio is a number from 0 to 1".to_owned())
}

fn ratio_up_to(max: f64, text: &str) -> Option<f64> {
    let ratio = text.parse().ok();
    ratio.filter(|ratio| (0.0..=max).contains(ratio))
}

impl Arguments {
    /// Pushes.
    pub(super) async fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let started = Instant::now();
        let client = connection.bulk_client()?;
        let job = LoadJob {
            client: &client,
            ns: &self.ns,
            pushed: self.pushed()?,
            connections: self.connections,
            patience: Arc::new(SharedPatience::new(self.patience)),
            is_part: false,
            is_created: false,
        };
        // Fails early if the server does not answer. Later, an absent server is waited for.
        client.reach().await?;
        let mut load = job.begin().await?;
        let mut rows = None;
        if load.state.takes_parts() {
            let uploaded = job.upload(&load, started).await?;
            (load, rows) = (uploaded.load, uploaded.rows);
        } else {
            output::print_note(&watch::describe(&load, None));
        }
        let (ns, id) = (&self.ns, load.id.clone());
        if !load.state.is_ended() && self.wait {
            let format = connection.listing_format();
            load = watch::until_ended(&client, ns, &id, format, rows).await?;
        } else {
            report::write(connection, &load)?;
            if !load.state.is_ended() && connection.listing_format() == Format::Table {
                note!("to follow it: umbo load watch {ns} {id}");
            }
        }
        // From here on the server needs nothing of the file.
        job.forget()?;
        report::outcome(&load)
    }

    fn pushed(&self) -> Result<Pushed, CliError> {
        let mut files = Vec::new();
        for path in &self.files {
            let is_address = is_object(path) && path.to_string_lossy().ends_with('/');
            let mut paths = vec![path.clone()];
            if path.is_dir() || is_address {
                paths = files_in(path).map_err(CliError::file("read", path))?;
            }
            if paths.len() > 1 {
                // Progress of a push and the unfinished file of an export.
                let is_other = |end: &OsStr| end == "load" || end == "part";
                paths.retain(|path| !path.extension().is_some_and(is_other));
            }
            for path in &paths {
                files.push(PushedFile::of(path, self.format.of_file(path)?)?);
            }
        }
        if files.is_empty() {
            return Err(usage!("there are no files to upload"));
        }
        let spec = LoadSpec {
            mode: match self.mode {
                ModeOption::Merge => LoadMode::Merge,
                ModeOption::Replace => LoadMode::Replace,
            },
            as_of: self.as_of,
            expected_rows: self.expected_rows,
            max_reject_ratio: self.max_reject_ratio,
            columns: self.format.columns(),
            force: self.force,
            guards: self.rows_change_max.map(|max| LoadGuards {
                rows_change_max: Some(max),
                rows_min: None,
            }),
            activate: self.activate,
            import: false,
            keep_row_versions: self.keep_row_versions,
        };
        Pushed::new(&self.ns, spec, files, (self.part_mib, &self.format))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_and_ratios_are_checked() {
        assert_eq!(instant("1700000000000"), Ok(1_700_000_000_000));
        assert_eq!(instant("2026-11-23T02:00:00Z"), Ok(1_795_399_200_000));
        assert!(instant("yesterday").is_err());
        assert_eq!(ratio("0.5"), Ok(0.5));
        for text in ["-1", "1.1", "NaN", "x"] {
            assert!(ratio(text).is_err(), "{text}");
        }
    }
}
