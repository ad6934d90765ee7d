//! Rows of loads themselves, read and written through the queues of the shards. The work of a request is added up, and
//! charged at its end. The work of the runner is free: a load pays for the bytes of its parts and for the rows that it
//! applies.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use umbo_http::RequestError;
use umbo_loads::{LoadRecord, RowSource, layout};
use umbo_overload::Entry;
use umbo_quota::ActualUsage;
use umbo_store::{
    Atomicity, Durability, LoadRun, Mutation, Page, RangeRequest, ScanPage, ScanRequest,
    VersionOrder, WriteError, WriteRequest, Written,
};
use umbo_types::{
    CallerId, Criticality, Deadline, NamespaceId, Operation, RequestUnits, ShardId, Version,
};

use crate::charge::Charge;
use crate::dispatcher::Dispatcher;
use crate::paid_write::bytes_of;
use crate::phase::fetch;
use crate::store_call::StoreCall;

/// The rows of loads, as one caller or the runner sees them.
#[derive(Debug, Clone)]
pub(super) struct OwnRows {
    dispatcher: Arc<Dispatcher>,
    criticality: Criticality,
    /// Hash of whom the queues count the work for.
    caller: u64,
    /// `None` for the runner.
    payer: Option<CallerId>,
    /// The estimate of the request at the plain price.
    size: RequestUnits,
    tally: Arc<WorkTally>,
}

/// Work on rows of loads.
#[derive(Debug, Default)]
pub(super) struct WorkTally(Mutex<ActualUsage>);

impl WorkTally {
    /// Returns the work so far.
    pub(super) fn work(&self) -> ActualUsage {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a change of Umbo's records, which is handed to each of `shards`.
    pub(super) fn changed(&self, shards: usize) {
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
    pub(super) fn of_request(
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
    pub(super) fn of_operator(dispatcher: &Arc<Dispatcher>, caller: u64) -> Self {
        Self::free(dispatcher, Criticality::CriticalPlus, caller)
    }

    /// Returns the rows as the runner sees them: its work gives way to all other.
    pub(super) fn of_runner(dispatcher: &Arc<Dispatcher>) -> Self {
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
            attributes: None,
            is_continued: false,
            traceparent: None,
        }
    }

    /// Writes rows of one partition, each alone; `run` is the run of the load that does, if one does.
    pub(super) async fn write(
        &self,
        namespace: NamespaceId,
        mutations: Vec<Mutation>,
        run: Option<LoadRun>,
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
}

impl OwnRows {
    /// Notes in each shard that a load was created, by a row whose version is the highest of the shard then. Returns the
    /// shards that have not confirmed it: without it nothing tells which rows there are newer.
    pub(super) async fn note_creation(&self, load: &LoadRecord) -> Vec<u16> {
        let dispatcher = &self.dispatcher;
        let grows_by_shard = dispatcher.store.capabilities().versions == VersionOrder::Shard;
        if !grows_by_shard || !load.is_as_of_creation() {
            return Vec::new();
        }
        let (map, report) = (&dispatcher.shard_map, load.report_id());
        let shards = map.owners_of(0..=umbo_routing::SLOTS - 1);
        let keys = layout::creation_keys(&shards, |partition| map.locate(report, partition));
        let noting = keys.into_iter().map(async |(shard, key)| {
            let noted = self.write_one(report, layout::creation_row(key)).await;
            let refused = noted.err()?;
            tracing::debug!(shard = shard.0, %refused, "the creation of a load was not noted in a shard");
            Some(shard.0)
        });
        join_all(noting).await.into_iter().flatten().collect()
    }

    /// Changes a row; says whether the condition was true.
    pub(super) async fn write_one(
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
    pub(super) async fn scan(
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
}

#[async_trait]
impl RowSource for OwnRows {
    type Error = RequestError;

    async fn range(&self, request: &RangeRequest) -> Result<Page, RequestError> {
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

    fn damaged(&self, what: &str) -> RequestError {
        RequestError::Internal(format!("what is stored of a load cannot be read: {what}"))
    }
}
