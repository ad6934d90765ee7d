//! `umbo dlq redrive`: sends the rows of a file of failed rows again, each to its namespace.
//!
//! The file itself is never changed. Rows that fail again go to a new file, and the progress to a third one
//! beside it ([`Checkpoint`]), in this order and each time on the disk before the next. So whatever ends the
//! program, the next run continues from there: at worst some rows are sent twice, which is harmless for a
//! put. After everything was sent the checkpoint is removed.

mod dry_run;

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use tokio::sync::OnceCell;
use umbo_client::Client;
use umbo_types::Namespace;

use super::checkpoint::Checkpoint;
use super::dead_letters::{DeadLetterLine, LetterLines, read_letter};
use super::failed::{Existing, FailedFile};
use super::held::HeldShards;
use super::lane::ImportTarget;
use super::line::{self, LineKind};
use super::newer_rows::{self, RedriveLine, SentKeys};
use super::progress::{ImportState, bar, describe};
use super::transfer::TransferOptions;
use crate::cli_error::CliError;
use crate::command::kv::argument::namespace;
use crate::command::kv::file_name::with_suffix;
use crate::connection::ConnectionArgs;
use crate::output::{self, Format, counted};

/// Most bytes between two checkpoints.
const CHUNK_LEN: usize = 32 << 20;
/// Lines between two checkpoints at first; doubled or halved after a fast or slow one, within bounds.
const CHUNK_LINES: usize = 1_000;
const CHUNK_LINES_MIN: usize = 50;
const CHUNK_LINES_MAX: usize = 50_000;
const FAST: Duration = Duration::from_secs(1);
const SLOW: Duration = Duration::from_secs(5);

const HELP: &str = "\
Rows that fail again go to a new file, with the new reason; FILE is not changed. A row that was written since
its line failed is left alone, and the line goes to the new file too. To see which, the versions of the rows
are read first, which needs the read permission; --overwrite does without. To continue an interrupted
run, run it again: FILE.progress records how far it got. FILE can be removed after all of it was sent.";

/// Arguments of `umbo dlq redrive`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(in crate::command) struct Arguments {
    /// File of failed rows, as 'umbo kv import' makes them
    file: PathBuf,
    /// Namespace of rows whose entry has none
    #[arg(long, value_name = "NS", value_parser = namespace)]
    namespace: Option<Namespace>,
    /// Send only rows that failed with this (like quota-exceeded); the others are copied to the new file. May
    /// be repeated
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// File for rows that fail again; FILE with a number in its name where not given
    #[arg(long, value_name = "FILE")]
    failed: Option<PathBuf>,
    /// Send rows even where newer ones are there
    #[arg(long)]
    overwrite: bool,
    /// Only count the rows that would be sent, by namespace
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    transfer: TransferOptions,
}

/// Lines that are sent before a checkpoint is made.
#[derive(Debug, Default)]
struct RedriveChunk {
    bytes: Vec<u8>,
    groups: Vec<NamespaceGroup>,
    lines: usize,
    last_number: u64,
}

/// Lines of a chunk that go to one namespace.
#[derive(Debug)]
struct NamespaceGroup {
    namespace: Namespace,
    lines: Vec<ChunkLine>,
}

/// A line of a chunk: its number in the file, and its bytes.
#[derive(Debug)]
struct ChunkLine {
    number: u64,
    range: Range<usize>,
}

/// Result, earlier runs over the same file included.
#[derive(Debug, Serialize)]
struct RedriveSummary {
    rows: u64,
    failed: u64,
    /// Rows that were not sent because of `--type`.
    kept: u64,
    /// Rows that were not sent because newer ones are there.
    left_alone: u64,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<String>,
}

/// A run.
struct Redrive<'a> {
    arguments: &'a Arguments,
    client: Client,
    checkpoint: Checkpoint,
    failed: Arc<Mutex<FailedFile>>,
    /// Entries added to the new file before this chunk.
    failed_before: u64,
    sent: SentKeys,
    chunk_lines: usize,
    started: Instant,
}

impl Arguments {
    /// Sends the rows, reports, and fails if any row did.
    pub(in crate::command) async fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        self.check_namespaces()?;
        if self.dry_run {
            return self.dry_run(connection).await;
        }
        let checkpoint = Checkpoint::load_or_begin(&self.file, self.failed_path())?;
        let failed_path = checkpoint.failed_file.clone();
        let existing = Existing::Continue(checkpoint.failed_bytes);
        let mut failed = FailedFile::new(failed_path, existing);
        failed.cut()?;
        let mut redrive = Redrive {
            client: connection.writing_client(self.transfer.rate)?,
            checkpoint,
            failed: Arc::new(Mutex::new(failed)),
            failed_before: 0,
            sent: SentKeys::new(),
            chunk_lines: CHUNK_LINES,
            started: Instant::now(),
            arguments: &self,
        };
        let result = redrive.run().await;
        let summary = redrive.summary();
        match connection.listing_format() {
            Format::Table => summary.report(),
            Format::Json | Format::Ndjson => output::write_json(&summary)?,
        }
        result?;
        redrive.checkpoint.remove()?;
        match summary.failed_file {
            Some(file) if summary.failed > 0 => Err(CliError::Partial {
                failed: summary.failed,
                rows: summary.rows + summary.failed,
                hint: format!("; they are in {file}, with the reason of each"),
            }),
            _ => Ok(()),
        }
    }

    /// Checks before anything is sent that every row has a namespace.
    fn check_namespaces(&self) -> Result<(), CliError> {
        if self.file.as_os_str() == "-" {
            let message = "a redrive may be interrupted and continued, so it needs a file";
            return Err(CliError::Usage(message.to_owned()));
        }
        let (mut lines, mut line) = (LetterLines::open(&self.file)?, Vec::new());
        while let Some(number) = lines.next(&mut line)? {
            let has_none = match read_letter(&line) {
                DeadLetterLine::Entry(failed) => failed.namespace.is_none(),
                DeadLetterLine::Row | DeadLetterLine::Malformed => true,
            };
            if has_none && self.namespace.is_none() {
                return Err(CliError::Usage(format!(
                    "line {number} names no namespace; say where it is to go with --namespace"
                )));
            }
            line.clear();
        }
        Ok(())
    }

    fn failed_path(&self) -> PathBuf {
        self.failed.clone().unwrap_or_else(|| next_name(&self.file))
    }

    /// Returns the namespace of a line; none if it is only copied.
    fn destination(&self, line: &[u8]) -> Option<Namespace> {
        let DeadLetterLine::Entry(failed) = read_letter(line) else {
            return self.namespace.clone();
        };
        let is_wanted =
            self.types.is_empty() || self.types.iter().any(|wanted| wanted == failed.code());
        match failed.namespace {
            _ if !is_wanted => None,
            None => self.namespace.clone(),
            Some(name) => Namespace::new(&name).ok(),
        }
    }
}

impl Redrive<'_> {
    async fn run(&mut self) -> Result<(), CliError> {
        let file = self.arguments.file.clone();
        let mut lines = LetterLines::open(&file)?;
        let bar = bar(None);
        loop {
            let chunk = self.read_chunk(&mut lines)?;
            if chunk.lines == 0 {
                bar.finish_and_clear();
                return Ok(());
            }
            let (chunk, begun) = (Arc::new(chunk), Instant::now());
            for at in 0..chunk.groups.len() {
                self.send(&chunk, at, &bar).await?;
            }
            self.conclude(&chunk)?;
            self.chunk_lines = next_chunk_lines(self.chunk_lines, begun.elapsed());
        }
    }

    /// Reads lines up to the bounds of a chunk, beginning after the checkpoint.
    fn read_chunk(&mut self, lines: &mut LetterLines<'_>) -> Result<RedriveChunk, CliError> {
        let mut chunk = RedriveChunk::default();
        while chunk.bytes.len() < CHUNK_LEN && chunk.lines < self.chunk_lines {
            let start = chunk.bytes.len();
            let Some(number) = lines.next(&mut chunk.bytes)? else {
                break;
            };
            if number <= self.checkpoint.lines {
                chunk.bytes.truncate(start);
                continue;
            }
            chunk.lines += 1;
            chunk.last_number = number;
            let range = start..chunk.bytes.len();
            let line = &chunk.bytes[range.clone()];
            if let Some(namespace) = self.arguments.destination(line) {
                chunk.push(namespace, ChunkLine { number, range });
            } else {
                self.checkpoint.kept += 1;
                lock(&self.failed).push_entry(line)?;
            }
        }
        Ok(chunk)
    }

    /// Sends the lines of one namespace.
    async fn send(
        &mut self,
        chunk: &Arc<RedriveChunk>,
        at: usize,
        bar: &indicatif::ProgressBar,
    ) -> Result<(), CliError> {
        let namespace = chunk.groups[at].namespace.clone();
        let lines = self.lines_to_send(chunk, at).await?;
        let originals = self.originals(chunk, at);
        let transfer = &self.arguments.transfer;
        let held = HeldShards::new(&self.arguments.file);
        let failed = Arc::clone(&self.failed);
        let shared = ImportState::new(namespace.clone(), failed, held, transfer.patience);
        let shared = Arc::new(shared.with_originals(originals));
        let target = Arc::new(ImportTarget {
            client: self.client.clone(),
            namespace,
            durability: transfer.durability.map(Into::into),
            // If the namespace is gone, it was removed on purpose.
            is_created: false,
            creation: OnceCell::new(),
            // The checkpoint of the redrive is enough.
            is_resumable: false,
            shared: Arc::clone(&shared),
        });
        let read = move |reader: super::reader::LineReader<'_>| {
            reader.run_lines(lines.iter().map(|(number, line)| (*number, &line[..])))
        };
        let before = self.checkpoint.rows;
        let tick = || {
            bar.tick();
            let rows = before + shared.written();
            bar.set_message(describe(rows, self.started.elapsed(), &target.client));
        };
        let is_interrupted = transfer.run(&target, read, tick).await?;
        self.checkpoint.rows += shared.written();
        if let Some(mut held) = shared.held() {
            held.remove_files();
        }
        if let Some(failure) = shared.take_failure() {
            return Err(failure);
        }
        if is_interrupted {
            return Err(CliError::Interrupted);
        }
        Ok(())
    }

    /// Returns the lines of one namespace that are sent. Those for which newer rows are there go to the new file.
    async fn lines_to_send(
        &mut self,
        chunk: &RedriveChunk,
        at: usize,
    ) -> Result<Vec<(u64, Vec<u8>)>, CliError> {
        let group = &chunk.groups[at];
        let lines: Vec<&[u8]> = group.lines.iter().map(|line| chunk.line(line)).collect();
        let numbers = group.lines.iter().map(|line| line.number);
        if self.arguments.overwrite {
            return Ok(numbers.zip(lines.into_iter().map(<[u8]>::to_vec)).collect());
        }
        let patience = self.arguments.transfer.patience;
        let (client, sent) = (&self.client, &mut self.sent);
        let checked = newer_rows::check(client, &group.namespace, &lines, sent, patience).await?;
        let mut sent = Vec::new();
        for ((number, line), checked) in numbers.zip(lines).zip(checked) {
            match checked {
                RedriveLine::Send(line) => sent.push((number, line)),
                RedriveLine::LeaveAlone => {
                    self.checkpoint.left += 1;
                    lock(&self.failed).push_entry(line)?;
                }
            }
        }
        Ok(sent)
    }

    /// Returns the rows of one namespace as they stand in the file, by their numbers.
    fn originals(&self, chunk: &RedriveChunk, at: usize) -> HashMap<u64, Vec<u8>> {
        let row = |place: &ChunkLine| {
            let line = chunk.line(place);
            let Ok(LineKind::Failed(range)) = line::read(line, &mut Vec::new()) else {
                return None;
            };
            Some((place.number, line[range].to_vec()))
        };
        let lines = chunk.groups[at]
            .lines
            .iter()
            .filter(|_| !self.arguments.overwrite);
        lines.filter_map(row).collect()
    }

    /// Saves a checkpoint after a chunk of which every line was written, or is in the new file.
    fn conclude(&mut self, chunk: &RedriveChunk) -> Result<(), CliError> {
        let mut failed = lock(&self.failed);
        self.checkpoint.failed_bytes = failed.sync()?;
        self.checkpoint.failed += failed.rows() - self.failed_before;
        self.failed_before = failed.rows();
        self.checkpoint.lines = chunk.last_number;
        self.checkpoint.save()
    }

    fn summary(&self) -> RedriveSummary {
        let checkpoint = &self.checkpoint;
        let added = lock(&self.failed).rows() - self.failed_before + checkpoint.failed;
        let path = &checkpoint.failed_file;
        RedriveSummary {
            rows: checkpoint.rows,
            failed: added.saturating_sub(checkpoint.kept + checkpoint.left),
            kept: checkpoint.kept,
            left_alone: checkpoint.left,
            seconds: self.started.elapsed().as_secs_f64(),
            failed_file: (added > 0).then(|| path.display().to_string()),
            quota: self.client.pace().map(|pace| pace.policy),
        }
    }
}

impl RedriveChunk {
    fn line(&self, line: &ChunkLine) -> &[u8] {
        &self.bytes[line.range.clone()]
    }

    fn push(&mut self, namespace: Namespace, line: ChunkLine) {
        let known = self
            .groups
            .iter_mut()
            .find(|group| group.namespace == namespace);
        match known {
            Some(group) => group.lines.push(line),
            None => self.groups.push(NamespaceGroup {
                namespace,
                lines: vec![line],
            }),
        }
    }
}

impl RedriveSummary {
    /// Prints it on stderr.
    fn report(&self) {
        let rows = counted(self.rows, "row");
        let kept = match self.kept {
            0 => String::new(),
            kept => format!(", {kept} kept"),
        };
        let left = match self.left_alone {
            0 => String::new(),
            left => format!(", {left} left alone because newer rows are there"),
        };
        let (failed, seconds) = (self.failed, self.seconds);
        output::note(&format!(
            "{rows} written, {failed} failed again{kept}{left}, in {seconds:.1} s"
        ));
        if let Some(file) = self.failed_file.as_ref().filter(|_| self.left_alone > 0) {
            output::note(&format!(
                "what was left alone is in {file}; --overwrite sends it all the same"
            ));
        }
    }
}

/// Returns how many lines to send before the next checkpoint.
fn next_chunk_lines(lines: usize, took: Duration) -> usize {
    let lines = match took {
        took if took < FAST => lines * 2,
        took if took > SLOW => lines / 2,
        _ => lines,
    };
    lines.clamp(CHUNK_LINES_MIN, CHUNK_LINES_MAX)
}

/// Returns the name of the file for rows that fail again: `x.failed.ndjson` is followed by
/// `x.failed-2.ndjson`.
fn next_name(path: &Path) -> PathBuf {
    let follow = || {
        let name = path.file_name()?.to_str()?.strip_suffix(".ndjson")?;
        let (stem, number) = match name.rsplit_once(".failed") {
            Some((stem, "")) => (stem, 1),
            Some((stem, rest)) => (stem, rest.strip_prefix('-')?.parse::<u32>().ok()?),
            None => return None,
        };
        let next = number.checked_add(1)?;
        Some(path.with_file_name(format!("{stem}.failed-{next}.ndjson")))
    };
    follow().unwrap_or_else(|| with_suffix(path, ".failed.ndjson"))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_come_every_few_seconds() {
        assert_eq!(next_chunk_lines(1_000, Duration::from_millis(9)), 2_000);
        assert_eq!(next_chunk_lines(1_000, Duration::from_secs(2)), 1_000);
        assert_eq!(next_chunk_lines(1_000, Duration::from_secs(9)), 500);
        assert_eq!(
            next_chunk_lines(60, Duration::from_secs(9)),
            CHUNK_LINES_MIN
        );
        assert_eq!(next_chunk_lines(40_000, Duration::ZERO), CHUNK_LINES_MAX);
    }

    #[test]
    fn each_redrive_has_a_file_of_its_own() {
        for (from, to) in [
            ("a/x.ndjson.failed.ndjson", "a/x.ndjson.failed-2.ndjson"),
            ("x.failed-2.ndjson", "x.failed-3.ndjson"),
            ("x.failed-99.ndjson", "x.failed-100.ndjson"),
            (
                "x.failed-4294967295.ndjson",
                "x.failed-4294967295.ndjson.failed.ndjson",
            ),
            ("x.failed-a.ndjson", "x.failed-a.ndjson.failed.ndjson"),
            ("dead", "dead.failed.ndjson"),
        ] {
            assert_eq!(next_name(Path::new(from)), Path::new(to));
        }
    }
}
