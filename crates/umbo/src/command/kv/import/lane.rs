//! The writing half of an import: a lane sends its batches one after the other, sends rows again that the
//! server rejected or shed, and records those that failed permanently.

use std::collections::HashSet;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::sync::{OnceCell, watch};
use umbo_api::admin::{DurabilitySetting, NamespaceSpec};
use umbo_api::batch::{WriteRow, WriteRowError};
use umbo_api::{ErrorCode, Outcome};
use umbo_client::{BatchOptions, Client, Error};
use umbo_types::Namespace;

use super::batch::ImportBatch;
use super::failed::Reason;
use super::line;
use super::progress::ImportState;
use super::stall::Again;
use crate::cli_error::CliError;

/// Longest wait before rows are sent again if the server gives no wait.
const UNNAMED_WAIT: Duration = Duration::from_secs(1);

/// State that all lanes share.
#[derive(Debug)]
pub(super) struct ImportTarget {
    pub(super) client: Client,
    pub(super) namespace: Namespace,
    pub(super) durability: Option<DurabilitySetting>,
    /// Whether to create the namespace if it is absent.
    pub(super) is_created: bool,
    pub(super) creation: OnceCell<()>,
    /// How long rejected and shed rows are sent again without any row being written.
    pub(super) patience: Duration,
    pub(super) shared: Arc<ImportState>,
}

/// Rows that failed, by their index in the batch.
type FailedRows = Vec<(usize, Reason)>;

/// Rows that were not written and may succeed if they are sent again.
#[derive(Debug, Default)]
struct RetryRows {
    rows: Vec<(usize, Reason, Again)>,
    /// The longest wait that the server gave.
    wait: Option<Duration>,
}

impl RetryRows {
    /// Returns the rows to send again; the others have failed permanently.
    fn divide(self, goes_on: impl Fn(Again) -> bool, failures: &mut FailedRows) -> Vec<usize> {
        let mut again = Vec::new();
        for (at, reason, why) in self.rows {
            if goes_on(why) {
                again.push(at);
            } else {
                failures.push((at, reason));
            }
        }
        again
    }
}

/// Writes batches until there are no more, or until the import stops.
pub(super) async fn run(target: Arc<ImportTarget>, mut batches: Receiver<ImportBatch>) {
    let mut stopping = target.shared.stopping();
    loop {
        let batch = tokio::select! {
            biased;
            () = is_stopped(&mut stopping) => return,
            batch = batches.recv() => batch,
        };
        let Some(batch) = batch else { return };
        if let Err(failure) = target.write(&batch, &mut stopping).await {
            target.shared.abort(failure);
            target.client.end_waits();
            return;
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
        // All rounds are attempts of one call, with one request id: the server recognises retried requests by
        // it.
        let client = self.client.one_call(None)?;
        let mut pending: Vec<usize> = (0..batch.len()).collect();
        let mut failures: FailedRows = Vec::new();
        for round in 1.. {
            let leftover = match self.send(&client, batch, &pending).await {
                Ok(rows) => {
                    let leftover = sort_out(batch, &pending, rows, round, &mut failures);
                    self.shared.note_answer(leftover.rows.len() < pending.len());
                    leftover
                }
                Err(Error::WaitEnded) => break,
                Err(error) if self.is_hopeless(&error) => return Err(error.into()),
                Err(error) => leftover_of(batch, &pending, &error, round, &mut failures),
            };
            let wait = leftover.wait;
            let goes_on = |why| self.shared.goes_on(why, round, wait, self.patience);
            let again = leftover.divide(goes_on, &mut failures);
            pending = with_later_lines_of_the_same_keys(batch, &again);
            if pending.is_empty() {
                break;
            }
            failures.retain(|(at, _)| !pending.contains(at));
            let wait = wait.unwrap_or_else(|| self.client.jitter(UNNAMED_WAIT));
            tokio::select! {
                biased;
                () = is_stopped(stopping) => break,
                () = tokio::time::sleep(wait) => {}
            }
        }
        // Rows that are still pending were stopped: neither written nor failed.
        let written = batch.len() - failures.len() - pending.len();
        self.shared
            .count(written as u64, batch.bytes_without(&pending));
        for (at, reason) in failures {
            self.shared.fail(batch.line(at), &reason)?;
        }
        Ok(())
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
            // Without stderr there is nowhere to report an error.
            let _ = writeln!(std::io::stderr(), "created namespace '{name}'");
        }
        Ok(())
    }

    /// Returns whether every other batch would fail in the same way.
    fn is_hopeless(&self, error: &Error) -> bool {
        match error {
            Error::Unreachable { .. } => self.shared.written() == 0,
            Error::BadUrl { .. } | Error::BadOption(_) | Error::Tls(_) => true,
            Error::Problem { .. } | Error::Foreign { .. } => {
                matches!(error.status(), Some(401 | 403 | 404 | 405))
            }
            _ => false,
        }
    }
}

/// Divides the rows of an answer into those that failed permanently and those to send again.
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
        let again = again(status, &error);
        let named = error.retry.after_ms.map(Duration::from_millis);
        let reason = Reason {
            line: batch.number(at),
            status,
            type_uri: error.type_uri,
            detail: error.detail,
            attempts,
        };
        match again {
            None => failures.push((at, reason)),
            Some(why) => {
                leftover.wait = leftover.wait.max(named);
                leftover.rows.push((at, reason, why));
            }
        }
    }
    leftover
}

/// Returns why a row is to be sent again; none if it failed permanently.
fn again(status: u16, error: &WriteRowError) -> Option<Again> {
    let is_safe = error.retry.safe && error.outcome == Outcome::NotApplied;
    Again::of_row(status, &error.type_uri).filter(|_| is_safe)
}

/// The same for a request that failed as a whole.
fn leftover_of(
    batch: &ImportBatch,
    sent: &[usize],
    error: &Error,
    attempts: u32,
    failures: &mut FailedRows,
) -> RetryRows {
    let reason = |at: usize| reason_of(batch.number(at), error, attempts);
    let Some(why) = Again::of_request(error) else {
        failures.extend(sent.iter().map(|&at| (at, reason(at))));
        return RetryRows::default();
    };
    RetryRows {
        rows: sent.iter().map(|&at| (at, reason(at), why)).collect(),
        wait: error.retry_after(),
    }
}

/// Adds to the lines that are sent again the later ones with the same keys: if sent alone, the earlier line
/// would overwrite them.
fn with_later_lines_of_the_same_keys(batch: &ImportBatch, again: &[usize]) -> Vec<usize> {
    let key = |at: usize| {
        let mut key = Vec::new();
        let read = line::read(batch.line(at), &mut key);
        read.is_ok().then_some(key)
    };
    let Some(&first) = again.iter().min() else {
        return Vec::new();
    };
    let again: HashSet<usize> = again.iter().copied().collect();
    let mut keys = HashSet::new();
    (first..batch.len())
        .filter(|&at| match key(at) {
            Some(key) if again.contains(&at) => {
                keys.insert(key);
                true
            }
            Some(key) => keys.contains(&key),
            None => again.contains(&at),
        })
        .collect()
}

fn reason_of(line: u64, error: &Error, attempts: u32) -> Reason {
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
    Reason {
        line,
        status,
        type_uri,
        detail,
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
        let batch = batch(&[
            r#"{"pk":"a","v":"1"}"#,
            r#"{"pk":"b","v":"1"}"#,
            r#"{"pk":"\u0062","v":"2"}"#,
            r#"{"pk":"a","v":"2"}"#,
            r#"{"pk64":"Yg","v":"3"}"#,
        ]);
        assert_eq!(with_later_lines_of_the_same_keys(&batch, &[1]), [1, 2, 4]);
        assert_eq!(
            with_later_lines_of_the_same_keys(&batch, &[3, 2]),
            [2, 3, 4]
        );
        assert_eq!(
            batch.body_of(&[0, 3]),
            "{\"pk\":\"a\",\"v\":\"1\"}\n{\"pk\":\"a\",\"v\":\"2\"}\n"
        );
    }

    #[test]
    fn only_what_may_pass_and_was_not_applied_is_sent_again() {
        let batch = batch(&["{}", "{}", "{}", "{}"]);
        let rows = vec![
            row(0, 429, Outcome::NotApplied),
            row(1, 400, Outcome::NotApplied),
            row(2, 503, Outcome::Unknown),
            row(3, 503, Outcome::NotApplied),
        ];
        let mut failures = Vec::new();
        let leftover = sort_out(&batch, &[0, 1, 2, 3], rows, 2, &mut failures);
        assert_eq!(leftover.wait, Some(Duration::from_millis(700)));
        let places = |failures: &FailedRows| failures.iter().map(|(at, _)| *at).collect::<Vec<_>>();
        assert_eq!(places(&failures), [1, 2]);
        let again = leftover.divide(|why| why == Again::Refused, &mut failures);
        assert_eq!((again, places(&failures)), (vec![0], vec![1, 2, 3]));
        assert_eq!((failures[2].1.line, failures[2].1.attempts), (4, 2));
    }

    #[test]
    fn a_request_that_is_rejected_leaves_all_its_rows() {
        let batch = batch(&["{}", "{}"]);
        let mut problem = umbo_api::Problem::new(ErrorCode::QuotaExceeded, "spent");
        problem.retry.after_ms = Some(40);
        let error = Error::Problem {
            problem: Box::new(problem),
        };
        let mut failures = Vec::new();
        let leftover = leftover_of(&batch, &[0, 1], &error, 1, &mut failures);
        assert!(failures.is_empty());
        assert_eq!(leftover.wait, Some(Duration::from_millis(40)));
        assert_eq!(leftover.divide(|_| true, &mut failures), [0, 1]);
        let broken = Error::Transport("reset".to_owned());
        let leftover = leftover_of(&batch, &[1], &broken, 1, &mut failures);
        assert!(leftover.rows.is_empty() && failures.len() == 1);
    }
}
