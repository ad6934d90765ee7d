//! State that the reader and the lanes of an import share: counters, the file of failed rows, the request to
//! stop; and its display: the progress bar and the summary.

use std::collections::HashMap;
use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use tokio::sync::{Notify, watch};
use umbo_api::ru::Ru;
use umbo_client::{Client, Pace};
use umbo_types::Namespace;

use super::failed::{FailedFile, LineFailure};
use super::held::{HeldRow, HeldShards};
use crate::cli_error::CliError;
use crate::command::kv::patience::Patience;
use crate::output::counted;

/// State that all parts of an import share.
#[derive(Debug)]
pub(super) struct ImportState {
    namespace: Namespace,
    written: AtomicU64,
    skipped: AtomicU64,
    bytes: AtomicU64,
    /// Bytes of lines that were read, and of those of them that were written or have failed.
    read_bytes: AtomicU64,
    settled_bytes: AtomicU64,
    charged_micros: AtomicU64,
    failed: Arc<Mutex<FailedFile>>,
    /// Lines by their numbers, if they are not sent as they are.
    originals: HashMap<u64, Vec<u8>>,
    held: Mutex<HeldShards>,
    has_held: AtomicBool,
    patience: Mutex<Patience>,
    progressed: Notify,
    notes: Mutex<Vec<String>>,
    incomplete: Mutex<Option<String>>,
    failure: Mutex<Option<CliError>>,
    stop: watch::Sender<bool>,
}

impl ImportState {
    /// Begins to write to a namespace; several may share a file of failed rows.
    pub(super) fn new(
        namespace: Namespace,
        failed: Arc<Mutex<FailedFile>>,
        held: HeldShards,
        patience: Duration,
    ) -> Self {
        Self {
            namespace,
            read_bytes: AtomicU64::new(0),
            settled_bytes: AtomicU64::new(0),
            originals: HashMap::new(),
            has_held: AtomicBool::new(!held.is_empty()),
            held: Mutex::new(held),
            patience: Mutex::new(Patience::new(patience)),
            progressed: Notify::new(),
            notes: Mutex::default(),
            incomplete: Mutex::default(),
            written: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            charged_micros: AtomicU64::new(0),
            failed,
            failure: Mutex::new(None),
            stop: watch::Sender::new(false),
        }
    }

    /// Records lines in their original form where they fail.
    pub(super) fn with_originals(self, originals: HashMap<u64, Vec<u8>>) -> Self {
        Self { originals, ..self }
    }

    /// Counts rows that are written or skipped, and the bytes of their lines.
    pub(super) fn count(&self, rows: u64, bytes: u64) {
        self.written.fetch_add(rows, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.settled_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a line that was read.
    pub(super) fn count_read(&self, bytes: u64) {
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a line that needs no more work.
    pub(super) fn count_settled(&self, bytes: u64) {
        self.settled_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns which part of the lines that were read needs no more work, of `position` bytes of the input.
    pub(super) fn settled_of(&self, position: u64) -> u64 {
        let read = self.read_bytes.load(Ordering::Relaxed).max(1);
        let settled = self.settled_bytes.load(Ordering::Relaxed).min(read);
        (u128::from(position) * u128::from(settled) / u128::from(read)) as u64
    }

    /// Adds a line for people; the next tick prints it above the progress bar.
    pub(super) fn note(&self, line: String) {
        lock(&self.notes).push(line);
    }

    /// Records how one sees that rows are missing in the input; the first sign stays.
    pub(super) fn note_incomplete(&self, how: String) {
        lock(&self.incomplete).get_or_insert(how);
    }

    /// Takes the sign that rows are missing in the input.
    pub(super) fn take_incomplete(&self) -> Option<String> {
        lock(&self.incomplete).take()
    }

    /// Takes the lines for people.
    pub(super) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.notes))
    }

    /// Counts those of the rows that were skipped, because they had expired already.
    pub(super) fn skip(&self, rows: u64) {
        self.skipped.fetch_add(rows, Ordering::Relaxed);
    }

    /// Returns the number of rows written.
    pub(super) fn written(&self) -> u64 {
        let skipped = self.skipped.load(Ordering::Relaxed);
        self.written.load(Ordering::Relaxed).saturating_sub(skipped)
    }

    /// Adds the cost of an answer.
    pub(super) fn charge(&self, charged: Ru) {
        let micros = charged.as_micros();
        self.charged_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Records a line that failed.
    pub(super) fn fail(&self, line: &[u8], reason: &LineFailure) -> Result<(), CliError> {
        self.count_settled(line.len() as u64 + 1);
        let line = self.originals.get(&reason.line).map_or(line, |line| line);
        lock(&self.failed).push(self.namespace.as_str(), line, reason)
    }

    /// Records that rows were written.
    pub(super) fn progress(&self) {
        self.patience().progress();
        self.progressed.notify_waiters();
    }

    /// Returns once any row is written.
    pub(super) async fn progressed(&self) {
        self.progressed.notified().await;
    }

    /// Returns how long the import goes on without progress.
    pub(super) fn patience(&self) -> MutexGuard<'_, Patience> {
        lock(&self.patience)
    }

    /// Returns whether rows that were sent `attempts` times are sent once more ([`Patience::goes_on`]).
    pub(super) fn goes_on(&self, attempts: u32, wait: Option<Duration>) -> bool {
        self.patience().goes_on(attempts, wait, Instant::now())
    }

    /// Returns the rows that wait for a shard; none if none do.
    pub(super) fn held(&self) -> Option<MutexGuard<'_, HeldShards>> {
        self.has_held
            .load(Ordering::Acquire)
            .then(|| lock(&self.held))
    }

    /// The same, to add rows.
    pub(super) fn hold(&self) -> MutexGuard<'_, HeldShards> {
        self.has_held.store(true, Ordering::Release);
        lock(&self.held)
    }

    /// Gives up all rows that wait: they have failed.
    pub(super) fn give_up_held(&self) -> Result<(), CliError> {
        let fail = |row: HeldRow, reason: &LineFailure| {
            let line = row.number;
            self.fail(
                &row.line,
                &LineFailure {
                    line,
                    ..reason.clone()
                },
            )
        };
        self.held().map_or(Ok(()), |mut held| held.give_up(fail))
    }

    /// Syncs the file of failed rows; returns its valid bytes and its rows.
    pub(super) fn sync_failed(&self) -> Result<(u64, u64), CliError> {
        let mut failed = lock(&self.failed);
        Ok((failed.sync()?, failed.rows()))
    }

    /// Stops everything with an error; the first one stays.
    pub(super) fn abort(&self, failure: CliError) {
        lock(&self.failure).get_or_insert(failure);
        self.stop();
    }

    /// Makes the lanes end after their current batch.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Returns whether everything is to stop.
    pub(super) fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// Returns a channel that changes when everything is to stop.
    pub(super) fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Takes the error that stopped everything.
    pub(super) fn take_failure(&self) -> Option<CliError> {
        lock(&self.failure).take()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Result of an import.
#[derive(Debug, Serialize)]
pub(super) struct ImportSummary {
    /// Rows written.
    pub(super) rows: u64,
    /// Rows that failed.
    pub(super) failed: u64,
    /// Rows that were skipped, because they had expired already.
    skipped: u64,
    bytes: u64,
    seconds: f64,
    rows_per_second: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failed_file: Option<String>,
    /// Request units that it was charged.
    ru: Ru,
    /// Quota to whose pace it kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<String>,
    /// How long its requests waited for quotas and after refusals, added up over all connections.
    held_back_seconds: f64,
    /// Rows that the runs before this one have written.
    #[serde(skip_serializing_if = "is_zero")]
    written_before: u64,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl ImportSummary {
    /// Writes out the file of failed rows and sums up. `before` are the rows that earlier runs have written.
    pub(super) fn new(
        shared: &ImportState,
        (pace, held_back): (Option<Pace>, Duration),
        elapsed: Duration,
        before: u64,
    ) -> Result<Self, CliError> {
        let mut file = lock(&shared.failed);
        file.flush()?;
        let (rows, failed) = (shared.written(), file.rows());
        let written_before = before;
        let elapsed = elapsed.max(Duration::from_millis(1));
        Ok(Self {
            rows,
            failed,
            skipped: shared.skipped.load(Ordering::Relaxed),
            bytes: shared.bytes.load(Ordering::Relaxed),
            ru: Ru::from_micros(shared.charged_micros.load(Ordering::Relaxed)),
            seconds: elapsed.as_secs_f64(),
            rows_per_second: rate(rows, elapsed),
            failed_file: (failed > 0).then(|| file.path().display().to_string()),
            quota: pace.map(|pace| pace.policy),
            held_back_seconds: held_back.as_secs_f64(),
            written_before,
        })
    }

    /// Prints it on stderr.
    pub(super) fn report(&self) {
        let Self {
            rows,
            failed,
            skipped,
            bytes,
            seconds,
            rows_per_second,
            written_before,
            ..
        } = self;
        let rows = counted(*rows, "row");
        let bytes = counted(*bytes, "byte");
        let pace = self.quota.as_ref();
        let pace = pace.map_or_else(String::new, |quota| {
            format!(", the pace of quota '{quota}'")
        });
        let before = match written_before {
            0 => String::new(),
            before => format!(", {} before that", counted(*before, "row")),
        };
        let skipped = match skipped {
            0 => String::new(),
            rows => format!("{rows} skipped that had expired already, "),
        };
        // Without stderr there is nowhere to report an error.
        let _ = writeln!(
            std::io::stderr(),
            "{rows} written, {failed} failed, {skipped}{bytes} in {seconds:.1} s ({rows_per_second} rows/s{pace}){before}",
        );
    }
}

/// Returns the rate per second.
fn rate(count: u64, elapsed: Duration) -> u64 {
    let millis = elapsed.as_millis().max(1);
    (u128::from(count) * 1_000 / millis) as u64
}

/// Describes the progress of an import: rows, their rate, and the quota that limits it.
pub(super) fn describe(rows: u64, elapsed: Duration, client: &Client) -> String {
    let rate = rate(rows, elapsed);
    let pace = client.pace();
    let pace = pace.map_or_else(String::new, |pace| format!(", quota '{}'", pace.policy));
    format!("{}, {rate} rows/s{pace}", counted(rows, "row"))
}

/// Makes a progress bar on stderr, invisible if that is not a terminal. Its length is in bytes if the size is
/// known.
pub(crate) fn bar(size: Option<u64>) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(size, ProgressDrawTarget::hidden());
    }
    let template = match size {
        Some(_) => "{wide_bar} {percent}%  {bytes}/{total_bytes}  {msg}  ETA {eta}",
        None => "{spinner} {bytes}  {msg}  {elapsed}",
    };
    let style = ProgressStyle::with_template(template);
    ProgressBar::with_draw_target(size, ProgressDrawTarget::stderr_with_hz(10))
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
