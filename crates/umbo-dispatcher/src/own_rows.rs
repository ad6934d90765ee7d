//! Rows that a plane above keeps for itself, read and written through the queues of the shards. The work of a request
//! is added up, and charged at its end. Work of operators and background work is free.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use umbo_http::RequestError;
use umbo_overload::Entry;
use umbo_quota::ActualUsage;
use umbo_store::{
    Atomicity, Durability, FencingToken, Mutation, Page, RangeRequest, ScanPage, ScanRequest,
    WriteError, WriteRequest, Written,
};
use umbo_types::{
    Caller, CallerId, Criticality, Deadline, NamespaceId, Operation, RequestUnits, ShardId, Version,
};

use crate::charge::Charge;
use crate::dispatcher::Dispatcher;
use crate::overload::hash_of;
use crate::paid_write::bytes_of;
use crate::phase::fetch;
use crate::store_call::StoreCall;

/// Rows of a plane above, as one of its users sees them.
#[derive(Debug, Clone)]
pub struct OwnRows {
    dispatcher: Arc<Dispatcher>,
    criticality: Criticality,
    /// Hash of the caller that the queues count the work for.
    caller: u64,
    /// `None` for work that is free.
    payer: Option<CallerId>,
    /// The estimate of the request at the plain price.
    size: RequestUnits,
    tally: Arc<WorkTally>,
}

/// Work on rows of a plane above.
#[derive(Debug, Default)]
pub(crate) struct WorkTally(Mutex<ActualUsage>);

impl WorkTally {
    /// Returns the work so far.
    pub(crate) fn work(&self) -> ActualUsage {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a change of Umbo's records, which is handed to each of `shards`.
    pub(crate) fn changed(&self, shards: usize) {
        self.add(ActualUsage {
            rows: shards as u64,
            writes: shards as u64,
            ..ActualUsage::default()
        });
    }

    fn add(&self, more: ActualUsage) {
        let mut work = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        work.rows += more.rows;
        work.reads += more.reads;
        work.writes += more.writes;
        work.read_bytes += more.read_bytes;
        work.write_bytes += more.write_bytes;
        work.service_time += more.service_time;
    }
}

impl OwnRows {
    /// Returns the rows as a request sees them, whose work is added to `tally`.
    pub(crate) fn of_request(
        dispatcher: &Arc<Dispatcher>,
        charge: &Charge,
        tally: &Arc<WorkTally>,
    ) -> Self {
        Self {
            dispatcher: Arc::clone(dispatcher),
            criticality: charge.identified().criticality,
            caller: charge.caller_hash(),
            payer: Some(charge.payer_id()),
            size: charge.estimate(),
            tally: Arc::clone(tally),
        }
    }

    /// Returns the rows as an operator sees them: under overload, too.
    pub fn of_operator(dispatcher: &Arc<Dispatcher>, caller: u64) -> Self {
        Self::free(dispatcher, Criticality::CriticalPlus, caller)
    }

    /// Returns the rows for a report to a caller: it waits as an ordinary request of the caller does.
    pub fn of_report(dispatcher: &Arc<Dispatcher>, caller: &Caller) -> Self {
        let criticality = Criticality::default().min(caller.criticality_max);
        Self::free(dispatcher, criticality, hash_of(caller.id.as_str()))
    }

    /// Returns the rows for background work, which gives way to all other work.
    pub fn in_background(dispatcher: &Arc<Dispatcher>) -> Self {
        Self::free(dispatcher, Criticality::Sheddable, 0)
    }

    fn free(dispatcher: &Arc<Dispatcher>, criticality: Criticality, caller: u64) -> Self {
        Self {
            dispatcher: Arc::clone(dispatcher),
            criticality,
            caller,
            payer: None,
            size: RequestUnits::ZERO,
            tally: Arc::default(),
        }
    }

    fn call(&self, operation: Operation) -> StoreCall {
        let timeout: Duration = self.dispatcher.limits.default_timeout;
        let deadline = Deadline::after(self.dispatcher.clock.monotonic(), timeout);
        StoreCall {
            operation,
            entry: Entry {
                criticality: self.criticality,
                caller: self.caller,
                price: self.size,
                deadline,
                is_above_share: false,
            },
            size: self.size,
            timeout,
            payer: self.payer.clone(),
            traceparent: None,
        }
    }

    /// Writes rows of one partition, each alone; `run` is the run of a load that writes, if one does.
    pub async fn write(
        &self,
        namespace: NamespaceId,
        mutations: Vec<Mutation>,
        run: Option<FencingToken>,
    ) -> Result<Vec<Result<Written, WriteError>>, RequestError> {
        let dispatcher = &self.dispatcher;
        let Some(first) = mutations.first() else {
            return Ok(Vec::new());
        };
        let shard = dispatcher.shard_map.locate(namespace, &first.key.partition);
        let call = self.call(Operation::BatchWrite);
        let source = call.source(namespace, Some(&first.key.partition));
        let (rows, write_bytes) = (mutations.len() as u64, mutations.iter().map(bytes_of).sum());
        let request = WriteRequest {
            namespace,
            epoch: 0,
            mutations,
            atomicity: Atomicity::None,
            durability: Durability::Sync,
            proposed: Version::proposed_at(dispatcher.clock.wall()),
            idempotency: None,
            not_before: None,
            run,
        };
        let until = call.entry.deadline.instant();
        let writing = fetch::write(dispatcher, shard, &call, source, [], request);
        let written = fetch::until(until, shard, &call, true, writing).await?;
        self.tally.add(ActualUsage {
            rows,
            writes: rows,
            write_bytes,
            service_time: written.time.charged,
            ..ActualUsage::default()
        });
        Ok(written.answer)
    }

    /// Changes a row; returns whether the condition was true.
    pub async fn write_one(
        &self,
        namespace: NamespaceId,
        mutation: Mutation,
    ) -> Result<bool, RequestError> {
        let answers = self.write(namespace, vec![mutation], None).await?;
        match answers.into_iter().next() {
            Some(Ok(_)) => Ok(true),
            Some(Err(WriteError::ConditionFailed { .. })) => Ok(false),
            Some(Err(error)) => Err(error.into()),
            None => Err(RequestError::Internal(
                "a write was not answered".to_owned(),
            )),
        }
    }

    /// Reads a chunk of a scan of one shard.
    pub async fn scan(
        &self,
        shard: ShardId,
        request: &ScanRequest,
    ) -> Result<ScanPage, RequestError> {
        let call = self.call(Operation::Scan);
        let namespace = request.namespace;
        let reading = fetch::scan(&self.dispatcher, (shard, namespace), &call, request);
        let until = call.entry.deadline.instant();
        let read = fetch::until(until, shard, &call, false, reading).await?;
        Ok(read.answer?)
    }

    /// Reads a chunk of a range.
    pub async fn range(&self, request: &RangeRequest) -> Result<Page, RequestError> {
        let dispatcher = &*self.dispatcher;
        let shard = dispatcher
            .shard_map
            .locate(request.namespace, &request.partition);
        let call = self.call(Operation::Range);
        let namespace = request.namespace;
        let reading = fetch::range(dispatcher, (shard, namespace), &call, request);
        let until = call.entry.deadline.instant();
        let read = fetch::until(until, shard, &call, false, reading).await?;
        let page = read.answer?;
        self.tally.add(ActualUsage {
            rows: page.touched.rows,
            reads: 1,
            read_bytes: page.touched.bytes,
            service_time: read.time.charged,
            ..ActualUsage::default()
        });
        Ok(page)
    }
}
