//! `umbo kv import`: the rows of a file or pipe into a namespace, in constant memory.
//!
//! Rows of a pipe and of a small file are written by the [`lane`], batch by batch. A larger file is uploaded as a load,
//! which the server applies while the command waits ([`as_load`]). Either way every line ends as a written row or as
//! a line in the file of failed rows ([`failed`]), which can be imported in turn.

mod as_load;
mod failed;
mod lane;
mod lines;
pub(in crate::command) mod source;
mod summary;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::sync::{mpsc, oneshot};
use umbo_api::ErrorCode;
use umbo_api::loads::LoadSpec;
use umbo_api::time_to_live;
use umbo_rows::{Coding, RowsError};
use umbo_rows::{RowFormat, RowReader};
use umbo_types::Namespace;

use self::failed::FailedFile;
use self::lane::{BATCH_ROWS_MAX, ImportLane};
use self::lines::{LineReader, ReadEnd, ReadInput};
use self::source::{ImportInput, LineSource};
use self::summary::Totals;
use super::bar::{bar, with_bar};
use super::file_name::{rows_failure, with_suffix};
use super::format::FormatOptions;
use super::patience::{Patience, SharedPatience};
use super::put::DurabilityOption;
use crate::cli_error::{CliError, usage};
use crate::command::load::job::LoadJob;
use crate::command::load::progress::{Pushed, PushedFile};
use crate::connection::{ConnectionArgs, with_nearest};
use crate::output::{counted, note};

/// Bytes of the longest file whose rows the lane writes. Writing them takes less time than a load takes to begin and
/// end.
const LANE_FILE_LEN_MAX: u64 = 8 << 20;
/// Lines that are read ahead of the lane: two batches.
const LINES_AHEAD: usize = 4_096;

/// Arguments of `umbo kv import`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Namespace
    ns: Namespace,
    /// File to read, or address of an object (s3://, gs://, az://, file://); - for stdin
    file: PathBuf,
    /// Accept a part of an export, without its end line
    #[arg(long)]
    no_end: bool,
    /// Create the namespace if it is absent
    #[arg(long)]
    create: bool,
    #[command(flatten)]
    format: FormatOptions,
    /// File for failed rows [default: FILE.failed.ndjson]
    #[arg(long, value_name = "FILE")]
    failed: Option<PathBuf>,
    /// Parts of a larger file to send in parallel, 1 to 32
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=32))]
    connections: u8,
    /// Length of a part of a larger file before compression, in MiB, 1 to 256
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    part_mib: u32,
    /// Write at most this many rows a second, in batches; the server's quotas hold in any case
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// How long to go on while nothing at all is taken, in addition to the wait that the server asks for
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = time_to_live::span)]
    patience: Duration,
    /// When writes are acknowledged; rows are then written in batches
    #[arg(long, value_enum)]
    durability: Option<DurabilityOption>,
}

impl Arguments {
    /// Imports, and reports the result. Fails if any row failed.
    pub(super) async fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let started = Instant::now();
        let mut failed = FailedFile::new(self.failed_path()?);
        if self.is_load()? {
            let client = connection.bulk_client()?;
            let job = LoadJob {
                client: &client,
                ns: &self.ns,
                pushed: self.pushed()?,
                connections: self.connections,
                patience: Arc::new(SharedPatience::new(self.patience)),
                is_part: self.no_end,
                is_created: self.create,
            };
            // Fails early if the server does not answer. Later, an absent server is waited for.
            client.reach().await?;
            match as_load::run(job, connection, &mut failed, started).await {
                Ok((load, totals)) => {
                    let format = connection.listing_format();
                    totals.report(started.elapsed(), &failed, Some(&load), format)?;
                    return totals.outcome(&failed);
                }
                // A namespace with fast writes takes batches, whatever the length of the file.
                Err(CliError::Client(error))
                    if error.code() == Some(ErrorCode::NeedsExactWrites) => {}
                Err(error) => return Err(error),
            }
        }
        self.run_lane(connection, failed, started).await
    }

    fn pushed(&self) -> Result<Pushed, CliError> {
        let spec = LoadSpec {
            import: true,
            columns: self.format.columns(),
            ..LoadSpec::default()
        };
        let file = PushedFile::of(&self.file, self.format.of_file(&self.file)?)?;
        Pushed::new(&self.ns, spec, vec![file], (self.part_mib, &self.format))
    }

    /// Returns whether the file is sent as a load.
    fn is_load(&self) -> Result<bool, CliError> {
        if self.is_stdin() || self.rate.is_some() || self.durability.is_some() {
            return Ok(false);
        }
        let size = source::size(&self.file);
        let size = size.map_err(CliError::file("read", &self.file))?;
        Ok(size.is_some_and(|size| size > LANE_FILE_LEN_MAX))
    }

    async fn run_lane(
        &self,
        connection: &ConnectionArgs,
        failed: FailedFile,
        started: Instant,
    ) -> Result<(), CliError> {
        let source = source::open(&self.file).map_err(CliError::file("read", &self.file))?;
        let (size, position) = (source.size, Arc::clone(&source.read));
        let input = self.input(source)?;
        let (client, bar) = (connection.writing_client(self.rate)?, bar(size));
        let mut lane = ImportLane {
            client,
            namespace: self.ns.clone(),
            durability: self.durability.map(Into::into),
            // A batch is sent as a whole.
            batch_rows: self
                .rate
                .map_or(BATCH_ROWS_MAX, |rate| BATCH_ROWS_MAX.min(rate as usize)),
            is_created: self.create,
            has_keys: true,
            patience: Patience::new(self.patience),
            is_file: size.is_some(),
            failed,
            totals: Totals::default(),
            bar: bar.clone(),
            position,
            next: None,
        };
        lane.client.reach().await?;
        let (lines, reading) = self.start_reader(input)?;
        let outcome = with_bar(&bar, lane.run(lines), || {}).await;
        lane.failed.flush()?;
        let (totals, failed) = (&lane.totals, &lane.failed);
        totals.report(started.elapsed(), failed, None, connection.listing_format())?;
        if let Err(failure) = outcome {
            if totals.rows > 0 {
                let file = self.file.display();
                note!("import {file} again: rows that are there are written again");
            }
            return Err(with_nearest(&lane.client, &self.ns, failure).await);
        }
        let read = match reading.await.unwrap_or(Err(None)) {
            Ok(read) => read,
            Err(None) => ReadInput::default(),
            Err(Some(failure)) => return Err(failure),
        };
        if read.others > 0 {
            let rows = counted(read.others, "row");
            note!("{rows} left out that failed in other namespaces");
        }
        if let Some(how) = read.incomplete.filter(|_| !self.no_end) {
            return Err(CliError::Incomplete(format!(
                "the input is not whole: {how}; the rows that it has are written"
            )));
        }
        if self.is_stdin() && read.is_empty {
            let message = "stdin is empty: the command that should write it has failed";
            return Err(CliError::Incomplete(message.to_owned()));
        }
        totals.outcome(failed)
    }

    /// Reads the input on a separate thread: reading a pipe may never end.
    fn start_reader(&self, input: ImportInput) -> Result<(ImportLines, ImportReading), CliError> {
        let (sender, lines) = mpsc::channel(LINES_AHEAD);
        let (done, reading) = oneshot::channel();
        let reader = LineReader::new(self.ns.clone(), self.file.clone(), sender);
        std::thread::Builder::new()
            .name("umbo-import-reader".to_owned())
            .spawn(move || drop(done.send(reader.run(input))))
            .map_err(CliError::start)?;
        Ok((lines, reading))
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
                let file = file.map_err(CliError::file("read", &self.file))?;
                RowReader::open(&format, Coding::Identity, file)
            }
        };
        let rows = rows.map_err(|error| rows_failure(&self.file, error))?;
        Ok(ImportInput::Table(rows))
    }

    fn failed_path(&self) -> Result<PathBuf, CliError> {
        let path = match &self.failed {
            Some(path) => path.clone(),
            None if self.is_stdin() => PathBuf::from("stdin.failed.ndjson"),
            None => with_suffix(&self.file, ".failed.ndjson"),
        };
        if path == self.file {
            return Err(usage!(
                "failed rows cannot go to the file they are read from"
            ));
        }
        Ok(path)
    }

    fn is_stdin(&self) -> bool {
        self.file == Path::new("-")
    }
}

/// The lines that a reader reads.
type ImportLines = mpsc::Receiver<lines::ReadLine>;
/// How its reading ends.
type ImportReading = oneshot::Receiver<Result<ReadInput, ReadEnd>>;
