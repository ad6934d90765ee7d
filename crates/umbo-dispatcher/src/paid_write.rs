//! A write in one shard that is charged to a payer by itself: a piece of an upload, chunks of a large value, or rows of a
//! load.
//!
//! The same phases as those of a request: admit, locate, wait, fetch, settle. What a shard did not begin is not charged.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout_at};
use umbo_hotkey::{WriteScope, majority};
use umbo_http::RequestError;
use umbo_quota::{ActualUsage, CostHint, ShardShare};
use umbo_store::{
    Atomicity, Change, Durability, LoadRun, Mutation, StoreError, WriteError, WriteRequest, Written,
};
use umbo_types::{Deadline, Key, NamespaceId, Operation, RequestUnits, ShardId, Version};

use crate::charge::Charge;
use crate::dispatcher::Dispatcher;
use crate::operation::stored_form::store_all;
use crate::phase::identify::Identified;
use crate::phase::write_through::write_through;
use crate::store_call::{Answered, StoreCall};

/// Wait before a shard is asked again that said for how long in no other way.
const RETRY_WAIT: Duration = Duration::from_millis(200);

/// What became of the mutations, and what they were charged.
#[derive(Debug)]
pub(crate) struct PaidWrite {
    pub(crate) answers: Vec<Result<Written, WriteError>>,
    pub(crate) charged: RequestUnits,
}

/// Writes mutations that are all of one shard. `payer` says who pays, for which namespace, and until when; `run` is the
/// run of a load that writes, if one does.
pub(crate) async fn paid_write(
    dispatcher: &Arc<Dispatcher>,
    payer: Identified,
    namespace: NamespaceId,
    shard: ShardId,
    mutations: Vec<Mutation>,
    run: Option<LoadRun>,
) -> Result<PaidWrite, RequestError> {
    let mut charge = Charge::new(dispatcher, payer);
    let written = write(dispatcher, &mut charge, namespace, shard, mutations, run).await;
    if let Err(error) = &written {
        charge.close_failed(error);
    }
    written
}

async fn write(
    dispatcher: &Arc<Dispatcher>,
    charge: &mut Charge,
    namespace: NamespaceId,
    shard: ShardId,
    mut mutations: Vec<Mutation>,
    run: Option<LoadRun>,
) -> Result<PaidWrite, RequestError> {
    let bytes: Vec<u64> = mutations.iter().map(bytes_of).collect();
    let paying = Arc::clone(&charge.identified().namespace);
    let is_live = paying.dataset == namespace;
    // Parts are in a namespace of their own, as they were sent.
    if paying.has_dataset(namespace) {
        store_all(mutations.iter_mut(), &paying).await;
    }
    charge.admit(CostHint {
        body_len: Some(bytes.iter().sum()),
        ..CostHint::default()
    })?;
    let whole = ShardShare {
        shard,
        parts: mutations.len() as u32,
    };
    charge.admit_shards(&[whole], dispatcher.clock.monotonic())?;
    charge.begin_store();
    let context = charge.identified().context;
    let call = call_of(charge, shard);
    let partition = majority(mutations.iter().map(|one| &one.key.partition));
    let source = call.source(paying.id, partition);
    // No answer is cached of a dataset that is being built, or of the bytes of parts.
    let cached = mutations.iter().filter(|_| is_live);
    let keys: Vec<Key> = cached.map(|one| one.key.clone()).collect();
    let request = WriteRequest {
        namespace,
        epoch: if is_live { paying.epoch } else { 0 },
        mutations,
        atomicity: Atomicity::None,
        durability: Durability::Sync,
        proposed: Version::proposed_at(context.now),
        idempotency: None,
        not_before: None,
        run,
    };
    let (store, to_store) = (Arc::clone(&dispatcher.store), call.context());
    let work = async move {
        let written = store.write(&to_store, request).await;
        Answered::new(&to_store, written)
    };
    let scopes = keys.iter().map(|key| WriteScope::Row(paying.id, key));
    let writing = write_through(dispatcher, shard, &call, source, scopes, work);
    let timed = timeout_at(context.deadline.instant().into(), writing).await;
    let timed = timed.unwrap_or(Err(RequestError::DeadlineInStore {
        shard: Some(shard),
        is_write: true,
        timeout: context.timeout,
    }))?;
    let mut work = ActualUsage {
        service_time: timed.time.charged,
        ..ActualUsage::default()
    };
    for (answer, bytes) in timed.answer.iter().zip(bytes) {
        let is_unbegun = |error: &WriteError| RequestError::from(error.clone()).is_unbegun();
        if !answer.as_ref().is_err_and(is_unbegun) {
            work.rows += 1;
            work.writes += 1;
            work.write_bytes += bytes;
        }
    }
    let charged = if work.rows > 0 {
        charge.settle(&work)
    } else {
        charge.release();
        RequestUnits::ZERO
    };
    Ok(PaidWrite {
        answers: timed.answer,
        charged,
    })
}

/// Returns the call of a write that is charged by itself.
fn call_of(charge: &Charge, shard: ShardId) -> StoreCall {
    let identified = charge.identified();
    StoreCall {
        operation: identified.operation,
        entry: charge.entry(Some(shard)),
        size: charge.estimate(),
        timeout: identified.context.timeout,
        payer: Some(charge.payer_id()),
        attributes: charge.attributes_for_shards(),
        is_continued: false,
        traceparent: None,
    }
}

/// Writes mutations that are all of one shard, and may be repeated. What is refused for now is tried again as long as
/// `patience` allows.
pub(crate) async fn patient_write(
    dispatcher: &Arc<Dispatcher>,
    payer: &Identified,
    namespace: NamespaceId,
    mutations: &[Mutation],
    patience: Duration,
) -> Result<RequestUnits, RequestError> {
    let clock = &dispatcher.clock;
    let Some(first) = mutations.first() else {
        return Ok(RequestUnits::ZERO);
    };
    let shard = dispatcher.shard_map.locate(namespace, &first.key.partition);
    let begun = clock.monotonic();
    loop {
        let payer = payer.for_write(dispatcher);
        let written = paid_write(
            dispatcher,
            payer,
            namespace,
            shard,
            mutations.to_vec(),
            None,
        )
        .await;
        let failure = match written {
            Ok(written) => match written.answers.into_iter().find_map(Result::err) {
                None => return Ok(written.charged),
                Some(error) => RequestError::from(error),
            },
            Err(error) => error,
        };
        let left = patience.saturating_sub(clock.monotonic().saturating_duration_since(begun));
        match wait_of(&failure) {
            Some(wait) if wait < left => sleep(wait).await,
            _ => return Err(failure),
        }
    }
}

/// Returns the bytes of keys and value that a put writes; a removal writes none.
fn bytes_of(mutation: &Mutation) -> u64 {
    match &mutation.change {
        Change::Put { value, .. } => {
            let Key { partition, sort } = &mutation.key;
            (partition.as_bytes().len() + sort.as_bytes().len() + value.bytes.len()) as u64
        }
        Change::Upload(step) => step.len() as u64,
        Change::Delete | Change::Increment { .. } => 0,
    }
}

/// Returns when something may succeed that was refused for now.
pub(crate) fn wait_of(failure: &RequestError) -> Option<Duration> {
    match failure {
        RequestError::Rejected(rejection) => Some(rejection.wait),
        RequestError::Shed(report) => Some(report.wait.max(RETRY_WAIT)),
        RequestError::DeadlineBeforeStore { .. }
        | RequestError::Store(
            StoreError::QueueFull { .. }
            | StoreError::NodeBusy { .. }
            | StoreError::DeadlinePassed { .. }
            | StoreError::Unavailable { .. },
        ) => Some(RETRY_WAIT),
        RequestError::Store(StoreError::QuotaExceeded { retry_after, .. }) => Some(*retry_after),
        _ => None,
    }
}

impl Identified {
    /// Returns the same caller as the payer of a write of its own, which begins now and has the time of a request.
    pub(crate) fn for_write(&self, dispatcher: &Dispatcher) -> Self {
        let (now, timeout) = (
            dispatcher.clock.monotonic(),
            dispatcher.limits.default_timeout,
        );
        let mut payer = self.clone();
        payer.operation = Operation::BatchWrite;
        payer.started = now;
        payer.context.now = dispatcher.clock.wall();
        payer.context.deadline = Deadline::after(now, timeout);
        payer.context.timeout = timeout;
        payer
    }
}
