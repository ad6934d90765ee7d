//! State that the reader and the lanes of an import share: counters, the file of failed rows, the request to
//! stop; and its display: the progress bar and the summary.

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use tokio::sync::watch;
use umbo_api::ru::Ru;
use umbo_client::{Client, Pace};
use umbo_types::Namespace;

use super::failed::{FailedFile, Reason};
use super::stall::{Again, Stall};
use crate::cli_error::CliError;
use crate::output::counted;

/// State that all parts of an import share.
#[derive(Debug)]
pub(super) struct ImportState {
    namespace: Namespace,
    written: AtomicU64,
    skipped: AtomicU64,
    bytes: AtomicU64,
    charged_micros: AtomicU64,
    failed: Arc<Mutex<FailedFile>>,
    stall: Mutex<Stall>,
    failure: Mutex<Option<CliError>>,
    stop: watch::Sender<bool>,
}

impl ImportState {
    /// Begins to write to a namespace; several may share a file of failed rows.
    pub(super) fn new(namespace: Namespace, failed: Arc<Mutex<FailedFile>>) -> Self {
        Self {
            namespace,
            written: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            charged_micros: AtomicU64::new(0),
            failed,
            stall: Mutex::default(),
            failure: Mutex::new(None),
            stop: watch::Sender::new(false),
        }
    }

    /// Counts rows that are written or skipped, and the bytes of their lines.
    pub(super) fn count(&self, rows: u64, bytes: u64) {
        self.written.fetch_add(rows, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
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
    pub(super) fn fail(&self, line: &[u8], reason: &Reason) -> Result<(), CliError> {
        lock(&self.failed).push(self.namespace.as_str(), line, reason)
    }

    /// Records an answer, and whether it has rows that were written.
    pub(super) fn note_answer(&self, has_progress: bool) {
        if has_progress {
            lock(&self.stall).end();
        }
    }

    /// Returns whether rows that were not written are to be sent once more ([`Stall::goes_on`]).
    pub(super) fn goes_on(
        &self,
        again: Again,
        round: u32,
        wait: Option<Duration>,
        patience: Duration,
    ) -> bool {
        lock(&self.stall).goes_on(again, round, wait, patience, Instant::now())
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
}

impl ImportSummary {
    /// Writes out the file of failed rows and sums up.
    pub(super) fn new(
        shared: &ImportState,
        pace: Option<Pace>,
        elapsed: Duration,
    ) -> Result<Self, CliError> {
        let mut file = lock(&shared.failed);
        file.flush()?;
        let (rows, failed) = (shared.written(), file.rows());
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
            ..
        } = self;
        let rows = counted(*rows, "row");
        let bytes = counted(*bytes, "byte");
        let pace = self.quota.as_ref();
        let pace = pace.map_or_else(String::new, |quota| {
            format!(", the pace of quota '{quota}'")
        });
        let skipped = match skipped {
            0 => String::new(),
            rows => format!("{rows} skipped that had expired already, "),
        };
        // Without stderr there is nowhere to report an error.
        let _ = writeln!(
            std::io::stderr(),
            "{rows} written, {failed} failed, {skipped}{bytes} in {seconds:.1} s ({rows_per_second} rows/s{pace})",
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
