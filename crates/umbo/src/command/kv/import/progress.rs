//! What the reader and the lanes of an import share: counters, the file of failed rows, the wish
//! to stop; and what a person sees of it: the bar and the summary.

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use tokio::sync::watch;

use super::failed::{FailedFile, Reason};
use crate::failure::Failure;
use crate::output::counted;

/// What all parts of an import share.
#[derive(Debug)]
pub(super) struct Shared {
    written: AtomicU64,
    bytes: AtomicU64,
    failed: Mutex<FailedFile>,
    failure: Mutex<Option<Failure>>,
    stop: watch::Sender<bool>,
}

impl Shared {
    pub(super) fn new(failed: FailedFile) -> Self {
        Self {
            written: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            failed: Mutex::new(failed),
            failure: Mutex::new(None),
            stop: watch::Sender::new(false),
        }
    }

    /// Counts rows that are written, and the bytes of their lines.
    pub(super) fn count(&self, rows: u64, bytes: u64) {
        self.written.fetch_add(rows, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the number of rows written.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Keeps a line that failed.
    pub(super) fn fail(&self, line: &[u8], reason: &Reason) -> Result<(), Failure> {
        self.file().push(line, reason)
    }

    /// Stops everything for a reason; the first one stays.
    pub(super) fn abort(&self, failure: Failure) {
        let mut kept = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get_or_insert(failure);
        drop(kept);
        self.stop();
    }

    /// Has lanes end after the batch they are at.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Says whether everything is to stop.
    pub(super) fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// Returns what changes when everything is to stop.
    pub(super) fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Takes why everything was stopped.
    pub(super) fn take_failure(&self) -> Option<Failure> {
        let mut kept = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        kept.take()
    }

    /// Writes out the file of failed rows and sums up.
    pub(super) fn summary(&self, elapsed: Duration) -> Result<Summary, Failure> {
        let mut file = self.file();
        file.flush()?;
        let (failed, written) = (file.rows(), self.written());
        let elapsed = elapsed.max(Duration::from_millis(1));
        Ok(Summary {
            rows: written,
            failed,
            bytes: self.bytes.load(Ordering::Relaxed),
            seconds: elapsed.as_secs_f64(),
            rows_per_second: rate(written, elapsed),
            failed_file: (failed > 0).then(|| file.path().display().to_string()),
        })
    }

    fn file(&self) -> std::sync::MutexGuard<'_, FailedFile> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How an import went.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    /// Rows written.
    pub(super) rows: u64,
    /// Rows that failed.
    pub(super) failed: u64,
    bytes: u64,
    seconds: f64,
    rows_per_second: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failed_file: Option<String>,
}

impl Summary {
    /// Says it on stderr.
    pub(super) fn report(&self) {
        let Self {
            rows,
            failed,
            bytes,
            seconds,
            rows_per_second,
            ..
        } = self;
        let rows = counted(*rows, "row");
        let bytes = counted(*bytes, "byte");
        // Where stderr is gone there is nobody left to tell.
        let _ = writeln!(
            std::io::stderr(),
            "{rows} written, {failed} failed, {bytes} in {seconds:.1} s ({rows_per_second} rows/s)",
        );
    }
}

/// Returns how many a second.
pub(super) fn rate(count: u64, elapsed: Duration) -> u64 {
    let millis = elapsed.as_millis().max(1);
    (u128::from(count) * 1_000 / millis) as u64
}

/// Makes a progress bar on stderr, invisible where that is no terminal. Its length is in bytes
/// where the size is known.
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
