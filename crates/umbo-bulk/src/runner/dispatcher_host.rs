//! The dispatcher as the runner of loads uses it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use umbo_control::events::Origin;
use umbo_control::{ControlError, NamespaceEntry};
use umbo_dispatcher::Dispatcher;
use umbo_dispatcher::plane::{
    Identified, OwnRows, PaidRows, charge_read, check_blocked, too_slow, wait_of, write_once,
};
use umbo_http::{RequestError, problem};
use umbo_loads::{LoadRecord, LoadStep};
use umbo_store::{
    FencingToken, Mutation, Page, RangeRequest, ScanPage, ScanRequest, StoreError, UPLOAD_IDLE,
};
use umbo_types::{Key, NamespaceId, PartitionKey, ShardId, Timestamp, limits};

use super::LoadRunner;
use super::host::{LoadHost, RowCounts, WriteAnswers};
use crate::host_error::HostError;
use crate::waits::LoadWaits;

/// The longest time for a quota to let a run store another chunk of a long value. A shard gives up an unfinished value
/// after twice that time. The rest is for waits of the run, which are up to 30 s longer, and for the time without a
/// place.
const CHUNK_WAIT_MAX: Duration = UPLOAD_IDLE.checked_div(2).expect("2 is not 0");
/// Wait before Umbo's own records are asked for a change again.
const RECORDS_WAIT: Duration = Duration::from_secs(1);
/// Wait before a shard is asked again that has failed.
const FAILED_WAIT: Duration = Duration::from_secs(1);

/// Applies loads until the dispatcher drains and its runs have let their loads go.
pub(crate) async fn run_loads(dispatcher: Arc<Dispatcher>, waits: Arc<LoadWaits>) {
    let host = RunnerHost {
        rows: OwnRows::in_background(&dispatcher),
        dispatcher,
        waits,
    };
    LoadRunner::new(Arc::new(host)).run().await;
}

#[derive(Debug)]
struct RunnerHost {
    dispatcher: Arc<Dispatcher>,
    rows: OwnRows,
    waits: Arc<LoadWaits>,
}

impl RunnerHost {
    /// Returns the namespace of a load, unless it was removed.
    fn namespace(&self, load: &LoadRecord) -> Result<Arc<NamespaceEntry>, HostError> {
        let found = self.dispatcher.control.namespaces.find(&load.name);
        let found = found.ok().filter(|entry| entry.id == load.namespace_id());
        found.ok_or(HostError::Gone)
    }

    /// Returns who pays for the rows of a load.
    fn payer(&self, load: &LoadRecord) -> Result<Identified, HostError> {
        let (paying, by) = (self.namespace(load)?, &load.created_by);
        Ok(Identified::in_background(&self.dispatcher, by, paying))
    }
}

/// Returns whether and when a failed operation is tried again.
fn host_error(error: &RequestError) -> HostError {
    let reason = problem::detail(error);
    if let Some(after) = wait_of(error) {
        return HostError::Wait { after, reason };
    }
    match error {
        RequestError::Store(StoreError::NamespaceGone { .. }) => HostError::Gone,
        RequestError::Store(StoreError::Overtaken { .. }) => HostError::Overtaken,
        RequestError::Store(StoreError::Corrupt { .. }) => HostError::Never(reason),
        _ => HostError::Wait {
            after: FAILED_WAIT,
            reason,
        },
    }
}

fn of_control(error: &ControlError) -> HostError {
    match error {
        // Another step came first.
        ControlError::Load(_)
        | ControlError::Version(_)
        | ControlError::NamespaceNotFound { .. } => HostError::Gone,
        other => HostError::Wait {
            after: RECORDS_WAIT,
            reason: other.to_string(),
        },
    }
}

#[async_trait]
impl LoadHost for RunnerHost {
    fn lives_from(&self, shard: ShardId) -> Timestamp {
        self.dispatcher.lives_from(shard)
    }

    fn monotonic(&self) -> Instant {
        self.dispatcher.clock.monotonic()
    }

    fn is_alone(&self) -> bool {
        // Rows that are in this process are in a folder that it has locked.
        self.dispatcher.store.capabilities().answers_at_once
    }

    fn is_ending(&self) -> bool {
        self.dispatcher.is_draining()
    }

    async fn changed(&self) {
        self.waits.changed().await;
    }

    fn loads(&self) -> Vec<(String, Arc<LoadRecord>)> {
        self.dispatcher.control.loads.all()
    }

    fn load(&self, id: &str) -> Option<Arc<LoadRecord>> {
        self.dispatcher.control.loads.get(id)
    }

    async fn step(&self, id: &str, step: LoadStep) -> Result<(), HostError> {
        let load = self.load(id).ok_or(HostError::Gone)?;
        let origin = Origin {
            by: load.created_by.clone(),
            reason: None,
        };
        let (dispatcher, id) = (Arc::clone(&self.dispatcher), id.to_owned());
        let change = async move {
            let control = &dispatcher.control;
            control.step_load(&id, &step, false, &origin).await
        };
        let changed = self.dispatcher.control.run_to_end(change).await;
        changed.map(drop).map_err(|error| of_control(&error))
    }

    async fn forget_loads(&self) -> Result<(), HostError> {
        let forgotten = self.dispatcher.control.forget_loads().await;
        forgotten.map_err(|error| of_control(&error))
    }

    fn shard_of(&self, namespace: NamespaceId, partition: &PartitionKey) -> ShardId {
        self.dispatcher.shard_map.locate(namespace, partition)
    }

    async fn read(&self, request: &RangeRequest) -> Result<Page, HostError> {
        self.rows
            .range(request)
            .await
            .map_err(|error| host_error(&error))
    }

    async fn write(
        &self,
        namespace: NamespaceId,
        mutations: Vec<Mutation>,
        run: Option<FencingToken>,
    ) -> Result<WriteAnswers, HostError> {
        self.rows
            .write(namespace, mutations, run)
            .await
            .map_err(|error| host_error(&error))
    }

    async fn apply(
        &self,
        load: &LoadRecord,
        shard: ShardId,
        mutations: Vec<Mutation>,
        run: Option<FencingToken>,
    ) -> Result<WriteAnswers, HostError> {
        let payer = self.payer(load)?;
        let rows = PaidRows {
            namespace: load.rows_id(self.namespace(load)?.dataset),
            shard,
            mutations,
            run,
        };
        let written = write_once(&self.dispatcher, &payer, rows).await;
        written
            .map(|written| written.answers)
            .map_err(|error| host_error(&error))
    }

    async fn activate(&self, id: &str) -> Result<(), HostError> {
        let load = self.load(id).ok_or(HostError::Gone)?;
        let (namespace, target) = (self.namespace(&load)?, load.target.clone());
        let version = target.ok_or(HostError::Gone)?.version;
        let origin = Origin {
            by: load.created_by.clone(),
            reason: None,
        };
        let dispatcher = Arc::clone(&self.dispatcher);
        let change = async move {
            let control = &dispatcher.control;
            control
                .activate_version(&namespace, Some(version), false, &origin)
                .await
        };
        let changed = self.dispatcher.control.run_to_end(change).await;
        changed.map(drop).map_err(|error| of_control(&error))
    }

    fn shards(&self) -> Vec<ShardId> {
        let map = &self.dispatcher.shard_map;
        map.owners_of(0..=limits::SLOTS - 1)
    }

    async fn scan(
        &self,
        dataset: NamespaceId,
        shard: ShardId,
        after: Option<&Key>,
    ) -> Result<ScanPage, HostError> {
        let request = ScanRequest {
            namespace: dataset,
            slots: 0..=limits::SLOTS - 1,
            after: after.cloned(),
            rows_max: limits::CHUNK_ROWS_MAX,
            bytes_max: limits::CHUNK_BYTES_MAX,
            keys_only: false,
        };
        let page = self.rows.scan(shard, &request).await;
        page.map_err(|error| host_error(&error))
    }

    async fn charge_inflated(&self, load: &LoadRecord, bytes: u64) -> Result<(), HostError> {
        let charged = charge_read(&self.dispatcher, self.payer(load)?, bytes);
        charged.map_err(|error| host_error(&error))
    }

    fn live_dataset(&self, load: &LoadRecord) -> Result<NamespaceId, HostError> {
        Ok(self.namespace(load)?.dataset)
    }

    fn is_blocked(&self, load: &LoadRecord, key: &Key) -> bool {
        let checked = check_blocked(&self.dispatcher, load.namespace_id(), key, &load.created_by);
        checked.is_err()
    }

    fn never_stores(&self, load: &LoadRecord, key: &Key, len: usize) -> Option<String> {
        let payer = self.payer(load).ok()?;
        let dataset = load.rows_id(self.namespace(load).ok()?.dataset);
        let shard = self.shard_of(dataset, &key.partition);
        let chunk = (shard, limits::LARGE_CHUNK_LEN as u64);
        let slow = too_slow(&self.dispatcher, payer, chunk, CHUNK_WAIT_MAX)?;
        let most = CHUNK_WAIT_MAX.as_secs();
        Some(format!(
            "a value of {len} bytes cannot be stored: {slow}, and at most {most} s are possible"
        ))
    }

    fn default_ttl(&self, load: &LoadRecord) -> Option<Duration> {
        self.namespace(load).ok()?.default_ttl()
    }

    fn waits_for(&self, report: NamespaceId, reason: Option<String>) {
        let now = self.dispatcher.clock.monotonic();
        self.waits.set(report, reason, now);
    }

    fn got_on(&self, report: NamespaceId) {
        let now = self.dispatcher.clock.monotonic();
        self.waits.got_on(report, now);
    }

    fn counted(&self, counts: RowCounts) {
        let RowCounts {
            applied,
            skipped,
            rejected,
            bytes,
        } = counts;
        let metrics = &self.dispatcher.metrics;
        metrics.record_load_rows([applied, skipped, rejected], bytes);
    }

    fn ended(&self, has_failed: bool) {
        self.dispatcher.metrics.record_load_ended(has_failed);
    }
}
