//! Batches: many rows read or written with one request.

use std::time::Duration;

use bytes::Bytes;
use reqwest::Method;
use reqwest::header::HeaderValue;
use serde::de::DeserializeOwned;
use umbo_api::admin::DurabilitySetting;
use umbo_api::batch::{BatchEnd, BatchEndLine, KeyFields, MultiGetBody, MultiGetRow, WriteRow};
use umbo_api::{Outcome, header};

use crate::block::is_last;
use crate::client::Client;
use crate::dead_letters::{self, DeadLetter};
use crate::error::Error;
use crate::kv::durability_name;
use crate::request::RepeatableRequest;
use crate::retry::Repeat;

/// How to write a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BatchOptions {
    /// Whether each partition's rows are applied together or not at all.
    pub is_atomic: bool,
    /// Answer only for the rows that failed.
    pub is_minimal: bool,
    /// Whether a second write has the same effect as one, so that the batch may be repeated without an idempotency key
    /// when the outcome of the first attempt is unknown. This holds for puts of rows that no other client writes
    /// meanwhile. A batch with conditions or increments has a key in any case. A batch that is not repeatable has one
    /// if all writes of the client have keys.
    pub is_repeatable: bool,
    /// How long the server remembers the idempotency key of the batch, in whole seconds. Without it the server
    /// remembers a key for an hour, and the batch has a key only if it needs one or the client's writes have one.
    pub idempotency_ttl: Option<Duration>,
    /// When the batch is acknowledged; `None` is the setting of the namespace.
    pub durability: Option<DurabilitySetting>,
}

/// The outcome of a batch write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchResult {
    /// The answered rows: all rows, or only the failed ones.
    pub rows: Vec<WriteRow>,
    /// Totals.
    pub end: BatchEnd,
}

impl Client {
    /// Reads many rows. The answer has one row for each key, in the same order.
    pub async fn multi_get(
        &self,
        namespace: &str,
        keys: Vec<KeyFields>,
    ) -> Result<Vec<MultiGetRow>, Error> {
        let asked = keys.len();
        let body =
            serde_json::to_vec(&MultiGetBody { keys }).map_err(|error| Error::json(&error))?;
        let target = format!("/v1/ns/{namespace}/batch/get");
        let mut request = RepeatableRequest::new(Method::POST, target, Repeat::Always)
            .with_body("application/json", body);
        request.rows = asked as u64;
        let answer = self.send_for_body(&request).await?;
        let (rows, _) = parse::<MultiGetRow>(&answer)?;
        if rows.len() != asked {
            return Err(Error::TruncatedStream {
                rows: rows.len() as u64,
            });
        }
        Ok(rows)
    }

    /// Writes the rows of an NDJSON body, one write a line. Rows that failed are not an error of
    /// the call: they are in its result.
    pub async fn batch_write(
        &self,
        namespace: &str,
        lines: impl Into<Bytes>,
        options: BatchOptions,
    ) -> Result<BatchResult, Error> {
        let query = if options.is_atomic {
            "?atomic=partition"
        } else {
            ""
        };
        let target = format!("/v1/ns/{namespace}/batch/write{query}");
        let repeat = Repeat::always_if(options.is_repeatable);
        let lines = lines.into();
        let rows = memchr::memchr_iter(b'\n', &lines).count() as u64;
        let mut request = RepeatableRequest::new(Method::POST, target, repeat)
            .with_body("application/x-ndjson", lines)
            .writing(rows.max(1));
        if options.is_minimal {
            request = request.with_header("prefer", HeaderValue::from_static("return=minimal"));
        }
        if let Some(durability) = options.durability {
            let name = durability_name(durability);
            request = request.with_header(header::DURABILITY, HeaderValue::from_static(name));
        }
        if let Some(ttl) = options.idempotency_ttl {
            let seconds = HeaderValue::try_from(format!("{}s", ttl.as_secs()));
            let seconds = seconds.expect("digits are a header value");
            request = request.with_header(header::IDEMPOTENCY_TTL, seconds);
        }
        let needs_key = options.idempotency_ttl.is_some() || needs_key(&request.body);
        if needs_key || !options.is_repeatable {
            request = self.keyed(request, needs_key);
        }
        let sent = self.send_in_doubt(&request).await;
        let (answer, is_in_doubt) = sent.inspect_err(|error| {
            self.bury_lines(&request.body, |line| {
                dead_letters::letter(namespace, error, line)
            });
        })?;
        let (mut rows, end) = parse::<WriteRow>(&answer)?;
        if is_in_doubt {
            doubt_conditions(&mut rows);
        }
        self.bury_rows(namespace, &request.body, &rows);
        let expected = if options.is_minimal {
            end.failed
        } else {
            end.rows
        };
        if rows.len() as u64 != expected {
            return Err(Error::TruncatedStream {
                rows: rows.len() as u64,
            });
        }
        Ok(BatchResult { rows, end })
    }

    /// Makes dead letters of all lines of a batch.
    fn bury_lines(&self, body: &[u8], letter: impl Fn(String) -> Option<DeadLetter>) {
        if self.has_dead_letters() {
            for line in lines_of(body) {
                self.bury(|| letter(String::from_utf8_lossy(line).into_owned()));
            }
        }
    }

    /// Makes dead letters of the rows of a batch that were refused.
    fn bury_rows(&self, namespace: &str, body: &[u8], rows: &[WriteRow]) {
        let is_refused = |row: &WriteRow| row.error.is_some();
        if !self.has_dead_letters() || !rows.iter().any(is_refused) {
            return;
        }
        let lines: Vec<&[u8]> = lines_of(body).collect();
        for row in rows {
            if let (Some(error), Some(line)) = (&row.error, lines.get(row.i as usize)) {
                let line = String::from_utf8_lossy(line).into_owned();
                self.bury(|| dead_letters::letter_of_row(namespace, row.status, error, line));
            }
        }
    }
}

/// Returns the lines of a batch; blank ones do not count.
fn lines_of(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = body.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    lines.filter(|line| !line.is_empty())
}

/// Returns whether a batch may have conditions or increments: a repetition without a key could have another outcome.
/// Looks for their names; an escape may spell any name.
fn needs_key(lines: &[u8]) -> bool {
    let has = |text: &str| memchr::memmem::find(lines, text.as_bytes()).is_some();
    has("\"if_") || has("\"inc\"") || has("\\u00")
}

/// Sets the outcome of rows with false conditions to unknown: an earlier attempt may have applied them.
fn doubt_conditions(rows: &mut [WriteRow]) {
    let refused = rows.iter_mut().filter(|row| row.status == 412);
    for error in refused.filter_map(|row| row.error.as_mut()) {
        error.outcome = Outcome::Unknown;
        error.retry.safe = false;
    }
}

fn parse<T: DeserializeOwned>(answer: &[u8]) -> Result<(Vec<T>, BatchEnd), Error> {
    let mut rows = Vec::new();
    for line in answer.split(|&byte| byte == b'\n') {
        if line.trim_ascii().is_empty() {
            continue;
        }
        if is_last(line) {
            let BatchEndLine { end } =
                serde_json::from_slice(line).map_err(|error| Error::json(&error))?;
            return Ok((rows, end));
        }
        rows.push(serde_json::from_slice(line).map_err(|error| Error::json(&error))?);
    }
    Err(Error::TruncatedStream {
        rows: rows.len() as u64,
    })
}
