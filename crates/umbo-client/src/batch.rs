//! Batches: many rows read or written with one request.

use bytes::Bytes;
use reqwest::Method;
use reqwest::header::HeaderValue;
use serde::de::DeserializeOwned;
use umbo_api::admin::DurabilitySetting;
use umbo_api::batch::{BatchEnd, BatchEndLine, KeyFields, MultiGetBody, MultiGetRow, WriteRow};
use umbo_api::{Outcome, header};

use crate::block::is_last;
use crate::client::Client;
use crate::error::Error;
use crate::kv::durability_name;
use crate::request::Request;
use crate::retry::Repeat;

/// How to write a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BatchOptions {
    /// All rows of a partition, or none of them.
    pub is_atomic: bool,
    /// Answer only for the rows that failed.
    pub is_minimal: bool,
    /// Whether writing it twice comes to the same, so that it may be repeated when it is unknown
    /// what became of the first: puts without conditions that nobody else writes meanwhile.
    pub is_repeatable: bool,
    /// When the batch is acknowledged; the namespace's setting where none.
    pub durability: Option<DurabilitySetting>,
}

/// What became of a batch write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchResult {
    /// The rows answered: all, or those that failed.
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
        let mut request =
            Request::new(Method::POST, target, Repeat::Always).with_body("application/json", body);
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
        let mut request = Request::new(Method::POST, target, repeat)
            .with_body("application/x-ndjson", lines)
            .writing(rows.max(1));
        if options.is_minimal {
            request = request.with_header("prefer", HeaderValue::from_static("return=minimal"));
        }
        if let Some(durability) = options.durability {
            let name = durability_name(durability);
            request = request.with_header(header::DURABILITY, HeaderValue::from_static(name));
        }
        let (answer, is_in_doubt) = self.send_in_doubt(&request).await?;
        let (mut rows, end) = parse::<WriteRow>(&answer)?;
        if is_in_doubt {
            doubt_conditions(&mut rows);
        }
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
}

/// Says of rows whose conditions were false that their outcome is unknown: an earlier attempt may have
/// applied them.
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
