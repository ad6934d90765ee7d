//! Batch write: many rows, each with its own answer; or the rows of a partition all together.
//!
//! A malformed line is refused by its number and the others are done. In an atomic batch it
//! refuses the whole, because nobody can tell which group it belongs to. Values that need no
//! unescaping are slices of the request body.

use std::borrow::Cow;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use umbo_api::batch::{
    BatchEnd, BatchEndLine, MatchField, Text, WriteLine, WriteOp, WriteRow, WriteRowError,
};
use umbo_api::path::KeyEncoding;
use umbo_api::row::RowFieldError;
use umbo_quota::Work;
use umbo_store::{Atomicity, Change, Condition, Mutation, WriteError, WriteRequest, Written};
use umbo_telemetry::trace::Verb;
use umbo_types::{Key, RequestUnits, Timestamp, Value, Version, limits};

use super::{ask_store, body, shares, write};
use crate::classify::Context;
use crate::decode::BatchAsk;
use crate::encode::{self, Answer};
use crate::exchange::{Exchange, is_unbegun};
use crate::failure::Failure;
use crate::fields::{EXPIRES_AT_MS_MAX, parse_number};
use crate::namespaces::NamespaceEntry;
use crate::pod::Dispatcher;
use crate::problem;

pub(crate) async fn fetch<B>(
    pod: &Dispatcher,
    namespace: &NamespaceEntry,
    ask: BatchAsk,
    request_body: B,
    context: &Context,
    exchange: &mut Exchange,
) -> Result<Answer, Failure>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let held = body::read(
        pod,
        request_body,
        limits::BATCH_BODY_LEN_MAX,
        context,
        exchange,
    )
    .await?;
    let rows = parse(&held.bytes, namespace, context.now)?;
    if ask.atomicity == Atomicity::Partition {
        check_atomic(&rows)?;
    }
    let (mut lines, mut mutations) = (Vec::new(), Vec::new());
    let mut results: Vec<Result<Done, Failure>> = Vec::with_capacity(rows.len());
    for (index, row) in rows.into_iter().enumerate() {
        results.push(row.map(|mutation| {
            let done = Done::begin(&mutation);
            lines.push(index);
            mutations.push(mutation);
            done
        }));
    }
    if !mutations.is_empty() {
        exchange.verb(Verb::Locate);
        let keys = mutations.iter().map(|mutation| &mutation.key);
        let shares = shares::by_keys(&pod.shard_map, namespace.id, keys);
        exchange.admit_shards(&shares, pod.clock.monotonic())?;
        let request = WriteRequest {
            namespace: namespace.id,
            mutations,
            atomicity: ask.atomicity,
            durability: ask.durability.unwrap_or_else(|| namespace.durability()),
            proposed: Version::proposed_at(context.now),
            deadline: Some(context.deadline),
        };
        let written = ask_store(pod, context, exchange, pod.store.write(request)).await?;
        settle(&mut results, &lines, written, exchange);
    }
    Ok(answer(&results, ask.is_minimal, exchange.close()))
}

/// Notes what became of each mutation, and charges those that the store took up. A condition that
/// was false cost as much as one that was true.
fn settle(
    results: &mut [Result<Done, Failure>],
    lines: &[usize],
    written: Vec<Result<Written, WriteError>>,
    exchange: &mut Exchange,
) {
    let mut work = Work::default();
    for (&index, written) in lines.iter().zip(written) {
        let Ok(done) = &mut results[index] else {
            continue;
        };
        let outcome = written.map_err(Failure::from);
        if !outcome.as_ref().is_err_and(is_unbegun) {
            work.rows += 1;
            work.writes += 1;
            work.write_bytes += done.bytes;
        }
        match outcome {
            Ok(written) => done.written = Some(written),
            Err(failure) => results[index] = Err(at_line(failure, lines)),
        }
    }
    if work.rows > 0 {
        exchange.settle(work);
    } else {
        exchange.release();
    }
}

/// What became of a line that was applied.
#[derive(Debug, Clone, Copy)]
struct Done {
    written: Option<Written>,
    is_put: bool,
    /// Bytes of keys and value that a put writes; a removal writes none.
    bytes: u64,
}

impl Done {
    fn begin(mutation: &Mutation) -> Self {
        let Key { partition, sort } = &mutation.key;
        let keys = partition.as_bytes().len() + sort.as_bytes().len();
        let put = match &mutation.change {
            Change::Put { value, .. } => Some((keys + value.bytes.len()) as u64),
            Change::Delete => None,
        };
        Self {
            written: None,
            is_put: put.is_some(),
            bytes: put.unwrap_or(0),
        }
    }
}

/// Names the line of the request where the store named the mutation.
fn at_line(failure: Failure, lines: &[usize]) -> Failure {
    match failure {
        Failure::GroupAborted { index } => Failure::GroupAborted {
            index: lines.get(index).copied().unwrap_or(index),
        },
        other => other,
    }
}

fn answer(results: &[Result<Done, Failure>], is_minimal: bool, charged: RequestUnits) -> Answer {
    let mut lines = BytesMut::with_capacity(results.len() * 48 + 64);
    let mut failed = 0;
    for (index, result) in results.iter().enumerate() {
        let row = match result {
            Ok(_) if is_minimal => continue,
            Ok(done) => {
                let is_new = done.is_put && done.written.is_some_and(|written| !written.existed);
                WriteRow {
                    i: index as u32,
                    status: if is_new { 201 } else { 204 },
                    version: done.written.map(|written| written.version.0),
                    error: None,
                }
            }
            Err(failure) => {
                failed += 1;
                refused_row(index, failure)
            }
        };
        encode::write_json_line(&mut lines, &row);
    }
    let end = BatchEnd {
        rows: results.len() as u64,
        failed,
        ru: encode::ru(charged),
    };
    encode::write_json_line(&mut lines, &BatchEndLine { end });
    Answer::Batch {
        lines: lines.freeze(),
        is_partial: failed > 0,
    }
}

fn refused_row(index: usize, failure: &Failure) -> WriteRow {
    let problem = problem::of_row(failure);
    WriteRow {
        i: index as u32,
        status: problem.status,
        version: None,
        error: Some(WriteRowError {
            type_uri: problem.type_uri,
            detail: problem.detail,
            etag: problem.etag,
            outcome: problem::outcome(failure),
            retry: problem.retry,
        }),
    }
}

fn check_atomic(rows: &[Result<Mutation, Failure>]) -> Result<(), Failure> {
    if let Some((index, Err(failure))) = rows.iter().enumerate().find(|(_, row)| row.is_err()) {
        return Err(Failure::BadBody(format!(
            "row {index}: {failure}; nothing was applied"
        )));
    }
    let mut sizes = std::collections::HashMap::new();
    for row in rows.iter().flatten() {
        let size = sizes.entry(&row.key.partition).or_insert(0_usize);
        *size += 1;
        if *size > limits::ATOMIC_ROWS_MAX {
            let what = "rows of one partition";
            return Err(Failure::BatchTooLarge {
                what,
                max: limits::ATOMIC_ROWS_MAX,
            });
        }
    }
    Ok(())
}

/// Reads the lines of a batch; blank lines do not count.
fn parse(
    body: &Bytes,
    namespace: &NamespaceEntry,
    now: Timestamp,
) -> Result<Vec<Result<Mutation, Failure>>, Failure> {
    let mut rows = Vec::new();
    let mut rest = &body[..];
    while !rest.is_empty() {
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let line = rest[..end].trim_ascii();
        rest = rest.get(end + 1..).unwrap_or_default();
        if line.is_empty() {
            continue;
        }
        if rows.len() == limits::BATCH_ROWS_MAX {
            return Err(Failure::BatchTooLarge {
                what: "rows",
                max: limits::BATCH_ROWS_MAX,
            });
        }
        rows.push(mutation(line, body, namespace, now));
    }
    Ok(rows)
}

fn mutation(
    line: &[u8],
    body: &Bytes,
    namespace: &NamespaceEntry,
    now: Timestamp,
) -> Result<Mutation, Failure> {
    let line: WriteLine<'_> = body::json_object(line)?;
    let condition = condition(line.if_match.as_ref(), line.if_none_match.as_ref())?;
    let expires_at = expiry(line.ttl, line.expires_at, now)?;
    let field = |error: RowFieldError| Failure::BadBody(error.to_string());
    let partition = pair("pk", line.pk, line.pk64, body)
        .and_then(|found| found.ok_or(RowFieldError::Neither("pk")))
        .map_err(field)?;
    let sort = pair("sk", line.sk, line.sk64, body)
        .map_err(field)?
        .unwrap_or_default();
    let bytes = pair("v", line.v, line.v64, body).map_err(field)?;
    let key = Key::new(partition, sort)?;
    let change = match (line.op, bytes) {
        (WriteOp::Put, Some(bytes)) => {
            let text =
                |text: Option<Text<'_>>| text.map_or_else(Bytes::new, |text| own(text, body));
            let content_type = content_field(text(line.content_type))?;
            let content_encoding = content_field(text(line.content_encoding))?;
            let value = Value::new(bytes, content_type, content_encoding)?;
            let expires_at = expires_at.or_else(|| write::default_expiry(namespace, now));
            Change::Put { value, expires_at }
        }
        (WriteOp::Put, None) => return Err(field(RowFieldError::Neither("v"))),
        (WriteOp::Del, None) if expires_at.is_none() => Change::Delete,
        (WriteOp::Del, _) => {
            return Err(Failure::BadBody(
                "a 'del' has no value and no expiry".to_owned(),
            ));
        }
    };
    Ok(Mutation {
        key,
        change,
        condition,
    })
}

/// Refuses content types and encodings that could not be header values again.
fn content_field(bytes: Bytes) -> Result<Bytes, Failure> {
    if bytes.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        return Ok(bytes);
    }
    Err(Failure::BadBody(
        "a content type or encoding is visible ASCII".to_owned(),
    ))
}

fn pair(
    name: &'static str,
    text: Option<Text<'_>>,
    base64: Option<Text<'_>>,
    body: &Bytes,
) -> Result<Option<Bytes>, RowFieldError> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(RowFieldError::Both(name)),
        (Some(text), None) => Ok(Some(own(text, body))),
        (None, Some(encoded)) => KeyEncoding::Base64Url
            .decode(encoded.0.as_bytes())
            .map(|bytes| Some(bytes.into()))
            .map_err(|_| RowFieldError::BadBase64(name)),
        (None, None) => Ok(None),
    }
}

/// Keeps a text: as a slice of the body it was read from, where it lies there.
fn own(text: Text<'_>, body: &Bytes) -> Bytes {
    match text.0 {
        Cow::Borrowed(text) => body.slice_ref(text.as_bytes()),
        Cow::Owned(text) => text.into(),
    }
}

fn expiry(
    ttl: Option<u64>,
    expires_at: Option<u64>,
    now: Timestamp,
) -> Result<Option<Timestamp>, Failure> {
    let bad = |name, value: u64, expected| Failure::BadParameter {
        name,
        value: value.to_string(),
        expected,
    };
    match (ttl, expires_at) {
        (Some(_), Some(_)) => Err(Failure::Contradiction {
            one: "ttl",
            other: "expires_at",
        }),
        (Some(ttl), None) if !(1..=limits::TTL_SECONDS_MAX).contains(&ttl) => {
            Err(bad("ttl", ttl, "1 to 315360000 seconds"))
        }
        (None, Some(at)) if !(1..=EXPIRES_AT_MS_MAX).contains(&at) => {
            Err(bad("expires_at", at, "milliseconds since the Unix epoch"))
        }
        (Some(ttl), None) => Ok(Some(now.saturating_add(Duration::from_secs(ttl)))),
        (None, Some(at)) => Ok(Some(Timestamp::from_millis(at))),
        (None, None) => Ok(None),
    }
}

fn condition(
    if_match: Option<&MatchField>,
    if_none_match: Option<&MatchField>,
) -> Result<Condition, Failure> {
    let bad = |name, field: &MatchField, expected| Failure::BadParameter {
        name,
        value: match field {
            MatchField::Version(version) => version.to_string(),
            MatchField::Text(text) => text.chars().take(64).collect(),
        },
        expected,
    };
    match (if_match, if_none_match) {
        (None, None) => Ok(Condition::Always),
        (Some(_), Some(_)) => Err(Failure::Contradiction {
            one: "if_match",
            other: "if_none_match",
        }),
        (Some(MatchField::Version(version)), None) => {
            Ok(Condition::VersionIn(vec![Version(*version)]))
        }
        (Some(MatchField::Text(text)), None) if text == "*" => Ok(Condition::Present),
        (Some(field @ MatchField::Text(text)), None) => {
            let tag = text
                .strip_prefix('"')
                .and_then(|rest| rest.strip_suffix('"'));
            let version = tag.and_then(parse_number).map(Version);
            let version =
                version.ok_or_else(|| bad("if_match", field, "a version, an ETag or \"*\""))?;
            Ok(Condition::VersionIn(vec![version]))
        }
        (None, Some(MatchField::Text(text))) if text == "*" => Ok(Condition::Absent),
        (None, Some(field)) => Err(bad("if_none_match", field, "\"*\"")),
    }
}
