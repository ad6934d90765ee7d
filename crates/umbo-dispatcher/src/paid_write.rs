//! A write in one shard with a separate charge: a piece of an upload, chunks of a large value, or rows of a load.
//!
//! It has the phases of a request: price, admit, locate, wait, fetch, settle; each stage is made of the one before.
//! Rows that a shard did not begin are not charged.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use umbo_hotkey::{WriteScope, majority};
use umbo_http::RequestError;
use umbo_quota::{ActualUsage, CostHint, Meeting, Mode, ShardShare, format_amount};
use umbo_store::{
    Atomicity, Change, Durability, FencingToken, Mutation, StoreError, WriteError, WriteRequest,
    Written,
};
use umbo_types::{
    Deadline, Key, NamespaceId, Operation, RequestUnits, ShardId, Timestamp, Version,
};

use crate::charge::Charge;
use crate::dispatcher::Dispatcher;
use crate::operation::stored_form::store_all;
use crate::phase::fetch;
use crate::phase::identify::Identified;
use crate::store_call::StoreCall;

/// Wait before a shard is asked again, unless its error names a wait.
const RETRY_WAIT: Duration = Duration::from_millis(200);

/// Rows of one shard to write, each alone.
#[derive(Debug, Clone)]
pub struct PaidRows {
    /// The dataset, or a namespace without a name.
    pub namespace: NamespaceId,
    /// The shard of all of them.
    pub shard: ShardId,
    /// The rows.
    pub mutations: Vec<Mutation>,
    /// The run of a load that writes, if one does.
    pub run: Option<FencingToken>,
}

/// The answers to the mutations, and their charge.
#[derive(Debug)]
pub struct PaidWrite {
    /// The answers, in the order of the rows.
    pub answers: Vec<Result<Written, WriteError>>,
    /// The charge of all of them.
    pub charged: RequestUnits,
}

/// Writes rows. `payer` holds the paying caller, the namespace and the deadline.
pub(crate) async fn paid_write(
    dispatcher: &Arc<Dispatcher>,
    payer: Identified,
    rows: PaidRows,
) -> Result<PaidWrite, RequestError> {
    let mut charge = Charge::new(dispatcher, payer);
    let priced = PricedWrite::new(dispatcher, &mut charge, rows).await;
    let written = async { priced.admit()?.locate()?.fetch().await };
    let written = written.await.map(AnsweredWrite::settle);
    if let Err(error) = &written {
        charge.close_failed(error);
    }
    written
}

/// Rows of an identified payer in their stored form, with the bytes that each is charged for.
struct PricedWrite<'a> {
    dispatcher: &'a Arc<Dispatcher>,
    charge: &'a mut Charge,
    rows: PaidRows,
    bytes: Vec<u64>,
}

/// Rows that the quotas of their payer have admitted.
struct AdmittedWrite<'a>(PricedWrite<'a>);

/// Rows that the quotas of their shard have admitted too.
struct LocatedWrite<'a>(PricedWrite<'a>);

/// Rows that the shard has answered for.
struct AnsweredWrite<'a> {
    charge: &'a mut Charge,
    bytes: Vec<u64>,
    answers: Vec<Result<Written, WriteError>>,
    service_time: Duration,
}

impl<'a> PricedWrite<'a> {
    async fn new(
        dispatcher: &'a Arc<Dispatcher>,
        charge: &'a mut Charge,
        mut rows: PaidRows,
    ) -> Self {
        let bytes = rows.mutations.iter().map(bytes_of).collect();
        let paying = Arc::clone(&charge.identified().namespace);
        // Parts of loads are in a separate namespace, as they were sent.
        if paying.has_dataset(rows.namespace) {
            store_all(rows.mutations.iter_mut(), &paying).await;
        }
        Self {
            dispatcher,
            charge,
            rows,
            bytes,
        }
    }

    fn admit(self) -> Result<AdmittedWrite<'a>, RequestError> {
        self.charge.admit(CostHint {
            body_len: Some(self.bytes.iter().sum()),
            ..CostHint::default()
        })?;
        Ok(AdmittedWrite(self))
    }
}

impl<'a> AdmittedWrite<'a> {
    fn locate(self) -> Result<LocatedWrite<'a>, RequestError> {
        let Self(write) = self;
        let whole = ShardShare {
            shard: write.rows.shard,
            parts: write.rows.mutations.len() as u32,
        };
        let now = write.dispatcher.clock.monotonic();
        write.charge.admit_shards(&[whole], now)?;
        Ok(LocatedWrite(write))
    }
}

impl<'a> LocatedWrite<'a> {
    async fn fetch(self) -> Result<AnsweredWrite<'a>, RequestError> {
        let PricedWrite {
            dispatcher,
            charge,
            rows,
            bytes,
        } = self.0;
        charge.begin_store();
        let paying = Arc::clone(&charge.identified().namespace);
        let is_live = paying.dataset == rows.namespace;
        let (context, shard) = (charge.identified().context, rows.shard);
        let call = call_of(charge, shard);
        let partition = majority(rows.mutations.iter().map(|one| &one.key.partition));
        let source = call.source(paying.id, partition);
        // No answer is cached of a dataset that is being built, or of the bytes of parts.
        let cached = rows.mutations.iter().filter(|_| is_live);
        let keys: Vec<Key> = cached.map(|one| one.key.clone()).collect();
        let kept = rows.mutations.iter();
        let kept = kept.filter_map(|one| one.condition.kept_version()).max();
        let request = WriteRequest {
            namespace: rows.namespace,
            epoch: if is_live { paying.epoch } else { 0 },
            mutations: rows.mutations,
            atomicity: Atomicity::None,
            durability: Durability::Sync,
            proposed: Version::proposed_at(context.now),
            idempotency: None,
            // No shard takes a version that its clock has not reached.
            not_before: kept.map(|version| Timestamp(version.0)),
            run: rows.run,
        };
        let scopes = keys.iter().map(|key| WriteScope::Row(paying.id, key));
        let writing = fetch::write(dispatcher, shard, &call, source, scopes, request);
        let until = context.deadline.instant();
        let timed = fetch::until(until, shard, &call, true, writing).await?;
        Ok(AnsweredWrite {
            charge,
            bytes,
            answers: timed.answer,
            service_time: timed.time.charged,
        })
    }
}

impl AnsweredWrite<'_> {
    fn settle(self) -> PaidWrite {
        let mut work = ActualUsage {
            service_time: self.service_time,
            ..ActualUsage::default()
        };
        for (answer, bytes) in self.answers.iter().zip(self.bytes) {
            let is_unbegun = |error: &WriteError| RequestError::from(error.clone()).is_unbegun();
            if !answer.as_ref().is_err_and(is_unbegun) {
                work.rows += 1;
                work.writes += 1;
                work.write_bytes += bytes;
            }
        }
        let charged = if work.rows > 0 {
            self.charge.settle(&work)
        } else {
            self.charge.release();
            RequestUnits::ZERO
        };
        PaidWrite {
            answers: self.answers,
            charged,
        }
    }
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
        traceparent: None,
    }
}

/// Writes rows once; a temporary refusal is returned.
pub async fn write_once(
    dispatcher: &Arc<Dispatcher>,
    payer: &Identified,
    rows: PaidRows,
) -> Result<PaidWrite, RequestError> {
    paid_write(dispatcher, payer.for_write(dispatcher), rows).await
}

/// Charges bytes that were read for a payer, unless its quotas are used up.
pub fn charge_read(
    dispatcher: &Arc<Dispatcher>,
    payer: Identified,
    bytes: u64,
) -> Result<(), RequestError> {
    let mut charge = Charge::new(dispatcher, payer);
    charge.admit(CostHint::default())?;
    charge.settle(&ActualUsage {
        reads: 1,
        read_bytes: bytes,
        ..ActualUsage::default()
    });
    Ok(())
}

/// Returns which quota of a payer would make it wait more than `time` to write this many bytes to a shard, if one does.
pub fn too_slow(
    dispatcher: &Arc<Dispatcher>,
    payer: Identified,
    (shard, bytes): (ShardId, u64),
    time: Duration,
) -> Option<String> {
    let hint = CostHint {
        body_len: Some(bytes),
        ..CostHint::default()
    };
    let whole = ShardShare { shard, parts: 1 };
    let charge = Charge::new(dispatcher, payer);
    let explained = charge.explain(Operation::BatchWrite, hint, &[whole]);
    let is_slow = |meeting: &&Meeting| {
        let meanwhile = meeting.limit.rate.saturating_mul(time.as_secs());
        meeting.policy.mode == Mode::Enforce && meeting.price > meanwhile
    };
    let slow = explained.meets.iter().find(is_slow)?;
    let (policy, unit, rate) = (&slow.policy.name, slow.policy.unit, slow.limit.rate);
    Some(format!(
        "policy '{policy}' allows {} {unit} a second, so {bytes} bytes take {} s",
        format_amount(unit, rate),
        slow.price / rate.max(1)
    ))
}

/// Writes mutations of one shard, which may be repeated. A temporary refusal is retried until `patience` runs out.
pub async fn patient_write(
    dispatcher: &Arc<Dispatcher>,
    payer: &Identified,
    namespace: NamespaceId,
    mutations: &[Mutation],
    patience: Duration,
) -> Result<RequestUnits, RequestError> {
    let Some(first) = mutations.first() else {
        return Ok(RequestUnits::ZERO);
    };
    let shard = dispatcher.shard_map.locate(namespace, &first.key.partition);
    let write = || async move {
        let rows = PaidRows {
            namespace,
            shard,
            mutations: mutations.to_vec(),
            run: None,
        };
        let written = paid_write(dispatcher, payer.for_write(dispatcher), rows).await?;
        match written.answers.into_iter().find_map(Result::err) {
            None => Ok(written.charged),
            Some(error) => Err(error.into()),
        }
    };
    let clock = &dispatcher.clock;
    let begun = clock.monotonic();
    loop {
        let written = write().await;
        let left = patience.saturating_sub(clock.monotonic().saturating_duration_since(begun));
        match written.as_ref().err().and_then(wait_of) {
            Some(wait) if wait < left => sleep(wait).await,
            _ => return written,
        }
    }
}

/// Returns the bytes of keys and value that a put writes; a removal writes none.
pub(crate) fn bytes_of(mutation: &Mutation) -> u64 {
    match &mutation.change {
        Change::Put { value, .. } => {
            let Key { partition, sort } = &mutation.key;
            (partition.as_bytes().len() + sort.as_bytes().len() + value.bytes.len()) as u64
        }
        Change::Upload(step) => step.len() as u64,
        Change::Delete | Change::Increment { .. } => 0,
    }
}

/// Returns how long to wait before a repetition may succeed, if the refusal is temporary.
pub fn wait_of(failure: &RequestError) -> Option<Duration> {
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
        _ => None,
    }
}

impl Identified {
    /// Returns the same caller as the payer of a separate write, which begins now and has the time of a request.
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
