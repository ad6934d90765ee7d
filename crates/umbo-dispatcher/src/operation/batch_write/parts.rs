//! The parts of a batch: the writes of each shard.
//!
//! Each part waits for a permit of its shard and holds no other permit meanwhile. So a stalled shard delays neither the
//! other parts nor their answers.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use umbo_control::NamespaceEntry;
use umbo_hotkey::{WriteScope, majority};
use umbo_http::RequestError;
use umbo_quota::ShardShare;
use umbo_store::{Idempotency, Mutation, StoreError, WriteError, WriteRequest, Written};
use umbo_types::{Key, NamespaceId, ShardId};

use crate::deadline_budget::DeadlineBudget;
use crate::dispatcher::Dispatcher;
use crate::phase::fetch::{self, StoreRows};
use crate::store_call::{StoreCall, StoreTime, Timed};

/// The write that one shard is asked for.
#[derive(Debug)]
pub(super) struct ShardWrite {
    shard: ShardId,
    /// Lines of the request, in the order of the mutations.
    pub(super) lines: Vec<usize>,
    mutations: Vec<Mutation>,
    /// Recognises a repetition of the part.
    idempotency: Option<Idempotency>,
}

/// The outcome of one part: of each of its mutations, or of all of them.
pub(crate) type PartOutcome = Result<Vec<Result<Written, WriteError>>, RequestError>;

/// Adds a mutation to the part of its shard.
pub(super) fn add(parts: &mut Vec<ShardWrite>, shard: ShardId, line: usize, mutation: Mutation) {
    let at = parts.iter().position(|part| part.shard == shard);
    let at = at.unwrap_or_else(|| {
        parts.push(ShardWrite {
            shard,
            lines: Vec::new(),
            mutations: Vec::new(),
            idempotency: None,
        });
        parts.len() - 1
    });
    parts[at].lines.push(line);
    parts[at].mutations.push(mutation);
}

/// Gives each part the idempotency key that recognises its repetition; `make` makes it from the shard and the lines of
/// the part.
pub(super) fn recognise(parts: &mut [ShardWrite], make: impl Fn(ShardId, Vec<u32>) -> Idempotency) {
    for part in parts {
        let lines = part.lines.iter().map(|&line| line as u32).collect();
        part.idempotency = Some(make(part.shard, lines));
    }
}

/// Divides the batch by its shards, for their quotas.
pub(super) fn shares(parts: &[ShardWrite]) -> Vec<ShardShare> {
    let share = |part: &ShardWrite| ShardShare {
        shard: part.shard,
        parts: part.lines.len() as u32,
    };
    parts.iter().map(share).collect()
}

/// Writes all parts of a batch of `namespace`; `template` is a request without mutations.
pub(super) async fn write(
    dispatcher: &Arc<Dispatcher>,
    call: &StoreCall,
    namespace: &NamespaceEntry,
    parts: &mut [ShardWrite],
    template: &WriteRequest,
) -> Timed<Vec<PartOutcome>> {
    let mut call = call.clone();
    let mut until = call.entry.deadline.instant();
    let is_divided = parts.len() > 1;
    if is_divided {
        let budget = DeadlineBudget::until(call.entry.deadline, dispatcher.clock.monotonic());
        (call.entry.deadline, until) = (budget.work, budget.wait);
    }
    let works = parts.iter_mut().map(|part| {
        let request = WriteRequest {
            mutations: std::mem::take(&mut part.mutations),
            idempotency: part.idempotency.take(),
            ..template.clone()
        };
        // One part is the whole batch, which is repeated as any request is.
        let again = is_divided.then(|| request.clone());
        write_part(
            dispatcher,
            &call,
            until,
            (namespace, part.shard),
            (request, again),
        )
    });
    let mut time = StoreTime::default();
    let outcomes = join_all(works).await.into_iter();
    let answer = outcomes.map(|outcome| {
        outcome.map(|timed| {
            time += timed.time;
            timed.answer
        })
    });
    Timed {
        answer: answer.collect(),
        time,
    }
}

/// Writes a part. If its shard says that the dataset was dropped and the namespace still exists, the part is written
/// once more under the live dataset. Rows that other shards have applied last, so a batch of several parts must not be
/// repeated as a whole.
async fn write_part(
    dispatcher: &Arc<Dispatcher>,
    call: &StoreCall,
    until: Instant,
    (namespace, shard): (&NamespaceEntry, ShardId),
    (request, again): (WriteRequest, Option<WriteRequest>),
) -> StoreRows<Written, WriteError> {
    let written = write_once(dispatcher, call, until, (namespace.id, shard), request).await?;
    let (Some(again), Some(dropped)) = (again, dropped(&written.answer)) else {
        return Ok(written);
    };
    let found = dispatcher.control.find_after_drop(dropped, namespace);
    let Some(found) = Box::pin(found).await? else {
        return Ok(written);
    };
    let again = WriteRequest {
        namespace: found.dataset,
        epoch: found.epoch,
        ..again
    };
    write_once(dispatcher, call, until, (namespace.id, shard), again).await
}

/// Returns the id that a shard has refused as removed; it refuses all of a part, or nothing.
fn dropped(answers: &[Result<Written, WriteError>]) -> Option<NamespaceId> {
    match answers.first() {
        Some(Err(WriteError::Store(StoreError::NamespaceGone { namespace, .. }))) => {
            Some(*namespace)
        }
        _ => None,
    }
}

async fn write_once(
    dispatcher: &Arc<Dispatcher>,
    call: &StoreCall,
    until: Instant,
    (namespace, shard): (NamespaceId, ShardId),
    request: WriteRequest,
) -> StoreRows<Written, WriteError> {
    let keys: Vec<Key> = request
        .mutations
        .iter()
        .map(|one| one.key.clone())
        .collect();
    let scopes = keys.iter().map(|key| WriteScope::Row(namespace, key));
    let partition = majority(keys.iter().map(|key| &key.partition));
    let source = call.source(namespace, partition);
    let writing = fetch::write(dispatcher, shard, call, source, scopes, request);
    fetch::until(until, shard, call, true, writing).await
}
