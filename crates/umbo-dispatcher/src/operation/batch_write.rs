//! Batch write: many rows, each with its own answer; or the rows of a partition all together.
//!
//! A malformed line is refused by its number and the others are done. In an atomic batch it
//! refuses the whole, because nobody can tell which group it belongs to.

mod lines;
mod parts;

use std::pin::pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use umbo_api::Outcome;
use umbo_api::batch::{BatchEnd, BatchEndLine, WriteRow, WriteRowError};
use umbo_quota::Work;
use umbo_store::{Atomicity, Change, Mutation, WriteRequest, Written};
use umbo_telemetry::trace::Verb;
use umbo_types::{Key, NamespaceId, RequestUnits, Version, limits};

use self::parts::{Part, PartOutcome};
use super::{ask_store, body};
use crate::classify::Context;
use crate::decode::BatchAsk;
use crate::encode::{self, Answer};
use crate::exchange::{Exchange, is_unbegun};
use crate::failure::Failure;
use crate::namespaces::NamespaceEntry;
use crate::pod::Dispatcher;
use crate::problem;
use crate::shield;

pub(crate) async fn fetch<B>(
    pod: &Arc<Dispatcher>,
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
    let mut rows = lines::parse(&held.bytes, namespace, context.now)?;
    refuse_blocked(pod, namespace.id, exchange, &mut rows);
    if ask.atomicity == Atomicity::Partition {
        check_atomic(&rows)?;
    }
    let mut parts = Vec::new();
    let mut results: Vec<Result<Done, Failure>> = Vec::with_capacity(rows.len());
    for (index, row) in rows.into_iter().enumerate() {
        results.push(row.map(|mutation| {
            let done = Done::begin(&mutation);
            let partition = &mutation.key.partition;
            let shard = pod.shard_map.locate(namespace.id, partition);
            parts::add(&mut parts, shard, index, mutation);
            done
        }));
    }
    if !parts.is_empty() {
        exchange.verb(Verb::Locate);
        exchange.admit_shards(&parts::shares(&parts), pod.clock.monotonic())?;
        let template = WriteRequest {
            namespace: namespace.id,
            mutations: Vec::new(),
            atomicity: ask.atomicity,
            durability: ask.durability.unwrap_or_else(|| namespace.durability()),
            proposed: Version::proposed_at(context.now),
        };
        let call = exchange.call(context);
        let writing = async { Ok(parts::write(pod, &call, &mut parts, &template).await) };
        let written = ask_store(context, exchange, pin!(writing)).await?;
        settle(&mut results, &parts, written, exchange)?;
    }
    let charged = exchange.close();
    Ok(answer(&results, ask.is_minimal, charged, exchange))
}

/// Refuses the rows whose keys an operator has blocked.
fn refuse_blocked(
    pod: &Dispatcher,
    namespace: NamespaceId,
    exchange: &Exchange,
    rows: &mut [Result<Mutation, Failure>],
) {
    if pod.hot_keys.blocking().is_none() {
        return;
    }
    for row in rows {
        let check =
            |mutation: &Mutation| shield::check_row(pod, namespace, &mutation.key, exchange);
        if let Some(Err(failure)) = row.as_ref().ok().map(check) {
            *row = Err(failure);
        }
    }
}

/// Notes what became of each mutation, and charges those that the store took up. A condition that
/// was false cost as much as one that was true. Where all of it was shed or late, that is the answer.
fn settle(
    results: &mut [Result<Done, Failure>],
    parts: &[Part],
    written: Vec<PartOutcome>,
    exchange: &mut Exchange,
) -> Result<(), Failure> {
    let mut work = Work::default();
    for (part, outcome) in parts.iter().zip(written) {
        let outcomes = match outcome {
            Ok(outcomes) => outcomes
                .into_iter()
                .map(|one| one.map_err(Failure::from))
                .collect(),
            Err(failure) => vec![Err(failure); part.lines.len()],
        };
        for (&line, outcome) in part.lines.iter().zip(outcomes) {
            let Ok(done) = &mut results[line] else {
                continue;
            };
            if !outcome.as_ref().is_err_and(is_unbegun) {
                work.rows += 1;
                work.writes += 1;
                work.write_bytes += done.bytes;
            }
            match outcome {
                Ok(written) => done.written = Some(written),
                Err(failure) => results[line] = Err(at_line(failure, &part.lines)),
            }
        }
    }
    if let Some(failure) = failure_of_all(results) {
        return Err(failure);
    }
    if work.rows > 0 {
        exchange.settle(work);
    } else {
        exchange.release();
    }
    Ok(())
}

/// Returns why all rows were shed or late, where nothing was done about any or all may have been
/// applied: one answer says it better than a thousand rows.
fn failure_of_all(results: &[Result<Done, Failure>]) -> Option<Failure> {
    let mut failures = results.iter().map(|result| result.as_ref().err());
    let first = failures.clone().flatten().next()?;
    let is_of_all = |failure: Option<&Failure>| {
        let is_late = |failure: &Failure| matches!(failure, Failure::Shed(_)) || failure.is_late();
        failure.is_some_and(|failure| is_late(failure) && is_unbegun(failure) == is_unbegun(first))
    };
    failures.all(is_of_all).then(|| first.clone())
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

fn answer(
    results: &[Result<Done, Failure>],
    is_minimal: bool,
    charged: RequestUnits,
    exchange: &Exchange,
) -> Answer {
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
                refused_row(index, failure, exchange)
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

fn refused_row(index: usize, failure: &Failure, exchange: &Exchange) -> WriteRow {
    let mut problem = problem::of_part(failure, exchange);
    let outcome = problem::outcome(failure);
    problem.retry.safe &= outcome == Outcome::NotApplied;
    WriteRow {
        i: index as u32,
        status: problem.status,
        version: None,
        error: Some(WriteRowError {
            type_uri: problem.type_uri,
            detail: problem.detail,
            shard: problem.shard,
            etag: problem.etag,
            outcome,
            retry: problem.retry,
        }),
    }
}

fn check_atomic(rows: &[Result<Mutation, Failure>]) -> Result<(), Failure> {
    if let Some((index, Err(failure))) = rows.iter().enumerate().find(|(_, row)| row.is_err()) {
        if matches!(failure, Failure::KeyBlocked) {
            return Err(Failure::KeyBlocked);
        }
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
