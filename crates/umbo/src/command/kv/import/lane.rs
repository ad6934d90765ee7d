//! The writing half of an import: a lane sends its batches one after the other, sends rows again that may
//! succeed later, and records those that failed permanently. Rows whose shard is away are held back ([`held`]),
//! so that the lane goes on with the others.
//!
//! [`held`]: super::held

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::sync::{OnceCell, watch};
use umbo_api::admin::{DurabilitySetting, NamespaceSpec};
use umbo_api::batch::{WriteLine, WriteRow, WriteRowError};
use umbo_api::{ErrorCode, Outcome};
use umbo_client::{BatchOptions, Client, DeadLetterReason, Error};
use umbo_types::Namespace;

use super::batch::ImportBatch;
use super::failed::LineFailure;
use super::held::REST;
use super::line;
use super::progress::ImportState;
use crate::cli_error::CliError;
use crate::command::kv::patience::{is_temporary, is_temporary_problem};

/// Longest wait before rows are sent again if the server gives no wait.
pub(super) const UNNAMED_WAIT: Duration = Duration::from_secs(1);

/// State that all lanes share.
#[derive(Debug)]
pub(super) struct ImportTarget {
    pub(super) client: Client,
    pub(super) namespace: Namespace,
    pub(super) durability: Option<DurabilitySetting>,
    /// Whether to create the namespace if it is absent.
    pub(super) is_created: bool,
    pub(super) creation: OnceCell<()>,
    /// Whether the import can be continued: then rows that it has not sent when it stops are kept.
    pub(super) is_resumable: bool,
    pub(super) shared: Arc<ImportState>,
}

/// Rows that failed, by their index in the batch.
type FailedRows = Vec<(usize, LineFailure)>;

/// Rows that were not written and may succeed later.
#[derive(Debug, Default)]
pub(super) struct RetryRows {
    /// Rows to send again.
    again: FailedRows,
    /// Rows whose shard is away.
    away: Vec<(usize, LineFailure, u16)>,
    /// The longest wait that the server gave for those to send again.
    wait: Option<Duration>,
}

/// Writes batches until there are no more, or until the import stops.
pub(super) async fn run(target: Arc<ImportTarget>, mut batches: Receiver<ImportBatch>) {
    let mut stopping = target.shared.stopping();
    loop {
        let batch = tokio::select! {
            biased;
            () = is_stopped(&mut stopping) => break,
            batch = batches.recv() => batch,
        };
        let Some(batch) = batch else { return };
        if let Err(failure) = target.write(&batch, &mut stopping).await {
            target.shared.abort(failure);
            target.client.end_waits();
        }
    }
    while target.is_resumable
        && let Some(batch) = batches.recv().await
    {
        if let Err(failure) = target.keep(&batch, 0..batch.len()) {
            target.shared.abort(failure);
        }
    }
}

async fn is_stopped(stopping: &mut watch::Receiver<bool>) {
    if stopping.wait_for(|is_stopped| *is_stopped).await.is_err() {
        // The sender is gone, so the import cannot be stopped any more.
        std::future::pending::<()>().await;
    }
}

impl ImportTarget {
    /// Makes the lanes end after their current request.
    pub(super) fn stop(&self) {
        self.shared.stop();
        self.client.end_waits();
    }

    async fn write(
        &self,
        batch: &ImportBatch,
        stopping: &mut watch::Receiver<bool>,
    ) -> Result<(), CliError> {
        self.wait_for_room(stopping).await;
        // All rounds are attempts of one call, with one request id: the server recognises retried requests by
        // it.
        let client = self.client.one_call(None)?;
        let mut pending = self.hold_waiting(batch)?;
        let mut held: Vec<usize> = missing(batch.len(), &pending);
        let mut failures: FailedRows = Vec::new();
        let mut is_progress = false;
        for round in 1.. {
            if pending.is_empty() {
                break;
            }
            let leftover = match self.send(&client, batch, &pending).await {
                Ok(rows) => sort_out(batch, &pending, rows, round, &mut failures),
                Err(Error::WaitEnded) => break,
                Err(error) => {
                    if self.is_hopeless(&error, round) {
                        self.keep(batch, pending)?;
                        return Err(error.into());
                    }
                    leftover_of(batch, &pending, &error, round, &mut failures)
                }
            };
            if leftover.again.len() + leftover.away.len() < pending.len() {
                is_progress = true;
                self.shared.progress();
            }
            held.extend(self.hold_away(batch, &leftover, &mut failures)?);
            pending = self.divide(batch, leftover.again, round, leftover.wait, &mut failures);
            if pending.is_empty() {
                break;
            }
            let wait = leftover.wait;
            let wait = wait.unwrap_or_else(|| self.client.jitter(UNNAMED_WAIT));
            tokio::select! {
                biased;
                () = is_stopped(stopping) => break,
                () = tokio::time::sleep(wait) => {}
            }
        }
        // Rows that are still pending were stopped: neither written nor failed.
        let unwritten: Vec<usize> = failures.iter().map(|(at, _)| *at).collect();
        let others = [&pending[..], &unwritten[..], &held[..]].concat();
        let (written, bytes) = (batch.len() - others.len(), batch.bytes_without(&others));
        self.shared.count(written as u64, bytes);
        self.keep(batch, pending)?;
        for (at, reason) in failures {
            self.shared.fail(batch.line(at), &reason)?;
        }
        if !held.is_empty() && !is_progress {
            self.wait_for_progress(stopping).await;
        }
        Ok(())
    }

    /// Returns the rows to send again. The others have failed, if nothing was written for too long.
    fn divide(
        &self,
        batch: &ImportBatch,
        again: FailedRows,
        round: u32,
        wait: Option<Duration>,
        failures: &mut FailedRows,
    ) -> Vec<usize> {
        if again.is_empty() {
            return Vec::new();
        }
        if !self.shared.goes_on(round, wait) {
            failures.extend(again);
            return Vec::new();
        }
        let marked = again.into_iter().map(|(at, _)| (at, ())).collect();
        let again = with_later_lines_of_the_same_keys(batch, &marked);
        let again: Vec<usize> = again.into_iter().map(|(at, ())| at).collect();
        failures.retain(|(at, _)| !again.contains(at));
        again
    }

    /// Holds the rows of a batch whose partitions wait for a shard; returns the others.
    fn hold_waiting(&self, batch: &ImportBatch) -> Result<Vec<usize>, CliError> {
        let Some(mut held) = self.shared.held() else {
            return Ok((0..batch.len()).collect());
        };
        let (mut key, mut others) = (Vec::new(), Vec::new());
        for at in 0..batch.len() {
            match held.shard_of(batch.line(at), &mut key) {
                Some(shard) => held.hold(shard, (batch.number(at), batch.line(at)), None)?,
                None => others.push(at),
            }
        }
        Ok(others)
    }

    /// Holds rows whose shards are away, with the later lines of their keys; returns them.
    fn hold_away(
        &self,
        batch: &ImportBatch,
        leftover: &RetryRows,
        failures: &mut FailedRows,
    ) -> Result<Vec<usize>, CliError> {
        if leftover.away.is_empty() {
            return Ok(Vec::new());
        }
        // Where nothing else is written, patience begins to run.
        self.shared.goes_on(1, None);
        let away = leftover.away.iter();
        let reasons: HashMap<u16, &LineFailure> =
            away.clone().map(|(_, why, on)| (*on, why)).collect();
        let marked = away.map(|(at, _, shard)| (*at, *shard)).collect();
        let rows = with_later_lines_of_the_same_keys(batch, &marked);
        let mut held = self.shared.hold();
        for &(at, shard) in &rows {
            let row = (batch.number(at), batch.line(at));
            held.hold(shard.into(), row, reasons.get(&shard).copied())?;
        }
        let rows: Vec<usize> = rows.into_iter().map(|(at, _)| at).collect();
        failures.retain(|(at, _)| !rows.contains(at));
        Ok(rows)
    }

    /// Keeps rows that are not sent because the import stops, if it can be continued.
    fn keep(
        &self,
        batch: &ImportBatch,
        rows: impl IntoIterator<Item = usize>,
    ) -> Result<(), CliError> {
        let mut rows = rows.into_iter().peekable();
        if !self.is_resumable || rows.peek().is_none() {
            return Ok(());
        }
        let (mut held, mut key) = (self.shared.hold(), Vec::new());
        for at in rows {
            let line = batch.line(at);
            let shard = held.shard_of(line, &mut key).unwrap_or(REST);
            held.hold(shard, (batch.number(at), line), None)?;
        }
        Ok(())
    }

    /// Waits until more rows may be held, as long as patience lasts.
    async fn wait_for_room(&self, stopping: &mut watch::Receiver<bool>) {
        let is_full = || self.shared.held().is_some_and(|held| held.is_full());
        while is_full() && self.shared.goes_on(u32::MAX, None) && !self.shared.is_stopped() {
            self.wait_for_progress(stopping).await;
        }
    }

    /// Waits until any row is written, a second at most: where no shard takes rows, they are not all held.
    async fn wait_for_progress(&self, stopping: &mut watch::Receiver<bool>) {
        tokio::select! {
            biased;
            () = is_stopped(stopping) => {}
            () = self.shared.progressed() => {}
            () = tokio::time::sleep(UNNAMED_WAIT) => {}
        }
    }

    /// Sends a row on trial whose shard was away. Returns how it failed, if it did, and what it is to wait for.
    pub(super) async fn try_row(
        &self,
        number: u64,
        row: &[u8],
        attempts: u32,
    ) -> Result<(FailedRows, RetryRows), Error> {
        let batch = ImportBatch::of_line(row, number);
        let mut failures = Vec::new();
        let client = self.client.one_call(None)?;
        let retry = match self.send(&client, &batch, &[0]).await {
            Ok(rows) => sort_out(&batch, &[0], rows, attempts, &mut failures),
            Err(error) => leftover_of(&batch, &[0], &error, attempts, &mut failures),
        };
        Ok((failures, retry))
    }

    /// Sends lines; creates the namespace if it is absent.
    async fn send(
        &self,
        client: &Client,
        batch: &ImportBatch,
        lines: &[usize],
    ) -> Result<Vec<WriteRow>, Error> {
        let options = BatchOptions {
            is_minimal: true,
            is_repeatable: true,
            durability: self.durability,
            ..BatchOptions::default()
        };
        let send = || {
            let body = batch.body_of(lines);
            client.batch_write(self.namespace.as_str(), body, options)
        };
        let is_absent =
            |error: &Error| error.code() == Some(ErrorCode::NamespaceNotFound) && self.is_created;
        let result = match send().await {
            Err(error) if is_absent(&error) => {
                self.creation.get_or_try_init(|| self.create()).await?;
                send().await?
            }
            result => result?,
        };
        self.shared.charge(result.end.ru);
        self.shared.skip(result.end.skipped);
        let is_whole = result.end.rows == lines.len() as u64
            && result.rows.iter().all(|row| (row.i as usize) < lines.len());
        if is_whole {
            return Ok(result.rows);
        }
        Err(Error::Malformed(format!(
            "it answers for {} rows instead of {}",
            result.end.rows,
            lines.len()
        )))
    }

    async fn create(&self) -> Result<(), Error> {
        let name = self.namespace.as_str();
        let spec = NamespaceSpec::default();
        let (_, is_new) = self.client.put_namespace(name, &spec).await?;
        if is_new {
            self.shared.note(format!("created namespace '{name}'"));
        }
        Ok(())
    }

    /// Returns whether every other batch would fail in the same way: it is not allowed, or there was no server
    /// for longer than patience lasts.
    fn is_hopeless(&self, error: &Error, round: u32) -> bool {
        match error {
            Error::BadUrl { .. } | Error::BadOption(_) | Error::Tls(_) => true,
            Error::Problem { .. } | Error::Foreign { .. }
                if matches!(error.status(), Some(401 | 403 | 404 | 405)) =>
            {
                true
            }
            Error::Problem { .. } | Error::GivenUp { .. } => false,
            _ => self.is_resumable && is_temporary(error) && !self.shared.goes_on(round, None),
        }
    }
}

/// Returns the indices below a number that are not in an ascending list.
fn missing(len: usize, present: &[usize]) -> Vec<usize> {
    (0..len)
        .filter(|at| present.binary_search(at).is_err())
        .collect()
}

/// Divides the rows of an answer into those that failed permanently and those that may succeed later.
fn sort_out(
    batch: &ImportBatch,
    sent: &[usize],
    rows: Vec<WriteRow>,
    attempts: u32,
    failures: &mut FailedRows,
) -> RetryRows {
    let mut leftover = RetryRows::default();
    for row in rows {
        let (at, status) = (sent[row.i as usize], row.status);
        let Some(error) = row.error else { continue };
        let is_retried = is_retried(batch.line(at), status, &error);
        let named = error.retry.after_ms.map(Duration::from_millis);
        let reason = LineFailure {
            line: batch.number(at),
            status,
            type_uri: error.type_uri,
            detail: error.detail,
            given_up: DeadLetterReason::Refused,
            attempts,
        };
        match error.shard {
            _ if !is_retried => failures.push((at, reason)),
            // A quota is a matter of pace, and its wait is worth keeping to.
            Some(shard) if !matches!(status, 419 | 429) => leftover.away.push((at, reason, shard)),
            _ => {
                leftover.wait = leftover.wait.max(named);
                leftover.again.push((at, reason));
            }
        }
    }
    leftover
}

/// Returns whether a row is to be sent again. Whether it was written may be unknown: to write it twice comes to
/// the same, unless it has a condition.
fn is_retried(line: &[u8], status: u16, error: &WriteRowError) -> bool {
    is_temporary_problem(status, &error.type_uri)
        && (error.outcome == Outcome::NotApplied || !has_condition(line))
}

fn has_condition(line: &[u8]) -> bool {
    let line = serde_json::from_slice::<WriteLine<'_>>(line);
    line.is_ok_and(|line| line.if_match.is_some() || line.if_none_match.is_some())
}

/// The same for a request that failed as a whole.
fn leftover_of(
    batch: &ImportBatch,
    sent: &[usize],
    error: &Error,
    attempts: u32,
    failures: &mut FailedRows,
) -> RetryRows {
    let is_unknown = error.outcome() != Outcome::NotApplied;
    let mut leftover = RetryRows {
        wait: error.retry_after(),
        ..RetryRows::default()
    };
    let is_temporary = is_temporary(error);
    for &at in sent {
        let row = (at, reason_of(batch.number(at), error, attempts));
        if is_temporary && !(is_unknown && has_condition(batch.line(at))) {
            leftover.again.push(row);
        } else {
            failures.push(row);
        }
    }
    leftover
}

impl RetryRows {
    /// Returns why a row that was sent alone is to wait, and for how long; none if it is not.
    pub(super) fn of_single(mut self) -> Option<(LineFailure, Option<Duration>)> {
        let again = self.again.pop().map(|(_, reason)| reason);
        let away = self.away.pop().map(|(_, reason, _)| reason);
        again.or(away).map(|reason| (reason, self.wait))
    }
}

/// Adds to marked lines the later ones with the same keys, with the same mark: if the earlier line is sent alone
/// later, it would overwrite them. The lines stay in their order.
fn with_later_lines_of_the_same_keys<T: Copy>(
    batch: &ImportBatch,
    marked: &HashMap<usize, T>,
) -> Vec<(usize, T)> {
    let key = |at: usize| {
        let mut key = Vec::new();
        let read = line::read(batch.line(at), &mut key);
        read.is_ok().then_some(key)
    };
    let Some(&first) = marked.keys().min() else {
        return Vec::new();
    };
    let mut keys = HashMap::new();
    (first..batch.len())
        .filter_map(|at| {
            let own = marked.get(&at).copied();
            let Some(key) = key(at) else {
                return own.map(|mark| (at, mark));
            };
            let mark = keys.get(&key).copied().or(own)?;
            keys.insert(key, mark);
            Some((at, mark))
        })
        .collect()
}

fn reason_of(line: u64, error: &Error, attempts: u32) -> LineFailure {
    let (type_uri, detail) = match error.problem() {
        Some(problem) => (problem.type_uri.clone(), problem.detail.clone()),
        None => (String::new(), error.to_string()),
    };
    // If the client gave up itself, the reason is the last answer of the server.
    let (status, type_uri) = match error {
        Error::GivenUp { status: 503, .. } => (503, type_uri),
        Error::GivenUp { status, .. } => (*status, ErrorCode::QuotaExceeded.type_uri()),
        _ => (error.status().unwrap_or_default(), type_uri),
    };
    LineFailure {
        line,
        status,
        type_uri,
        detail,
        given_up: DeadLetterReason::of(error),
        attempts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::kv::import::batch::{BatchLimits, Builder};
    use umbo_api::Retry;

    fn batch(lines: &[&str]) -> ImportBatch {
        let limits = BatchLimits {
            rows: 9,
            bytes: 999,
        };
        let mut builder = Builder::default();
        for (number, line) in (1..).zip(lines) {
            builder.push(line.as_bytes(), number, limits);
        }
        builder.take(None)
    }

    fn row(i: u32, status: u16, outcome: Outcome) -> WriteRow {
        WriteRow {
            i,
            skipped: None,
            status,
            version: None,
            number: None,
            replayed: false,
            error: Some(WriteRowError {
                type_uri: String::new(),
                detail: "why".to_owned(),
                shard: None,
                etag: None,
                outcome,
                retry: Retry {
                    safe: true,
                    after_ms: Some(700),
                },
            }),
        }
    }

    #[test]
    fn a_row_sent_again_takes_the_later_lines_of_its_key_along() {
        let later = |batch, marked: &[usize]| -> Vec<usize> {
            let marked = marked.iter().map(|&at| (at, ())).collect();
            let lines = with_later_lines_of_the_same_keys(batch, &marked);
            lines.into_iter().map(|(at, ())| at).collect()
        };
        let batch = batch(&[
            r#"{"pk":"a","v":"1"}"#,
            r#"{"pk":"b","v":"1"}"#,
            r#"{"pk":"\u0062","v":"2"}"#,
            r#"{"pk":"a","v":"2"}"#,
            r#"{"pk64":"Yg","v":"3"}"#,
        ]);
        assert_eq!(later(&batch, &[1]), [1, 2, 4]);
        assert_eq!(later(&batch, &[3, 2]), [2, 3, 4]);
        assert_eq!(
            batch.body_of(&[0, 3]),
            "{\"pk\":\"a\",\"v\":\"1\"}\n{\"pk\":\"a\",\"v\":\"2\"}\n"
        );
    }

    #[test]
    fn only_what_may_pass_is_sent_again_and_only_what_is_away_is_held() {
        let condition = r#"{"pk":"a","v":"","if_none_match":"*"}"#;
        let batch = batch(&["{}", "{}", "{}", "{}", condition]);
        let mut rows = vec![
            row(0, 429, Outcome::NotApplied),
            row(1, 400, Outcome::NotApplied),
            row(2, 503, Outcome::Unknown),
            row(3, 503, Outcome::NotApplied),
            row(4, 503, Outcome::Unknown),
        ];
        if let Some(error) = &mut rows[3].error {
            error.shard = Some(7);
        }
        let mut failures = Vec::new();
        let leftover = sort_out(&batch, &[0, 1, 2, 3, 4], rows, 2, &mut failures);
        assert_eq!(leftover.wait, Some(Duration::from_millis(700)));
        let places = |failures: &FailedRows| failures.iter().map(|(at, _)| *at).collect::<Vec<_>>();
        assert_eq!(places(&leftover.again), [0, 2]);
        assert_eq!(places(&failures), [1, 4]);
        let (at, reason, shard) = &leftover.away[0];
        assert_eq!((*at, *shard, reason.line, reason.attempts), (3, 7, 4, 2));
    }

    #[test]
    fn a_request_that_fails_as_a_whole_leaves_all_its_rows() {
        let condition = r#"{"pk":"a","v":"","if_match":7}"#;
        let batch = batch(&["{}", condition]);
        let mut problem = umbo_api::Problem::new(ErrorCode::QuotaExceeded, "spent");
        problem.retry.after_ms = Some(40);
        let error = Error::Problem {
            problem: Box::new(problem),
        };
        let mut failures = Vec::new();
        let leftover = leftover_of(&batch, &[0, 1], &error, 1, &mut failures);
        assert!(failures.is_empty() && leftover.again.len() == 2);
        assert_eq!(leftover.wait, Some(Duration::from_millis(40)));
        let broken = Error::Transport("reset".to_owned());
        let leftover = leftover_of(&batch, &[0, 1], &broken, 1, &mut failures);
        assert_eq!((leftover.again[0].0, failures[0].0), (0, 1));
    }
}
