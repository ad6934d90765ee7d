//! Rows of loads themselves, read and written through the queues of the shards. They cost their caller nothing: an
//! upload is charged when its bytes are written, and the report of a load is a few small rows.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::time::timeout_at;
use umbo_http::RequestError;
use umbo_loads::{LoadRecord, RowSource, layout};
use umbo_overload::Entry;
use umbo_store::{
    Atomicity, CallContext, Durability, LoadRun, Mutation, Page, RangeRequest, ScanPage,
    ScanRequest, StoreError, VersionOrder, WriteError, WriteRequest, Written,
};
use umbo_types::{Criticality, Deadline, NamespaceId, Operation, RequestUnits, ShardId, Version};

use crate::dispatcher::Dispatcher;
use crate::phase::identify::Identified;
use crate::phase::queue::with_permit;
use crate::phase::write_through::write_through;
use crate::store_call::{Answered, StoreCall};

/// The rows of loads, as one caller or the runner sees them.
#[derive(Debug, Clone)]
pub(super) struct OwnRows {
    dispatcher: Arc<Dispatcher>,
    criticality: Criticality,
    /// Hash of whom the queues count the work for.
    caller: u64,
}

impl OwnRows {
    /// Returns the rows as a request sees them.
    pub(super) fn of_request(
        dispatcher: &Arc<Dispatcher>,
        identified: &Identified,
        caller: u64,
    ) -> Self {
        Self {
            dispatcher: Arc::clone(dispatcher),
            criticality: identified.criticality,
            caller,
        }
    }

    /// Returns the rows as the runner sees them: its work gives way to all other.
    pub(super) fn of_runner(dispatcher: &Arc<Dispatcher>) -> Self {
        Self {
            dispatcher: Arc::clone(dispatcher),
            criticality: Criticality::Sheddable,
            caller: 0,
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
                price: RequestUnits::ZERO,
                deadline,
                is_above_share: false,
            },
            size: RequestUnits::ZERO,
            timeout,
            payer: None,
            attributes: None,
            is_continued: false,
            traceparent: None,
        }
    }

    fn late(&self, shard: ShardId, is_write: bool) -> RequestError {
        RequestError::DeadlineInStore {
            shard: Some(shard),
            is_write,
            timeout: self.dispatcher.limits.default_timeout,
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
        let (store, to_store) = (Arc::clone(&dispatcher.store), call.context());
        let work = async move {
            let written = store.write(&to_store, request).await;
            Answered::new(&to_store, written)
        };
        let writing = write_through(dispatcher, shard, &call, source, [], work);
        let written = timeout_at(call.entry.deadline.instant().into(), writing).await;
        Ok(written
            .unwrap_or_else(|_| Err(self.late(shard, true)))?
            .answer)
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
        let store = &self.dispatcher.store;
        self.read(
            (shard, request.namespace),
            Operation::Scan,
            async |context| store.scan(context, request).await,
        )
        .await
    }

    /// Reads from a namespace in a shard once it is this call's turn, within the deadline.
    async fn read<T>(
        &self,
        (shard, namespace): (ShardId, NamespaceId),
        operation: Operation,
        ask: impl AsyncFnOnce(&CallContext) -> Result<T, StoreError>,
    ) -> Result<T, RequestError> {
        let call = self.call(operation);
        let context = call.context();
        let work = async {
            let page = ask(&context).await;
            Answered::new(&context, page)
        };
        let mut work = pin!(work);
        let source = || call.source(namespace, None);
        let reading = with_permit(&self.dispatcher, shard, &call, source, work.as_mut());
        let read = timeout_at(call.entry.deadline.instant().into(), reading).await;
        Ok(read
            .unwrap_or_else(|_| Err(self.late(shard, false)))?
            .answer?)
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
        let store = &dispatcher.store;
        let place = (shard, request.namespace);
        self.read(place, Operation::Range, async |context| {
            store.range(context, request).await
        })
        .await
    }

    fn damaged(&self, what: &str) -> RequestError {
        RequestError::Internal(format!("what is stored of a load cannot be read: {what}"))
    }
}
