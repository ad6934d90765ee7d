//! The writing half of an import: a lane sends its batches one after the other, repeats rows that
//! the server shed, and keeps those that failed for good.

use std::collections::HashSet;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::Receiver;
use tokio::sync::{OnceCell, watch};
use umbo_api::admin::{DurabilitySetting, NamespaceSettings};
use umbo_api::batch::{WriteRow, WriteRowError};
use umbo_api::{ErrorCode, Outcome};
use umbo_client::{BatchOptions, Client, Error};
use umbo_types::Namespace;

use super::batch::Batch;
use super::failed::Reason;
use super::line;
use super::progress::Shared;
use crate::failure::Failure;

/// Most times a row is sent that the server asks to send again.
const ROUNDS_MAX: u32 = 5;
/// Wait before a row is sent again, where the server names none; grows with each round.
const ROUND_WAIT: Duration = Duration::from_millis(100);

/// What all lanes share.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) client: Client,
    pub(super) namespace: Namespace,
    pub(super) durability: Option<DurabilitySetting>,
    /// Whether to create the namespace where it is absent.
    pub(super) is_created: bool,
    pub(super) creation: OnceCell<()>,
    pub(super) shared: Arc<Shared>,
}

/// Rows that failed for good, by their place in the batch.
type Failures = Vec<(usize, Reason)>;

/// Writes batches until there are no more, or until everything is to stop.
pub(super) async fn run(target: Arc<Target>, mut batches: Receiver<Batch>) {
    let mut stopping = target.shared.stopping();
    loop {
        let batch = tokio::select! {
            biased;
            () = is_stopped(&mut stopping) => return,
            batch = batches.recv() => batch,
        };
        let Some(batch) = batch else { return };
        if let Err(failure) = target.write(&batch).await {
            target.shared.abort(failure);
            return;
        }
    }
}

async fn is_stopped(stopping: &mut watch::Receiver<bool>) {
    if stopping.wait_for(|is_stopped| *is_stopped).await.is_err() {
        // Nobody is left who could stop it.
        std::future::pending::<()>().await;
    }
}

impl Target {
    async fn write(&self, batch: &Batch) -> Result<(), Failure> {
        let mut pending: Vec<usize> = (0..batch.len()).collect();
        let mut failures: Failures = Vec::new();
        for round in 1.. {
            let rows = match self.send(batch, &pending).await {
                Ok(rows) => rows,
                Err(error) if self.is_hopeless(&error) => return Err(error.into()),
                Err(error) => {
                    let reason = |&at: &usize| (at, reason_of(batch.number(at), &error));
                    failures.extend(pending.iter().map(reason));
                    break;
                }
            };
            let (again, wait) = sort_out(batch, &pending, rows, round, &mut failures);
            if again.is_empty() {
                break;
            }
            tokio::time::sleep(wait).await;
            pending = with_later_lines_of_the_same_keys(batch, &again);
            failures.retain(|(at, _)| !pending.contains(at));
        }
        let written = batch.len() - failures.len();
        self.shared.count(written as u64, batch.body.len() as u64);
        for (at, reason) in failures {
            self.shared.fail(batch.line(at), &reason)?;
        }
        Ok(())
    }

    /// Sends lines; creates the namespace where it is absent.
    async fn send(&self, batch: &Batch, lines: &[usize]) -> Result<Vec<WriteRow>, Error> {
        let options = BatchOptions {
            is_minimal: true,
            is_repeatable: true,
            durability: self.durability,
            ..BatchOptions::default()
        };
        let send = || {
            let body = batch.body_of(lines);
            self.client
                .batch_write(self.namespace.as_str(), body, options)
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
        let settings = NamespaceSettings::default();
        let (_, is_new) = self.client.put_namespace(name, &settings).await?;
        if is_new {
            // Where stderr is gone there is nobody left to tell.
            let _ = writeln!(std::io::stderr(), "created namespace '{name}'");
        }
        Ok(())
    }

    /// Says whether every other batch would fail in the same way.
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

/// Divides the rows of an answer into those that failed for good and those to send again, and
/// says after which wait.
fn sort_out(
    batch: &Batch,
    sent: &[usize],
    rows: Vec<WriteRow>,
    round: u32,
    failures: &mut Failures,
) -> (Vec<usize>, Duration) {
    let (mut again, mut wait) = (Vec::new(), ROUND_WAIT * round);
    for row in rows {
        let (at, status) = (sent[row.i as usize], row.status);
        let Some(error) = row.error else { continue };
        if round < ROUNDS_MAX && is_worth_another(status, &error) {
            wait = wait.max(Duration::from_millis(
                error.retry.after_ms.unwrap_or_default(),
            ));
            again.push(at);
        } else {
            let reason = Reason {
                line: batch.number(at),
                status,
                type_uri: error.type_uri,
                detail: error.detail,
            };
            failures.push((at, reason));
        }
    }
    (again, wait)
}

fn is_worth_another(status: u16, error: &WriteRowError) -> bool {
    let is_passing = matches!(status, 419 | 429 | 503 | 504);
    is_passing && error.retry.safe && error.outcome == Outcome::NotApplied
}

/// Adds to lines that are sent again the later ones with the same keys: sent alone, the earlier
/// line would win over them.
fn with_later_lines_of_the_same_keys(batch: &Batch, again: &[usize]) -> Vec<usize> {
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

fn reason_of(line: u64, error: &Error) -> Reason {
    let (type_uri, detail) = match error.problem() {
        Some(problem) => (problem.type_uri.clone(), problem.detail.clone()),
        None => (String::new(), error.to_string()),
    };
    Reason {
        line,
        status: error.status().unwrap_or_default(),
        type_uri,
        detail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::kv::import::batch::{BatchLimits, Builder};
    use umbo_api::Retry;

    fn batch(lines: &[&str]) -> Batch {
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
            status,
            version: None,
            error: Some(WriteRowError {
                type_uri: String::new(),
                detail: "why".to_owned(),
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
    fn only_what_was_shed_and_not_applied_is_sent_again_and_not_for_ever() {
        let batch = batch(&["{}", "{}", "{}"]);
        let rows = || {
            vec![
                row(0, 503, Outcome::NotApplied),
                row(1, 400, Outcome::NotApplied),
                row(2, 503, Outcome::Unknown),
            ]
        };
        let mut failures = Vec::new();
        let (again, wait) = sort_out(&batch, &[0, 1, 2], rows(), 1, &mut failures);
        assert_eq!((again, wait), (vec![0], Duration::from_millis(700)));
        assert_eq!(
            failures.iter().map(|(at, _)| *at).collect::<Vec<_>>(),
            [1, 2]
        );
        let mut failures = Vec::new();
        let (again, _) = sort_out(&batch, &[0, 1, 2], rows(), ROUNDS_MAX, &mut failures);
        assert!(again.is_empty() && failures.len() == 3);
        assert_eq!(failures[0].1.line, 1);
    }
}
