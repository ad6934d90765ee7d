//! `umbo kv import`: a file of any size into a namespace, in constant memory.
//!
//! A thread reads, sorts and cuts ([`reader`]); lanes, one per connection, write ([`lane`]), at the rate that
//! quotas allow. Rows whose shard is away wait in files beside the input ([`held`]). Every line ends as a written
//! row or as a line in the file of failed rows ([`failed`]), from which [`redrive`] sends it again. How far the
//! import is stands in a checkpoint beside the input ([`checkpoint`]), from which it can be continued.

mod batch;
mod checkpoint;
pub(in crate::command) mod dead_letters;
pub(in crate::command) mod end_lines;
mod ended;
mod failed;
mod held;
mod lane;
mod line;
mod newer_rows;
pub(in crate::command) mod progress;
mod reader;
pub(in crate::command) mod redrive;
pub(in crate::command) mod source;
mod transfer;
mod window;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use clap::Args;
use tokio::sync::OnceCell;
use umbo_rows::{Coding, RowsError};
use umbo_rows::{RowFormat, RowReader};
use umbo_types::Namespace;

use self::checkpoint::Checkpoint;
use self::failed::{Existing, FailedFile};
use self::held::HeldShards;
use self::lane::ImportTarget;
use self::progress::{ImportState, ImportSummary, bar, describe};
use self::source::{ImportInput, LineSource};
use self::transfer::TransferOptions;
use super::argument::namespace;
use super::file_name::{read_failure, rows_failure, with_suffix};
use super::format::FormatOptions;
use crate::cli_error::CliError;
use crate::connection::{ConnectionArgs, with_nearest};
use crate::output::{self, Format, counted};

const HELP: &str = "\
The file has one row a line, {\"pk\":…,\"sk\":…,\"v\":…}, as 'umbo kv export' writes them; plain, or
compressed with gzip or zstd. A line may say \"op\":\"del\", \"ttl\", \"expires_at\" and \"content_type\".
Of two lines with the same key the later one wins. Rows with a \"version\" are an export, and must end with
its end line. CSV has a header line, whose columns are named as the fields of a row, or named here with --pk,
--sk and --value; so have the columns of Parquet.

An import sends rows itself, for as long as it runs, and each is there when it is sent: for files of minutes,
and for rows from a pipe. For a dataset that the server is to apply by itself, which may not replace newer
rows, see 'umbo load push'.

Under a quota the import sends at the rate that the server advertises. When rows are rejected or shed, it
waits as long as the server asks; when the server restarts, until it is back. The rows of a shard that is away
wait in FILE.held-N while the others are written. Rows are given up only after no row at all was written for
--patience. Lines that fail go to FILE.failed.ndjson, one JSON object each: the reason, and the line in \"row\"
(in \"text\" if it is not JSON). 'umbo dlq ls' counts them by reason; correct the rows there, and 'umbo dlq
redrive' sends them again.
FILE.progress records how far the import is; after an interruption --resume continues there.";

/// Arguments of `umbo kv import`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// Namespace
    #[arg(value_parser = namespace)]
    ns: Namespace,
    /// File to read; - for stdin
    file: PathBuf,
    /// Continue an import of the same file that was interrupted
    #[arg(long)]
    resume: bool,
    /// Take an export without its end line, as a part of it
    #[arg(long)]
    no_end: bool,
    /// Create the namespace if it is absent
    #[arg(long)]
    create: bool,
    #[command(flatten)]
    format: FormatOptions,
    /// Where failed rows go; FILE.failed.ndjson where not given
    #[arg(long, value_name = "FILE")]
    failed: Option<PathBuf>,
    #[command(flatten)]
    transfer: TransferOptions,
}

impl Arguments {
    /// Imports, reports, and fails if any row did.
    pub(super) async fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let started = Instant::now();
        let failed_path = self.failed_path()?;
        let source = source::open(&self.file).map_err(|error| read_failure(&self.file, error))?;
        let (size, position) = (source.size, Arc::clone(&source.read));
        let mut input = self.input(source)?;
        let is_resumable = size.is_some();
        let checkpoint = self.checkpoint(is_resumable, &failed_path)?;
        let resumed = checkpoint.as_ref().filter(|_| self.resume);
        let before = resumed.map_or(0, |resumed| resumed.rows);
        let shared = Arc::new(self.state(resumed, failed_path)?);
        let target = Arc::new(ImportTarget {
            client: connection.writing_client(self.transfer.rate)?,
            namespace: self.ns.clone(),
            durability: self.transfer.durability.map(Into::into),
            is_created: self.create,
            creation: OnceCell::new(),
            is_resumable,
            shared: Arc::clone(&shared),
        });
        // A server that was there once is waited for.
        target.client.reach().await?;
        let (bar, path) = (bar(size), self.file.clone());
        let saved = checkpoint.clone();
        let read = move |reader: reader::LineReader<'_>| {
            let reader = match saved {
                Some(saved) => reader.with_checkpoint(saved),
                None => reader,
            };
            reader.run(&mut input, |error| rows_failure(&path, error))
        };
        let tick = || {
            for note in shared.take_notes() {
                bar.suspend(|| output::note(&note));
            }
            bar.set_position(shared.settled_of(position.load(Ordering::Relaxed)));
            bar.set_message(describe(
                shared.written(),
                started.elapsed(),
                &target.client,
            ));
        };
        let is_interrupted = self.transfer.run(&target, read, tick).await?;
        bar.finish_and_clear();
        let pace = target.client.pace();
        let held_back = target.client.held_back().waited;
        let pace = (pace, held_back);
        let summary = ImportSummary::new(&shared, pace, started.elapsed(), before)?;
        summary.report();
        let format = connection.listing_format();
        if format != Format::Table {
            output::write_json(&summary)?;
        }
        let failure = shared
            .take_failure()
            .or_else(|| is_interrupted.then_some(CliError::Interrupted));
        self.clean_up(failure.is_some(), checkpoint.as_ref(), &shared, before)?;
        match failure {
            Some(failure) => Err(with_nearest(&target.client, &self.ns, failure).await),
            None if self.is_stdin() && position.load(Ordering::Relaxed) == 0 => {
                let message = "stdin is empty: the command that should write it has failed";
                Err(CliError::Incomplete(message.to_owned()))
            }
            None => self.outcome(&shared, &summary),
        }
    }

    /// Returns the rows of the file, in its format.
    fn input(&self, source: LineSource) -> Result<ImportInput, CliError> {
        let format = self.format.row_format(&self.file)?;
        let rows = match format {
            RowFormat::Lines => return Ok(ImportInput::Lines(source.reader)),
            RowFormat::Csv(_) => RowReader::decoded(&format, source.reader),
            RowFormat::Parquet(_) => {
                if self.is_stdin() {
                    return Err(CliError::Usage(RowsError::NeedsSeek.to_string()));
                }
                let file = source::open_counted(&self.file, &source.read);
                let file = file.map_err(|error| read_failure(&self.file, error))?;
                RowReader::open(&format, Coding::Identity, file)
            }
        };
        let rows = rows.map_err(|error| rows_failure(&self.file, error))?;
        Ok(ImportInput::Table(rows))
    }

    /// Returns the state to begin with: nothing, or what an earlier run has left.
    fn state(
        &self,
        resumed: Option<&Checkpoint>,
        failed_path: PathBuf,
    ) -> Result<ImportState, CliError> {
        let mut held = HeldShards::new(&self.file);
        let failed = match resumed {
            None => FailedFile::new(failed_path, Existing::Replace),
            Some(resumed) => {
                held.resume(resumed.held.clone())?;
                let existing = Existing::Continue(resumed.failed_bytes);
                let mut failed = FailedFile::new(failed_path, existing);
                failed.cut()?;
                failed.count_before(resumed.failed);
                failed
            }
        };
        let failed = Arc::new(Mutex::new(failed));
        let patience = self.transfer.patience;
        Ok(ImportState::new(self.ns.clone(), failed, held, patience))
    }

    /// Returns the checkpoint to begin with; none for input that cannot be read twice.
    fn checkpoint(
        &self,
        is_resumable: bool,
        failed_path: &Path,
    ) -> Result<Option<Checkpoint>, CliError> {
        let file = self.file.display();
        if !is_resumable {
            let message = format!("{file} cannot be read twice, so its import cannot be continued");
            return if self.resume {
                Err(CliError::Usage(message))
            } else {
                Ok(None)
            };
        }
        let begin = || Checkpoint::begin(&self.file, failed_path.to_owned());
        match Checkpoint::load(&self.file)? {
            Some(before) if self.resume => {
                before.check(&self.file, failed_path)?;
                Ok(Some(before))
            }
            Some(before) => {
                output::note(&format!(
                    "beginning anew; --resume would have continued after {}",
                    counted(before.lines, "line")
                ));
                before.remove_held();
                begin().map(Some)
            }
            None if self.resume => Err(CliError::Usage(format!(
                "there is no {file}.progress, so no import of {file} was interrupted; leave out --resume"
            ))),
            None => begin().map(Some),
        }
    }

    /// Removes what only a later run would need, if there is none to come; otherwise says how to continue.
    fn clean_up(
        &self,
        has_failed: bool,
        checkpoint: Option<&Checkpoint>,
        shared: &ImportState,
        before: u64,
    ) -> Result<(), CliError> {
        let is_begun = before + shared.written() > 0;
        let (ns, file) = (&self.ns, self.file.display());
        let Some(checkpoint) = checkpoint else {
            if has_failed && is_begun {
                output::note(&format!(
                    "{file} cannot be continued; import it again: rows that are there are written again"
                ));
            }
            if let Some(mut held) = shared.held() {
                held.remove_files();
            }
            return Ok(());
        };
        if has_failed && is_begun && checkpoint.is_saved() {
            output::note(&format!("to continue: umbo kv import {ns} {file} --resume"));
            return Ok(());
        }
        if let Some(mut held) = shared.held() {
            held.remove_files();
        }
        checkpoint.remove()
    }

    fn failed_path(&self) -> Result<PathBuf, CliError> {
        let path = match &self.failed {
            Some(path) => path.clone(),
            None if self.is_stdin() => PathBuf::from("stdin.failed.ndjson"),
            None => with_suffix(&self.file, ".failed.ndjson"),
        };
        if path == self.file {
            let message = "failed rows cannot go to the file they are read from";
            return Err(CliError::Usage(message.to_owned()));
        }
        Ok(path)
    }

    fn is_stdin(&self) -> bool {
        self.file.as_os_str() == "-"
    }

    fn outcome(&self, shared: &ImportState, summary: &ImportSummary) -> Result<(), CliError> {
        let incomplete = shared.take_incomplete().filter(|_| !self.no_end);
        if let Some(how) = incomplete {
            return Err(CliError::Incomplete(format!(
                "the input is not whole: {how}; the rows that it has are written"
            )));
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
}
