//! The lane of an import: the rows of a pipe or of a small file, written by one batch after the other, as they come.
//!
//! A batch takes the rows that have arrived, so each row is visible soon after it was read. No batch has two rows with
//! one key. The next batch is sent once every row of this one is written or has failed, so the later of two lines with
//! one key wins. Each batch has an idempotency key: it is not applied twice if its answer was lost.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use indicatif::ProgressBar;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, timeout_at};
use umbo_api::admin::DurabilitySetting;
use umbo_api::batch::{BatchEnd, WriteRowError};
use umbo_api::{ErrorCode, Outcome};
use umbo_client::{BatchOptions, BatchResult, Client, DeadLetterReason, Error, PutOptions};
use umbo_rows::Expiry;
use umbo_types::{Key, Namespace};

use super::failed::{FailedFile, LineFailure};
use super::lines::{ImportLine, LongValue, ReadLine};
use super::summary::Totals;
use crate::cli_error::CliError;
use crate::command::kv::patience::{Patience, UNNAMED_WAIT, is_temporary, is_temporary_problem};
use crate::connection::create_namespace;
use crate::output::{self, counted};

/// Most rows of a batch: a server answers it within some milliseconds.
pub(super) const BATCH_ROWS_MAX: usize = 2_000;
/// Most bytes of a batch, unless it is a single row.
const BATCH_LEN_MAX: usize = 1 << 20;
/// How long a batch waits for more rows after its first one, so that a file which was just opened is not sent row by
/// row.
const GATHER_TIME: Duration = Duration::from_millis(5);
/// How long the server keeps the idempotency key of a batch: longer than the client repeats the batch.
const KEY_TTL: Duration = Duration::from_mins(2);

/// Writes rows.
pub(super) struct ImportLane {
    pub(super) client: Client,
    pub(super) namespace: Namespace,
    pub(super) durability: Option<DurabilitySetting>,
    /// Most rows of a batch.
    pub(super) batch_rows: usize,
    /// Whether to create the namespace if it is absent.
    pub(super) is_created: bool,
    /// Whether batches have idempotency keys. A namespace with fast writes takes none; there a batch that may have been
    /// written is written again.
    pub(super) has_keys: bool,
    pub(super) patience: Patience,
    /// Whether the rows can be read again. If so, an absent server ends the import, and no row is given up for it.
    pub(super) is_file: bool,
    pub(super) failed: FailedFile,
    pub(super) totals: Totals,
    pub(super) bar: ProgressBar,
    /// Bytes of the source that were read.
    pub(super) position: Arc<AtomicU64>,
    /// A row that was not taken into the last batch.
    pub(super) next: Option<ImportLine>,
}

/// A row to send again, and why.
type AgainRow = (ImportLine, LineFailure);

/// Returns whether the namespace refuses rows because it has fast writes.
fn needs_exact_writes(result: &BatchResult) -> bool {
    let refused = ErrorCode::NeedsExactWrites.type_uri();
    let mut errors = result.rows.iter().filter_map(|row| row.error.as_ref());
    errors.any(|error| error.type_uri == refused)
}

impl ImportLane {
    /// Writes rows until there are no more.
    pub(super) async fn run(&mut self, mut lines: Receiver<ReadLine>) -> Result<(), CliError> {
        loop {
            let batch = self.next_batch(&mut lines).await?;
            if batch.is_empty() {
                return self.failed.flush();
            }
            self.write(batch).await?;
            self.bar.set_position(self.position.load(Ordering::Relaxed));
            self.bar.set_message(counted(self.totals.rows, "row"));
        }
    }

    /// Returns the rows that have arrived, within the bounds of one batch. Empty at the end of the input.
    async fn next_batch(
        &mut self,
        lines: &mut Receiver<ReadLine>,
    ) -> Result<Vec<ImportLine>, CliError> {
        let (mut batch, mut keys, mut len) = (Vec::new(), HashSet::<Key>::new(), 0);
        let mut gathers_until = Instant::now();
        loop {
            let read = match self.next.take() {
                Some(line) => Some(Ok(line)),
                None if batch.is_empty() => lines.recv().await,
                None => match lines.try_recv() {
                    Ok(line) => Some(line),
                    Err(_) => timeout_at(gathers_until, lines.recv()).await.ok().flatten(),
                },
            };
            if batch.is_empty() {
                gathers_until = Instant::now() + GATHER_TIME;
            }
            let line = match read {
                None => return Ok(batch),
                Some(Ok(mut line)) => {
                    line.waiting = None;
                    line
                }
                Some(Err(refused)) => {
                    let failure = LineFailure::malformed(refused.number, refused.detail);
                    self.fail(&refused.text, &failure)?;
                    continue;
                }
            };
            len += line.text.len() + 1;
            let is_full = batch.len() >= self.batch_rows || len > BATCH_LEN_MAX;
            if !batch.is_empty() && is_full || !keys.insert(line.key.clone()) {
                self.next = Some(line);
                return Ok(batch);
            }
            batch.push(line);
        }
    }

    async fn write(&mut self, mut pending: Vec<ImportLine>) -> Result<(), CliError> {
        // All rounds are attempts of one call, with one request id.
        let client = self.client.one_call(None)?;
        for attempts in 1.. {
            let sent = pending.len();
            let (again, wait) = match self.send(&client, &pending).await {
                Ok(result) if self.has_keys && needs_exact_writes(&result) => {
                    self.has_keys = false;
                    continue;
                }
                Ok(result) => self.sort_out(pending, result, attempts)?,
                Err(error) if self.is_hopeless(&error, attempts) => return Err(error.into()),
                Err(error) => self.leave(pending, &error, attempts)?,
            };
            if again.len() < sent {
                self.patience.progress();
            }
            if again.is_empty() {
                break;
            }
            if !self
                .patience
                .goes_on(attempts, wait, Instant::now().into_std())
            {
                for (line, failure) in again {
                    self.fail(&line.text, &failure)?;
                }
                break;
            }
            pending = again.into_iter().map(|(line, _)| line).collect();
            let unnamed = || self.client.jitter(UNNAMED_WAIT);
            tokio::time::sleep(wait.unwrap_or_else(unnamed)).await;
        }
        Ok(())
    }

    /// Sends rows; creates the namespace if it is absent.
    async fn send(&self, client: &Client, lines: &[ImportLine]) -> Result<BatchResult, Error> {
        let name = self.namespace.as_str();
        match self.send_once(client, lines).await {
            Err(error) if error.code() == Some(ErrorCode::NamespaceNotFound) && self.is_created => {
                create_namespace(&self.client, name, |note| {
                    self.bar.suspend(|| output::print_note(note));
                })
                .await?;
                self.send_once(client, lines).await
            }
            sent => sent,
        }
    }

    /// Sends rows: a batch, or one row with a long value.
    async fn send_once(&self, client: &Client, lines: &[ImportLine]) -> Result<BatchResult, Error> {
        if let [line] = lines
            && let Some(long) = &line.long
        {
            return self.put(client, &line.key, long).await;
        }
        let mut body = Vec::with_capacity(lines.iter().map(|line| line.text.len() + 1).sum());
        for line in lines {
            body.extend_from_slice(&line.text);
            body.push(b'\n');
        }
        let options = BatchOptions {
            is_minimal: true,
            durability: self.durability,
            is_repeatable: !self.has_keys,
            idempotency_ttl: self.has_keys.then_some(KEY_TTL),
            ..BatchOptions::default()
        };
        let name = self.namespace.as_str();
        let result = client.batch_write(name, Bytes::from(body), options).await?;
        let is_row = |i: u32| (i as usize) < lines.len();
        if result.end.rows == lines.len() as u64 && result.rows.iter().all(|row| is_row(row.i)) {
            return Ok(result);
        }
        Err(Error::Malformed(format!(
            "it answers for {} rows instead of {}",
            result.end.rows,
            lines.len()
        )))
    }

    /// Sends a row whose value is too long for a batch. Returns the result as for a batch of one row.
    async fn put(
        &self,
        client: &Client,
        key: &Key,
        long: &LongValue,
    ) -> Result<BatchResult, Error> {
        let text = |field: &Bytes| String::from_utf8_lossy(field).into_owned();
        let field = |field: &Bytes| Some(text(field)).filter(|text| !text.is_empty());
        let (ttl, expires_at) = match long.expiry {
            Some(Expiry::After(ttl)) => (Some(ttl), None),
            Some(Expiry::At(at)) => (None, Some(at.as_millis())),
            None => (None, None),
        };
        let options = PutOptions {
            ttl,
            expires_at,
            content_type: field(&long.value.content_type),
            content_encoding: field(&long.value.content_encoding),
            durability: self.durability,
            ..PutOptions::default()
        };
        let (partition, sort) = (key.partition.as_bytes(), key.sort.as_bytes());
        let (name, bytes) = (self.namespace.as_str(), long.value.bytes.clone());
        client.put(name, partition, sort, bytes, &options).await?;
        let (rows, end) = (Vec::new(), BatchEnd::default());
        let end = BatchEnd { rows: 1, ..end };
        Ok(BatchResult { rows, end })
    }

    /// Counts the written rows, and records the rows that failed for good. Returns the rows to send again, and the wait
    /// before.
    fn sort_out(
        &mut self,
        lines: Vec<ImportLine>,
        result: BatchResult,
        attempts: u32,
    ) -> Result<(Vec<AgainRow>, Option<Duration>), CliError> {
        self.totals.charged_micros += result.end.ru.as_micros();
        self.totals.skipped += result.end.skipped;
        let mut errors: Vec<Option<(u16, WriteRowError)>> = lines.iter().map(|_| None).collect();
        for row in result.rows {
            errors[row.i as usize] = row.error.map(|error| (row.status, error));
        }
        let (mut again, mut wait, mut written) = (Vec::new(), None, 0);
        for (line, error) in lines.into_iter().zip(errors) {
            let Some((status, error)) = error else {
                written += 1;
                self.totals.bytes += line.text.len() as u64 + 1;
                continue;
            };
            let may_pass = is_temporary_problem(status, &error.type_uri)
                && (error.outcome == Outcome::NotApplied || !line.has_condition);
            let failure = LineFailure {
                line: line.number,
                status,
                type_uri: error.type_uri,
                detail: error.detail,
                given_up: DeadLetterReason::Refused,
                attempts,
            };
            if may_pass {
                wait = wait.max(error.retry.after_ms.map(Duration::from_millis));
                again.push((line, failure));
            } else {
                self.fail(&line.text, &failure)?;
            }
        }
        self.totals.rows += written - result.end.skipped.min(written);
        Ok((again, wait))
    }

    /// Records the rows of a failed request that cannot be repeated. Returns the rows to send again, and the wait
    /// before.
    fn leave(
        &mut self,
        lines: Vec<ImportLine>,
        error: &Error,
        attempts: u32,
    ) -> Result<(Vec<AgainRow>, Option<Duration>), CliError> {
        let is_unknown = error.outcome() != Outcome::NotApplied;
        let mut again = Vec::new();
        for line in lines {
            let failure = LineFailure::of(line.number, error, attempts);
            if is_temporary(error) && !(is_unknown && line.has_condition) {
                again.push((line, failure));
            } else {
                self.fail(&line.text, &failure)?;
            }
        }
        Ok((again, error.retry_after()))
    }

    fn fail(&mut self, line: &[u8], failure: &LineFailure) -> Result<(), CliError> {
        self.totals.failed += 1;
        self.failed.push(self.namespace.as_str(), line, failure)
    }

    /// Returns whether every other batch would fail in the same way.
    fn is_hopeless(&mut self, error: &Error, attempts: u32) -> bool {
        match error {
            Error::BadUrl { .. } | Error::BadOption(_) | Error::Tls(_) | Error::WaitEnded => true,
            Error::Problem { .. } | Error::Foreign { .. } => {
                matches!(error.status(), Some(401 | 403 | 404 | 405))
            }
            Error::GivenUp { .. } => false,
            _ => {
                let goes_on = self
                    .patience
                    .goes_on(attempts, None, Instant::now().into_std());
                self.is_file && is_temporary(error) && !goes_on
            }
        }
    }
}
