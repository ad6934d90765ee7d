//! The parts of a batch: what each shard is asked to write.
//!
//! Each part waits for a slot of its own shard and holds no other one meanwhile, so that a shard that
//! stalls keeps nobody from the others; nor does it keep what they answered from being told.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use tokio::time::timeout_at;
use umbo_hotkey::WriteScope;
use umbo_http::RequestError;
use umbo_quota::ShardShare;
use umbo_store::{Mutation, WriteError, WriteRequest, Written};
use umbo_types::{Key, ShardId};

use crate::deadline_budget::DeadlineBudget;
use crate::dispatcher::Dispatcher;
use crate::phase::write_through::write_through;
use crate::store_call::StoreCall;
use crate::store_call::{Answered, StoreTime, Timed};

/// What one shard is asked to write.
#[derive(Debug)]
pub(super) struct Part {
    shard: ShardId,
    /// Lines of the request, in the order of the mutations.
    pub(super) lines: Vec<usize>,
    mutations: Vec<Mutation>,
}

/// The outcome of one part: of each of its mutations, or of all of them.
pub(crate) type PartOutcome = Result<Vec<Result<Written, WriteError>>, RequestError>;

/// Adds a mutation to the part of its shard.
pub(super) fn add(parts: &mut Vec<Part>, shard: ShardId, line: usize, mutation: Mutation) {
    let at = parts.iter().position(|part| part.shard == shard);
    let at = at.unwrap_or_else(|| {
        parts.push(Part {
            shard,
            lines: Vec::new(),
            mutations: Vec::new(),
        });
        parts.len() - 1
    });
    parts[at].lines.push(line);
    parts[at].mutations.push(mutation);
}

/// Divides the batch by its shards, for their quotas.
pub(super) fn shares(parts: &[Part]) -> Vec<ShardShare> {
    let share = |part: &Part| ShardShare {
        shard: part.shard,
        parts: part.lines.len() as u32,
    };
    parts.iter().map(share).collect()
}

/// Writes all parts; `template` is a request without mutations.
pub(super) async fn write(
    dispatcher: &Arc<Dispatcher>,
    call: &StoreCall,
    parts: &mut [Part],
    template: &WriteRequest,
) -> Timed<Vec<PartOutcome>> {
    let mut call = call.clone();
    let mut until = call.entry.deadline.instant();
    if parts.len() > 1 {
        let budget = DeadlineBudget::until(call.entry.deadline, dispatcher.clock.monotonic());
        (call.entry.deadline, until) = (budget.work, budget.wait);
    }
    let works = parts.iter_mut().map(|part| {
        let request = WriteRequest {
            mutations: std::mem::take(&mut part.mutations),
            ..template.clone()
        };
        write_part(dispatcher, &call, until, part.shard, request)
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

async fn write_part(
    dispatcher: &Arc<Dispatcher>,
    call: &StoreCall,
    until: Instant,
    shard: ShardId,
    request: WriteRequest,
) -> Result<Timed<Vec<Result<Written, WriteError>>>, RequestError> {
    let (store, namespace) = (Arc::clone(&dispatcher.store), request.namespace);
    let keys: Vec<Key> = request
        .mutations
        .iter()
        .map(|one| one.key.clone())
        .collect();
    let scopes = keys.iter().map(|key| WriteScope::Row(namespace, key));
    let context = call.context();
    let work = async move {
        let written = store.write(&context, request).await;
        Answered::new(&context, written)
    };
    let written = timeout_at(
        until.into(),
        write_through(dispatcher, shard, call, scopes, work),
    )
    .await;
    // It goes on where it is, and nobody waits: whether it is applied is not known.
    written.unwrap_or(Err(RequestError::DeadlineInStore {
        shard: Some(shard),
        is_write: true,
        timeout: call.timeout,
    }))
}
