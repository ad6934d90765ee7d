//! `umbo kv import`: a file of any size into a namespace, in constant memory.
//!
//! A thread reads, sorts and cuts ([`reader`]); lanes, one per connection, write ([`lane`]), at the rate that
//! quotas allow. Every line ends as a written row or as a line in the file of failed rows ([`failed`]), from
//! which [`redrive`] sends it again.

mod batch;
mod checkpoint;
pub(in crate::command) mod dead_letters;
mod failed;
mod lane;
mod line;
pub(super) mod progress;
mod reader;
pub(in crate::command) mod redrive;
mod source;
mod stall;
mod transfer;
mod window;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use clap::Args;
use tokio::sync::OnceCell;
use umbo_types::Namespace;

use self::failed::{Existing, FailedFile};
use self::lane::ImportTarget;
use self::progress::{ImportState, ImportSummary, bar, describe};
use self::transfer::TransferOptions;
use super::argument::namespace;
use crate::cli_error::CliError;
use crate::connection::Connection;
use crate::output::{self, Format};

const HELP: &str = "\
The file has one row a line, {\"pk\":…,\"sk\":…,\"v\":…}, as 'umbo kv export' writes them; plain, or
compressed with gzip or zstd. A line may say \"op\":\"del\", \"ttl\", \"expires_at\" and \"content_type\".
Of two lines with the same key the later one wins.

Under a quota the import sends at the rate that the server advertises. When rows are rejected or shed, it
waits as long as the server asks. Lines that fail go to FILE.failed.ndjson, one JSON object each: the reason,
and the line in \"row\" (in \"text\" if it is not JSON). 'umbo dlq ls' counts them by reason; correct the rows
there, and 'umbo dlq redrive' sends them again.
An import that is refused as a whole (not allowed, no server) stops at once; import the file again.";

/// Arguments of `umbo kv import`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// Namespace; created where it is absent
    #[arg(value_parser = namespace)]
    ns: Namespace,
    /// File to read; - for stdin
    file: PathBuf,
    /// Do not create the namespace
    #[arg(long)]
    no_create: bool,
    /// Where failed rows go; FILE.failed.ndjson where not given
    #[arg(long, value_name = "FILE")]
    failed: Option<PathBuf>,
    #[command(flatten)]
    transfer: TransferOptions,
}

impl Arguments {
    /// Imports, reports, and fails if any row did.
    pub(super) async fn run(self, connection: &Connection) -> Result<(), CliError> {
        let started = Instant::now();
        let failed_path = self.failed_path()?;
        let mut source = source::open(&self.file).map_err(|error| file_error(&self.file, error))?;
        let failed = FailedFile::new(failed_path, Existing::Replace);
        let shared = Arc::new(ImportState::new(
            self.ns.clone(),
            Arc::new(Mutex::new(failed)),
        ));
        let target = Arc::new(ImportTarget {
            client: connection.bulk_client()?,
            namespace: self.ns.clone(),
            durability: self.transfer.durability.map(Into::into),
            is_created: !self.no_create,
            creation: OnceCell::new(),
            patience: self.transfer.patience,
            shared: Arc::clone(&shared),
        });
        let (bar, position, path) = (bar(source.size), Arc::clone(&source.read), self.file);
        let read = move |reader: reader::LineReader<'_>| {
            reader.run(&mut *source.reader, |error| file_error(&path, error))
        };
        let tick = || {
            bar.set_position(position.load(Ordering::Relaxed));
            bar.set_message(describe(
                shared.written(),
                started.elapsed(),
                &target.client,
            ));
        };
        let is_interrupted = self.transfer.run(&target, read, tick).await?;
        bar.finish_and_clear();
        let summary = ImportSummary::new(&shared, target.client.pace(), started.elapsed())?;
        summary.report();
        let format = connection.listing_format();
        if format != Format::Table {
            output::write_json(&summary)?;
        }
        outcome(&shared, &summary, is_interrupted)
    }

    fn failed_path(&self) -> Result<PathBuf, CliError> {
        let path = match &self.failed {
            Some(path) => path.clone(),
            None if self.file.as_os_str() == "-" => PathBuf::from("stdin.failed.ndjson"),
            None => with_suffix(&self.file, ".failed.ndjson"),
        };
        if path == self.file {
            let message = "failed rows cannot go to the file they are read from";
            return Err(CliError::Usage(message.to_owned()));
        }
        Ok(path)
    }
}

fn outcome(
    shared: &ImportState,
    summary: &ImportSummary,
    is_interrupted: bool,
) -> Result<(), CliError> {
    if let Some(failure) = shared.take_failure() {
        return Err(failure);
    }
    if is_interrupted {
        return Err(CliError::Interrupted);
    }
    match &summary.failed_file {
        None => Ok(()),
        Some(file) => Err(CliError::Partial {
            failed: summary.failed,
            rows: summary.rows + summary.failed,
            hint: format!("; they are in {file}, with the reason of each"),
        }),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.to_owned().into_os_string();
    path.push(suffix);
    path.into()
}

fn file_error(path: &Path, source: std::io::Error) -> CliError {
    CliError::File {
        verb: "read",
        path: path.to_owned(),
        source,
    }
}
