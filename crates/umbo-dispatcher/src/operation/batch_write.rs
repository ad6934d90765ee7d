//! Batch write: many rows, each with its own answer; or the rows of a partition all together.
//!
//! A malformed line is refused by its number and the others are applied; a row that has expired already is
//! skipped. In an atomic batch a malformed line refuses the whole batch, because the group of such a line is
//! unknown. An expired row refuses it too.

mod parts;

use std::collections::{BTreeMap, HashSet};
use std::pin::pin;
use std::sync::Arc;

use bytes::BytesMut;
use http::Uri;
use http_body::SizeHint;
use umbo_api::Outcome;
use umbo_api::batch::{BatchEnd, BatchEndLine, Skipped, WriteRow, WriteRowError};
use umbo_edge::body::ArrivingBody;
use umbo_http::decode::{self, BatchAsk, Route};
use umbo_http::{Answer, Fields, RequestError, batch_lines, encode, json_text, problem};
use umbo_quota::{ActualUsage, CostHint};
use umbo_store::{
    Atomicity, Change, Idempotency, Mutation, StoreError, WriteError, WriteRequest, Written,
};
use umbo_types::{Key, PartitionKey, RequestUnits, Version, limits};

use self::parts::{PartOutcome, ShardWrite};
use super::Operate;
use super::body::RequestBody;
use super::stored_form::store_all;
use super::write::NUMBER_LEN;
use crate::phase::admit::Admitted;
use crate::phase::locate::Located;
use crate::phase::{queue, read_through};
use crate::reply::Reply;

/// Bytes of the answer for one row that was applied.
const ROW_ANSWER_LEN: usize = 64;

/// A batch write.
#[derive(Debug)]
pub(crate) struct BatchWrite {
    ask: BatchAsk,
    /// The writes of each shard.
    parts: Vec<ShardWrite>,
    /// The outcome of each line.
    results: Vec<Result<Done, RequestError>>,
}

impl Operate for BatchWrite {
    /// The outcome of each part.
    type Fetched = Vec<PartOutcome>;

    fn decode(_route: &Route<'_>, uri: &Uri, fields: &Fields<'_>) -> Result<Self, RequestError> {
        Ok(Self {
            ask: decode::batch(uri, fields)?,
            parts: Vec::new(),
            results: Vec::new(),
        })
    }

    fn hint(&self, body: &SizeHint) -> CostHint {
        CostHint {
            body_len: body.exact(),
            ..CostHint::default()
        }
    }

    async fn locate<'l, B: ArrivingBody>(
        &mut self,
        admitted: &'l mut Admitted<'_>,
        body: &mut RequestBody<'_, B>,
    ) -> Result<Located<'l>, RequestError> {
        let (dispatcher, context) = (admitted.dispatcher, admitted.context());
        let text = body.read_text(admitted.log, context, limits::BATCH_BODY_LEN_MAX);
        let text = text.await?;
        let namespace = admitted.namespace_id();
        let shard_of = |partition: &PartitionKey| dispatcher.shard_map.locate(namespace, partition);
        let mut times = BTreeMap::new();
        let lives_from = |partition: &PartitionKey| {
            let shard = shard_of(partition);
            *times
                .entry(shard)
                .or_insert_with(|| dispatcher.lives_from(shard))
        };
        let mut rows =
            batch_lines::parse(&text, &self.ask.format, admitted.namespace(), lives_from)?;
        if let Some(keyed) = &mut self.ask.keyed {
            keyed.add(Some(&text));
        }
        refuse_blocked(admitted, &mut rows);
        if self.ask.atomicity == Atomicity::Partition {
            check_atomic(&rows)?;
        }
        store_all(rows.iter_mut().flatten(), admitted.namespace()).await;
        admitted
            .reserve_answer(rows.len() * ROW_ANSWER_LEN, usize::MAX)
            .await?;
        let mut recorded = HashSet::new();
        for (index, row) in rows.into_iter().enumerate() {
            self.results.push(row.map(|mutation| {
                let mut done = Done::begin(&mutation);
                let partition = &mutation.key.partition;
                if self.ask.keyed.is_some() {
                    done.record_bytes = if recorded.insert(partition.clone()) {
                        Idempotency::charged_bytes(partition.as_bytes().len() as u64, 1)
                    } else {
                        Idempotency::charged_bytes_of_more(1)
                    };
                }
                let key_len = partition.as_bytes().len() as u64;
                let (namespace, len) =
                    (admitted.namespace_id(), done.bytes.saturating_sub(key_len));
                dispatcher.quota.note_row(namespace, &mutation.key, len);
                parts::add(&mut self.parts, shard_of(partition), index, mutation);
                done
            }));
        }
        if self.parts.is_empty() {
            return Ok(admitted.locate_nowhere());
        }
        let written = self.results.iter().flatten();
        let bytes = written.clone().map(|done| done.bytes + done.record_bytes);
        admitted.charge.foresee(CostHint {
            rows_max: Some(written.count() as u64),
            body_len: Some(bytes.sum()),
            ..CostHint::default()
        });
        admitted.locate(&parts::shares(&self.parts))
    }

    async fn fetch(&mut self, located: &mut Located<'_>) -> Result<Self::Fetched, RequestError> {
        if self.parts.is_empty() {
            return Ok(Vec::new());
        }
        let template = WriteRequest {
            namespace: located.dataset(),
            epoch: located.namespace().epoch,
            mutations: Vec::new(),
            atomicity: self.ask.atomicity,
            durability: self
                .ask
                .durability
                .unwrap_or_else(|| located.namespace().durability()),
            proposed: Version::proposed_at(located.context().now),
            idempotency: None,
            not_before: None,
            run: None,
        };
        let (dispatcher, call, parts) = (located.dispatcher, located.call(), &mut self.parts);
        if let Some(keyed) = &self.ask.keyed {
            let caller = &located.identified().caller.id;
            parts::recognise(parts, |shard, lines| {
                keyed.idempotency(caller, dispatcher.lives_from(shard), true, lines)
            });
        }
        let namespace = Arc::clone(&located.identified().namespace);
        let writing =
            async { Ok(parts::write(dispatcher, &call, &namespace, parts, &template).await) };
        let written: Vec<PartOutcome> = queue::ask(located, pin!(writing)).await?;
        match namespace_gone(&written) {
            Some(gone) => Err(gone),
            None => Ok(written),
        }
    }

    fn settle(
        mut self,
        written: Self::Fetched,
        located: &mut Located<'_>,
    ) -> Result<Reply, RequestError> {
        if !self.parts.is_empty() {
            settle(&mut self.results, &self.parts, written, located)?;
            let all = self.parts.iter().flat_map(|part| &part.lines);
            let mut answered = all.map(|&line| match &self.results[line] {
                Ok(done) => done.written.is_some_and(|written| written.is_replayed),
                Err(failure) => matches!(failure, RequestError::Replayed(_)),
            });
            located
                .log
                .replayed(answered.all(|is_replayed| is_replayed));
        }
        let charged = located.charge.close();
        let is_minimal = self.ask.is_minimal;
        Ok(answer(&self.results, is_minimal, charged).into())
    }
}

/// Refuses the rows whose keys an operator has blocked.
fn refuse_blocked(admitted: &Admitted<'_>, rows: &mut [Result<Mutation, RequestError>]) {
    if admitted.dispatcher.hot_keys.blocking().is_none() {
        return;
    }
    for row in rows {
        let check = |mutation: &Mutation| {
            let identified = admitted.identified();
            let (namespace, payer) = (identified.namespace.id, identified.payer_name());
            read_through::check_blocked(admitted.dispatcher, namespace, &mutation.key, payer)
        };
        if let Some(Err(failure)) = row.as_ref().ok().map(check) {
            *row = Err(failure);
        }
    }
}

/// Records the outcome of each mutation, and charges the mutations that the store began. A false condition
/// is charged like a true one. If all rows were shed or late, the whole request fails with that error.
fn settle(
    results: &mut [Result<Done, RequestError>],
    parts: &[ShardWrite],
    written: Vec<PartOutcome>,
    located: &mut Located<'_>,
) -> Result<(), RequestError> {
    let mut work = ActualUsage::default();
    for (part, outcome) in parts.iter().zip(written) {
        let outcomes = match outcome {
            Ok(outcomes) => outcomes
                .into_iter()
                .map(|one| one.map_err(RequestError::from))
                .collect(),
            Err(failure) => vec![Err(failure); part.lines.len()],
        };
        for (&line, outcome) in part.lines.iter().zip(outcomes) {
            let Ok(done) = &mut results[line] else {
                continue;
            };
            if !outcome.as_ref().is_err_and(RequestError::is_unbegun) {
                work.rows += 1;
                work.writes += 1;
                let is_replayed = match &outcome {
                    Ok(written) => written.is_replayed,
                    Err(failure) => matches!(failure, RequestError::Replayed(_)),
                };
                if !is_replayed {
                    work.write_bytes += done.bytes + done.record_bytes;
                }
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
        located.settle(work);
    } else {
        located.charge.release();
    }
    Ok(())
}

/// Returns the error of a shard that knows that the namespace was removed. Rows that other shards applied
/// belong to the removed namespace, so nothing of the batch lasts.
fn namespace_gone(written: &[PartOutcome]) -> Option<RequestError> {
    let answers = written.iter().flatten().flatten();
    let mut errors = answers.filter_map(|answer| answer.as_ref().err());
    errors.find_map(|error| match error {
        WriteError::Store(error @ StoreError::NamespaceGone { .. }) => Some(error.clone().into()),
        _ => None,
    })
}

/// Returns the error of the whole batch if all rows were shed or late, and either all or none of them may
/// have been applied: one error says more than a thousand rows.
fn failure_of_all(results: &[Result<Done, RequestError>]) -> Option<RequestError> {
    let mut failures = results.iter().map(|result| result.as_ref().err());
    let first = failures.clone().flatten().next()?;
    let is_of_all = |failure: Option<&RequestError>| {
        let is_late =
            |failure: &RequestError| matches!(failure, RequestError::Shed(_)) || failure.is_late();
        failure
            .is_some_and(|failure| is_late(failure) && failure.is_unbegun() == first.is_unbegun())
    };
    failures.all(is_of_all).then(|| first.clone())
}

/// The outcome of a line.
#[derive(Debug, Clone, Copy)]
struct Done {
    written: Option<Written>,
    is_put: bool,
    /// Bytes of keys and value that a put writes; a removal writes none.
    bytes: u64,
    /// Bytes that its share of an idempotency record is charged.
    record_bytes: u64,
}

impl Done {
    fn begin(mutation: &Mutation) -> Self {
        let Key { partition, sort } = &mutation.key;
        let keys = partition.as_bytes().len() + sort.as_bytes().len();
        let put = match &mutation.change {
            Change::Put { value, .. } => Some((keys + value.bytes.len()) as u64),
            Change::Increment { .. } => Some(keys as u64 + NUMBER_LEN),
            Change::Upload(_) => Some(keys as u64),
            Change::Delete => None,
        };
        Self {
            written: None,
            is_put: put.is_some(),
            bytes: put.unwrap_or(0),
            record_bytes: 0,
        }
    }
}

/// Replaces the index of a mutation by the line of the request.
fn at_line(failure: RequestError, lines: &[usize]) -> RequestError {
    match failure {
        RequestError::GroupAborted { index } => RequestError::GroupAborted {
            index: lines.get(index).copied().unwrap_or(index),
        },
        RequestError::Replayed(failure) => {
            RequestError::Replayed(Box::new(at_line(*failure, lines)))
        }
        other => other,
    }
}

fn answer(
    results: &[Result<Done, RequestError>],
    is_minimal: bool,
    charged: RequestUnits,
) -> Answer {
    let mut lines = BytesMut::with_capacity(results.len() * 48 + 64);
    let (mut failed, mut skipped) = (0, 0);
    for (index, result) in results.iter().enumerate() {
        let row = match result {
            Ok(_) if is_minimal => continue,
            Ok(done) => {
                let is_new = done.is_put && done.written.is_some_and(|written| !written.existed);
                WriteRow {
                    i: index as u32,
                    status: if is_new { 201 } else { 204 },
                    skipped: None,
                    version: done.written.map(|written| written.version.0),
                    number: done.written.and_then(|written| written.number),
                    replayed: done.written.is_some_and(|written| written.is_replayed),
                    error: None,
                }
            }
            Err(RequestError::RowExpired) => {
                skipped += 1;
                if is_minimal {
                    continue;
                }
                WriteRow {
                    i: index as u32,
                    status: 200,
                    skipped: Some(Skipped::Expired),
                    version: None,
                    number: None,
                    replayed: false,
                    error: None,
                }
            }
            Err(failure) => {
                failed += 1;
                refused_row(index, failure)
            }
        };
        json_text::write_json_line(&mut lines, &row);
    }
    let end = BatchEnd {
        rows: results.len() as u64,
        failed,
        skipped,
        ru: encode::ru(charged),
    };
    json_text::write_json_line(&mut lines, &BatchEndLine { end });
    Answer::Batch {
        lines: lines.freeze(),
        is_partial: failed > 0,
    }
}

fn refused_row(index: usize, failure: &RequestError) -> WriteRow {
    let mut problem = problem::of_row(failure);
    let outcome = failure.effect();
    problem.retry.safe &= outcome == Outcome::NotApplied;
    WriteRow {
        i: index as u32,
        status: problem.status,
        skipped: None,
        version: None,
        number: None,
        replayed: matches!(failure, RequestError::Replayed(_)),
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

fn check_atomic(rows: &[Result<Mutation, RequestError>]) -> Result<(), RequestError> {
    if let Some((index, Err(failure))) = rows.iter().enumerate().find(|(_, row)| row.is_err()) {
        if matches!(failure, RequestError::KeyBlocked) {
            return Err(RequestError::KeyBlocked);
        }
        return Err(RequestError::BadBody(format!(
            "row {index}: {failure}; nothing was applied"
        )));
    }
    let mut sizes = std::collections::HashMap::new();
    for row in rows.iter().flatten() {
        let size = sizes.entry(&row.key.partition).or_insert(0_usize);
        *size += 1;
        if *size > limits::ATOMIC_ROWS_MAX {
            let what = "rows of one partition";
            return Err(RequestError::BatchTooLarge {
                what,
                max: limits::ATOMIC_ROWS_MAX,
            });
        }
    }
    Ok(())
}
