//! `umbo kv import`: a file of any size into a namespace, with flat memory.
//!
//! A thread reads, sorts and cuts ([`reader`]); lanes, one a connection, write ([`lane`]). Every
//! line ends as a row written or as a line in the file of failed rows ([`failed`]).

mod batch;
mod failed;
mod lane;
mod line;
pub(super) mod progress;
mod reader;
mod source;
mod window;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::sync::{OnceCell, mpsc, oneshot};
use tokio::task::JoinSet;
use umbo_types::Namespace;
use umbo_types::limits::BATCH_ROWS_MAX;

use self::batch::BatchLimits;
use self::failed::FailedFile;
use self::lane::Target;
use self::progress::{Shared, Summary, bar, rate};
use self::reader::{Reader, ReaderOptions};
use self::source::Source;
use super::namespace;
use super::put::Durability;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::output::{self, Format};

/// Batches that wait before a lane, beside the one it writes.
const LANE_QUEUE: usize = 1;
const TICK: Duration = Duration::from_millis(100);

const HELP: &str = "\
The file has one row a line, {\"pk\":…,\"sk\":…,\"v\":…}, as 'umbo kv export' writes them; plain, or
compressed with gzip or zstd. A line may say \"op\":\"del\", \"ttl\", \"expires_at\" and \"content_type\".
Of two lines with the same key the later one wins.

Lines that fail go to FILE.failed.ndjson, one JSON object each: why it failed, and the line in
\"row\" (in \"text\" where it is no JSON). Put the rows right there and import that file as it is.
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
    /// Connections that write side by side
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..))]
    connections: u8,
    /// Most rows of a request
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u16).range(1..=BATCH_ROWS_MAX as i64))]
    batch_rows: u16,
    /// Most bytes of a request, in KiB; a larger row is a request of its own
    #[arg(long, value_name = "KIB", default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..=8_192))]
    batch_kib: u32,
    /// Memory in which lines are sorted by key before they are sent, in MiB; 0 sorts nothing
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(..=2_048))]
    sort_window: u32,
    /// Where failed rows go; FILE.failed.ndjson where not given
    #[arg(long, value_name = "FILE")]
    failed: Option<PathBuf>,
    /// When a batch is acknowledged
    #[arg(long, value_enum)]
    durability: Option<Durability>,
}

impl Arguments {
    /// Imports, reports, and fails if any row did.
    pub(super) async fn run(self, connection: &Connection) -> Result<(), Failure> {
        let started = Instant::now();
        let failed_path = self.failed_path()?;
        let source = source::open(&self.file).map_err(|error| file_failure(&self.file, error))?;
        let shared = Arc::new(Shared::new(FailedFile::new(failed_path)));
        let target = Arc::new(Target {
            client: connection.client()?,
            namespace: self.ns.clone(),
            durability: self.durability.map(Into::into),
            is_created: !self.no_create,
            creation: OnceCell::new(),
            shared: Arc::clone(&shared),
        });
        let is_interrupted = self.transfer(source, &target).await?;
        let summary = shared.summary(started.elapsed())?;
        summary.report();
        let format = connection.listing_format();
        if format != Format::Table {
            output::write_json(&summary)?;
        }
        outcome(&shared, &summary, is_interrupted)
    }

    /// Runs reader and lanes to their end; says whether Ctrl-C ended them.
    async fn transfer(&self, source: Source, target: &Arc<Target>) -> Result<bool, Failure> {
        let (mut lanes, mut senders) = (JoinSet::new(), Vec::new());
        for _ in 0..self.connections {
            let (sender, receiver) = mpsc::channel(LANE_QUEUE);
            senders.push(sender);
            lanes.spawn(lane::run(Arc::clone(target), receiver));
        }
        let (size, read) = (source.size, Arc::clone(&source.read));
        let mut reading = self.start_reader(source, senders, Arc::clone(&target.shared))?;
        let bar = bar(size);
        let started = Instant::now();
        let mut ticks = tokio::time::interval(TICK);
        let mut is_interrupted = false;
        loop {
            tokio::select! {
                lane = lanes.join_next() => {
                    if lane.is_none() {
                        break;
                    }
                }
                signal = tokio::signal::ctrl_c(), if !is_interrupted => {
                    signal.map_err(Failure::start)?;
                    is_interrupted = true;
                    target.shared.stop();
                }
                _ = ticks.tick() => {
                    bar.set_position(read.load(Ordering::Relaxed));
                    let rows = target.shared.written();
                    let rate = rate(rows, started.elapsed());
                    let rows = output::counted(rows, "row");
                    bar.set_message(format!("{rows}, {rate} rows/s"));
                }
            }
        }
        bar.finish_and_clear();
        // A reader that was stopped may still wait for its source; nobody waits for it.
        if !target.shared.is_stopped()
            && let Ok(Err(failure)) = (&mut reading).await
        {
            target.shared.abort(failure);
        }
        Ok(is_interrupted)
    }

    fn start_reader(
        &self,
        mut source: Source,
        lanes: Vec<mpsc::Sender<batch::Batch>>,
        shared: Arc<Shared>,
    ) -> Result<oneshot::Receiver<Result<(), Failure>>, Failure> {
        let options = ReaderOptions {
            limits: BatchLimits {
                rows: self.batch_rows.into(),
                bytes: self.batch_kib as usize * 1_024,
            },
            window_bytes: self.sort_window as usize * 1_024 * 1_024,
        };
        let (path, (done, reading)) = (self.file.clone(), oneshot::channel());
        std::thread::Builder::new()
            .name("umbo-import-reader".to_owned())
            .spawn(move || {
                let reader = Reader::new(options, lanes, &shared);
                let result = reader.run(&mut *source.reader, |error| file_failure(&path, error));
                // Where nobody waits any more the import was stopped.
                let _ = done.send(result);
            })
            .map_err(Failure::start)?;
        Ok(reading)
    }

    fn failed_path(&self) -> Result<PathBuf, Failure> {
        let path = match &self.failed {
            Some(path) => path.clone(),
            None if self.file.as_os_str() == "-" => PathBuf::from("stdin.failed.ndjson"),
            None => {
                let mut path = self.file.clone().into_os_string();
                path.push(".failed.ndjson");
                path.into()
            }
        };
        if path == self.file {
            let message = "failed rows cannot go to the file they are read from";
            return Err(Failure::Usage(message.to_owned()));
        }
        Ok(path)
    }
}

fn outcome(shared: &Shared, summary: &Summary, is_interrupted: bool) -> Result<(), Failure> {
    if let Some(failure) = shared.take_failure() {
        return Err(failure);
    }
    if is_interrupted {
        return Err(Failure::Interrupted);
    }
    match &summary.failed_file {
        None => Ok(()),
        Some(file) => Err(Failure::Partial {
            failed: summary.failed,
            rows: summary.rows + summary.failed,
            hint: format!("; they are in {file}, with the reason of each"),
        }),
    }
}

fn file_failure(path: &Path, source: std::io::Error) -> Failure {
    Failure::File {
        verb: "read",
        path: path.to_owned(),
        source,
    }
}
