//! The dispatcher, as the loads that it runs use it.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{AddAssign, Deref};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::time::sleep;
use umbo_loads::{LoadRecord, LoadStep};
use umbo_store::{FencingToken, Mutation, Page, RangeRequest, ScanPage, WriteError, Written};
use umbo_types::{Key, NamespaceId, PartitionKey, ShardId, Timestamp};

use super::places::RunPlaces;
use crate::host_error::HostError;
use crate::stored_rows::RowSource;

/// Shortest and longest wait before inflated bytes are charged again.
const INFLATE_WAIT: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// The answers to a write, in the order of its mutations.
pub(crate) type WriteAnswers = Vec<Result<Written, WriteError>>;

/// A dispatcher, as loads use it. Every call of the store goes through the queues of the shards at criticality
/// sheddable.
#[async_trait]
pub(crate) trait LoadHost: fmt::Debug + Send + Sync {
    /// Returns the begin of the life of a row that is written to a shard now.
    fn lives_from(&self, shard: ShardId) -> Timestamp;

    /// Returns a time that only grows.
    fn monotonic(&self) -> Instant;

    /// Returns whether no other dispatcher has the store. Then a run of another runner has ended with its process.
    fn is_alone(&self) -> bool;

    /// Returns whether this dispatcher is about to end: its runs let their loads go.
    fn is_ending(&self) -> bool;

    /// Waits for a change in this dispatcher that a runner looks for: a part is whole, or a load was sealed. Changes in
    /// other dispatchers are found by looking now and then.
    async fn changed(&self) {
        std::future::pending::<()>().await;
    }

    /// Returns all loads that this dispatcher knows of, by id.
    fn loads(&self) -> Vec<(String, Arc<LoadRecord>)>;

    /// Returns a load as this dispatcher knows it, or `None` if it was forgotten.
    fn load(&self, id: &str) -> Option<Arc<LoadRecord>>;

    /// Makes a step of a load, durably. Refused if the state no longer allows it.
    async fn step(&self, id: &str, step: LoadStep) -> Result<(), HostError>;

    /// Forgets loads that ended long ago, and ends loads that were never sealed.
    async fn forget_loads(&self) -> Result<(), HostError>;

    /// Returns the shard of a partition.
    fn shard_of(&self, namespace: NamespaceId, partition: &PartitionKey) -> ShardId;

    /// Reads rows of a load's own.
    async fn read(&self, request: &RangeRequest) -> Result<Page, HostError>;

    /// Writes rows of a load's own, of one partition and all together. They cost nothing, so that the work of the load
    /// is not charged twice. Shards that have seen a later run than `run` refuse.
    async fn write(
        &self,
        namespace: NamespaceId,
        mutations: Vec<Mutation>,
        run: Option<FencingToken>,
    ) -> Result<WriteAnswers, HostError>;

    /// Applies rows of a load in one shard, or stores chunks of their values, charged to the creator of the load.
    /// Refused as [`Self::write`] is.
    async fn apply(
        &self,
        load: &LoadRecord,
        shard: ShardId,
        mutations: Vec<Mutation>,
        run: Option<FencingToken>,
    ) -> Result<WriteAnswers, HostError>;

    /// Makes the version that a load has built the live one.
    async fn activate(&self, id: &str) -> Result<(), HostError>;

    /// Returns all shards.
    fn shards(&self) -> Vec<ShardId>;

    /// Reads a chunk of the rows that a dataset has in a shard.
    async fn scan(
        &self,
        dataset: NamespaceId,
        shard: ShardId,
        after: Option<&Key>,
    ) -> Result<ScanPage, HostError>;

    /// Charges the creator of a load for bytes that a part of it has inflated to, as for bytes that are read. Refused
    /// for now while a quota is used up.
    async fn charge_inflated(&self, load: &LoadRecord, bytes: u64) -> Result<(), HostError>;

    /// Returns the live dataset of a load's namespace.
    fn live_dataset(&self, load: &LoadRecord) -> Result<NamespaceId, HostError>;

    /// Returns whether an operator has blocked the row of a load with this key, and counts the attempt if so.
    fn is_blocked(&self, load: &LoadRecord, key: &Key) -> bool;

    /// Returns why the bytes of a long value can never be stored completely, if a quota of the load is too low for
    /// that.
    fn never_stores(&self, load: &LoadRecord, key: &Key, len: usize) -> Option<String>;

    /// Returns the time to live of rows that name none, or `None` if such rows are kept for good.
    fn default_ttl(&self, load: &LoadRecord) -> Option<Duration>;

    /// Records why the run with this report waits, or `None` if it goes on or has ended.
    fn waits_for(&self, report: NamespaceId, reason: Option<String>);

    /// Records that a run has made progress since it last wrote its row: its earlier wait is over.
    fn got_on(&self, report: NamespaceId);

    /// Counts applied, skipped and rejected rows.
    fn counted(&self, counts: RowCounts);

    /// Counts a load whose rows are all applied, or that failed.
    fn ended(&self, has_failed: bool);
}

/// A dispatcher, as the runs of loads share it.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    dispatcher: Arc<dyn LoadHost>,
    /// The places for its runs.
    pub(crate) places: Arc<RunPlaces>,
    /// The run whose number all writes carry.
    run: Option<FencingToken>,
    /// The charged bytes of the parts that it reads.
    pub(crate) inflated: Arc<InflatedParts>,
}

/// The charged bytes that parts have inflated to. So a part that is read again costs nothing.
#[derive(Debug, Default)]
pub(crate) struct InflatedParts(Mutex<(u32, BTreeMap<u16, u64>)>);

impl InflatedParts {
    /// Forgets the parts before a number; they are read again for nothing. Returns the others.
    pub(crate) fn from(&self, number: u32) -> BTreeMap<u16, u64> {
        let mut parts = self.parts();
        parts.0 = number;
        parts.1.retain(|part, _| u32::from(*part) >= number);
        parts.1.clone()
    }

    /// Returns how many bytes of a part are charged.
    fn charged(&self, part: u16) -> u64 {
        let parts = self.parts();
        if u32::from(part) < parts.0 {
            return u64::MAX;
        }
        parts.1.get(&part).copied().unwrap_or(0)
    }

    fn parts(&self) -> MutexGuard<'_, (u32, BTreeMap<u16, u64>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host {
    /// Shares a dispatcher.
    pub(crate) fn new(dispatcher: Arc<dyn LoadHost>) -> Self {
        Self {
            dispatcher,
            places: Arc::default(),
            run: None,
            inflated: Arc::default(),
        }
    }

    /// Returns the dispatcher as one run of a load uses it: all its writes carry the number of the run. The bytes in
    /// `inflated` are charged already.
    pub(crate) fn of_run(&self, run: FencingToken, inflated: BTreeMap<u16, u64>) -> Self {
        Self {
            dispatcher: Arc::clone(&self.dispatcher),
            places: Arc::clone(&self.places),
            run: Some(run),
            inflated: Arc::new(InflatedParts(Mutex::new((0, inflated)))),
        }
    }

    /// Charges a part for the first `len` bytes that it inflates to. Waits while a quota is used up; the run may give
    /// its place back meanwhile.
    pub(crate) async fn charge_inflated(
        &self,
        load: &LoadRecord,
        part: u16,
        len: u64,
    ) -> Result<(), HostError> {
        let more = len.saturating_sub(self.inflated.charged(part));
        if more == 0 {
            return Ok(());
        }
        let report = load.report_id();
        let mut has_waited = false;
        while let Err(refused) = self.dispatcher.charge_inflated(load, more).await {
            let HostError::Wait { after, reason } = refused else {
                return Err(refused);
            };
            has_waited = true;
            self.dispatcher.waits_for(report, Some(reason));
            self.places.set_waits_of(report, true);
            sleep(after.clamp(INFLATE_WAIT.0, INFLATE_WAIT.1)).await;
        }
        if has_waited {
            self.dispatcher.waits_for(report, None);
            self.places.set_waits_of(report, false);
        }
        self.inflated.parts().1.insert(part, len);
        Ok(())
    }

    /// Writes rows of a load's own, as [`LoadHost::write`].
    pub(crate) async fn write(
        &self,
        namespace: NamespaceId,
        mutations: Vec<Mutation>,
    ) -> Result<WriteAnswers, HostError> {
        self.dispatcher.write(namespace, mutations, self.run).await
    }

    /// Applies rows of a load, as [`LoadHost::apply`].
    pub(crate) async fn apply(
        &self,
        load: &LoadRecord,
        shard: ShardId,
        mutations: Vec<Mutation>,
    ) -> Result<WriteAnswers, HostError> {
        self.dispatcher
            .apply(load, shard, mutations, self.run)
            .await
    }

    /// Stores rows of a load's own, of one partition. Returns an error if any of them is not stored.
    pub(crate) async fn store(
        &self,
        namespace: NamespaceId,
        rows: Vec<Mutation>,
    ) -> Result<(), HostError> {
        let answers = self.write(namespace, rows).await?;
        match answers.into_iter().find_map(Result::err) {
            None => Ok(()),
            Some(WriteError::Store(error)) => Err(error.into()),
            Some(error) => Err(HostError::Never(error.to_string())),
        }
    }
}

impl Deref for Host {
    type Target = dyn LoadHost;

    fn deref(&self) -> &Self::Target {
        &*self.dispatcher
    }
}

/// The numbers of applied, skipped and rejected rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RowCounts {
    /// Stored or removed.
    pub applied: u64,
    /// Left out: the namespace has newer data, or they have expired.
    pub skipped: u64,
    /// Not readable, or with a blocked key.
    pub rejected: u64,
    /// Bytes of keys and values of the applied rows.
    pub bytes: u64,
}

impl AddAssign for RowCounts {
    fn add_assign(&mut self, more: Self) {
        self.applied += more.applied;
        self.skipped += more.skipped;
        self.rejected += more.rejected;
        self.bytes += more.bytes;
    }
}

#[async_trait]
impl RowSource for Host {
    type Error = HostError;

    async fn range(&self, request: &RangeRequest) -> Result<Page, HostError> {
        self.read(request).await
    }

    fn damaged(&self, what: &str) -> HostError {
        HostError::Never(format!("a record of the load cannot be read: {what}"))
    }

    async fn inflated(&self, load: &LoadRecord, part: u16, len: u64) -> Result<(), HostError> {
        self.charge_inflated(load, part, len).await
    }
}
