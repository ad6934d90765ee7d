//! A store whose calls fail on purpose: the n-th of them, those of some shards, or all of the home.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tokio::sync::Semaphore;
use umbo_store::{
    CallContext, DeleteRangeRequest, Deleted, MemoryStore, NodeStatus, Outcome, Page, RangeRequest,
    RecordsCopy, RecordsKeeper, Store, StoreError, StoreReport, WrappedStore, WriteError,
    WriteRequest, Written,
};
use umbo_types::{Key, NamespaceId, PartitionKey, Row, ShardId, Timestamp};

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is refused, and nothing is done.
    Refused,
    /// It is done, and its answer is lost.
    AnswerLost,
    /// It is not done, and it is not known whether it was.
    Vanished,
    /// As `Refused`, and everything after it too, until the store is healed.
    AllRefused,
}

/// One dispatcher's way to a store in memory.
#[derive(Debug)]
pub(crate) struct FaultyStore {
    inner: Arc<MemoryStore>,
    /// Calls that concern Umbo's own records.
    calls: AtomicU64,
    fault: Mutex<Option<(u64, Fault)>>,
    /// Shards whose disks are full: they take no writes and no fences.
    full: Mutex<BTreeSet<ShardId>>,
    /// Whether Umbo's own records cannot be reached.
    is_home_away: AtomicBool,
    /// How far the clock of this dispatcher is ahead of that of the node with all shards, in microseconds.
    pub(crate) clock_ahead: AtomicI64,
    /// A shard that has not heard that a dataset was dropped, that dataset, and the one that decides its writes there.
    lagging: Mutex<Option<(ShardId, NamespaceId, NamespaceId)>>,
    /// Lets a walk over the records go on, where it is held.
    walks: Semaphore,
    is_walk_held: AtomicBool,
}

impl FaultyStore {
    pub(crate) fn new(inner: &Arc<MemoryStore>) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::clone(inner),
            calls: AtomicU64::new(0),
            fault: Mutex::default(),
            full: Mutex::default(),
            is_home_away: AtomicBool::new(false),
            clock_ahead: AtomicI64::new(0),
            lagging: Mutex::default(),
            walks: Semaphore::new(0),
            is_walk_held: AtomicBool::new(false),
        })
    }

    /// Fails the n-th call from here on, counted from 1.
    pub(crate) fn fail(&self, nth: u64, fault: Fault) {
        *self.fault.lock().unwrap() = Some((self.calls.load(SeqCst) + nth, fault));
    }

    /// Ends all faults. Returns whether the call that was to fail has come.
    pub(crate) fn heal(&self) -> bool {
        self.full.lock().unwrap().clear();
        self.is_home_away.store(false, SeqCst);
        let fault = self.fault.lock().unwrap().take();
        fault.is_none_or(|(at, _)| at <= self.calls.load(SeqCst))
    }

    pub(crate) fn fill(&self, shard: u16) {
        self.full.lock().unwrap().insert(ShardId(shard));
    }

    /// Makes a shard take writes of a dataset that was dropped, as one that has not heard of it does: by the live one.
    pub(crate) fn lag(&self, shard: u16, dropped: NamespaceId, live: NamespaceId) {
        *self.lagging.lock().unwrap() = Some((ShardId(shard), dropped, live));
    }

    pub(crate) fn cut_home(&self) {
        self.is_home_away.store(true, SeqCst);
    }

    /// Holds the next walk over the records until [`Self::release_walk`].
    pub(crate) fn hold_walk(&self) {
        self.is_walk_held.store(true, SeqCst);
    }

    pub(crate) fn release_walk(&self) {
        self.walks.add_permits(1);
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(SeqCst)
    }

    fn fault(&self) -> Option<Fault> {
        let call = self.calls.fetch_add(1, SeqCst) + 1;
        let fault = *self.fault.lock().unwrap();
        fault.and_then(|(at, fault)| match fault {
            Fault::AllRefused if call >= at => Some(fault),
            _ if call == at => Some(fault),
            _ => None,
        })
    }

    fn shard(&self, namespace: NamespaceId, partition: &PartitionKey) -> ShardId {
        self.inner.shard_map().locate(namespace, partition)
    }

    fn check_read(
        &self,
        namespace: NamespaceId,
        partition: &PartitionKey,
    ) -> Result<(), StoreError> {
        if namespace != NamespaceId::SYSTEM {
            return Ok(());
        }
        let shard = self.shard(namespace, partition);
        match self.fault() {
            Some(_) => Err(unavailable(shard, Outcome::NotApplied)),
            None if self.is_home_away.load(SeqCst) => Err(unavailable(shard, Outcome::NotApplied)),
            None => Ok(()),
        }
    }
}

fn unavailable(shard: ShardId, outcome: Outcome) -> StoreError {
    StoreError::Unavailable {
        shard,
        reason: "cut off".to_owned(),
        outcome,
    }
}

#[async_trait]
impl WrappedStore for FaultyStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn time_at(&self, _: ShardId, now: Timestamp) -> Timestamp {
        let ahead = self.clock_ahead.load(SeqCst);
        Timestamp(now.0.checked_add_signed(-ahead).unwrap())
    }

    fn lives_from(&self, shard: ShardId, now: Timestamp) -> Timestamp {
        WrappedStore::time_at(self, shard, now)
    }

    fn nodes(&self) -> Vec<NodeStatus> {
        vec![NodeStatus {
            name: "a".to_owned(),
            address: "a:1".to_owned(),
            failure: None,
            map_version: None,
            shards: (0..4).map(ShardId).collect(),
            in_flight: Some(0),
            clock_ahead: Some(self.clock_ahead.load(SeqCst)),
            program_version: None,
        }]
    }

    async fn get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        self.check_read(namespace, &key.partition)?;
        self.inner.get(call, shard, namespace, key).await
    }

    async fn range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &RangeRequest,
    ) -> Result<Page, StoreError> {
        self.check_read(request.namespace, &request.partition)?;
        let page = self.inner.range(call, shard, request).await;
        if request.namespace == NamespaceId::SYSTEM && self.is_walk_held.swap(false, SeqCst) {
            self.walks.acquire().await.unwrap().forget();
        }
        page
    }

    async fn write(
        &self,
        call: &CallContext,
        shard: ShardId,
        mut request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>> {
        let mutations = request.mutations.len();
        let all = |error: StoreError| vec![Err(WriteError::Store(error)); mutations];
        if self.full.lock().unwrap().contains(&shard) {
            let outcome = Outcome::NotApplied;
            return all(StoreError::Full { shard, outcome });
        }
        if request.namespace != NamespaceId::SYSTEM {
            let lagging = *self.lagging.lock().unwrap();
            if let Some((_, _, live)) =
                lagging.filter(|one| (one.0, one.1) == (shard, request.namespace))
            {
                request.namespace = live;
            }
            return self.inner.write(call, shard, request).await;
        }
        if self.is_home_away.load(SeqCst) {
            return all(unavailable(shard, Outcome::NotApplied));
        }
        match self.fault() {
            None => self.inner.write(call, shard, request).await,
            Some(Fault::Refused | Fault::AllRefused) => {
                let outcome = Outcome::NotApplied;
                all(StoreError::Full { shard, outcome })
            }
            Some(Fault::AnswerLost) => {
                drop(self.inner.write(call, shard, request).await);
                all(unavailable(shard, Outcome::Unknown))
            }
            Some(Fault::Vanished) => all(unavailable(shard, Outcome::Unknown)),
        }
    }

    /// A shard that lags hears of the drop with the first step.
    async fn delete_range(
        &self,
        call: &CallContext,
        shard: ShardId,
        mut request: DeleteRangeRequest,
    ) -> Result<Deleted, StoreError> {
        let is_it = |one: &mut (ShardId, NamespaceId, NamespaceId)| {
            (one.0, one.1) == (shard, request.namespace)
        };
        if let Some((_, _, live)) = self.lagging.lock().unwrap().take_if(is_it) {
            request.namespace = live;
        }
        self.inner.delete_range(call, shard, request).await
    }

    async fn keep_records(&self, copy: Arc<RecordsCopy>) -> Vec<(ShardId, Result<(), StoreError>)> {
        let full = self.full.lock().unwrap().clone();
        let fault = self.fault();
        if matches!(
            fault,
            Some(Fault::Refused | Fault::AllRefused | Fault::Vanished)
        ) {
            let shards = self.inner.status().into_iter();
            let outcome = Outcome::NotApplied;
            return shards
                .map(|status| (status.shard, Err(unavailable(status.shard, outcome))))
                .collect();
        }
        let outcome = Outcome::Unknown;
        let mut answers = self.inner.keep_records(copy).await;
        for (shard, answer) in &mut answers {
            if full.contains(shard) || fault.is_some() {
                *answer = Err(StoreError::Full {
                    shard: *shard,
                    outcome,
                });
            }
        }
        answers
    }
}
