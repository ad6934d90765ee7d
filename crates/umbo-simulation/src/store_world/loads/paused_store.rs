//! The store of a dispatcher that may be paused as a whole, as a process is that the system stops for a while: nothing is
//! sent meanwhile, and no answer is seen.
//!
//! A pause begins with a write of a run of a load, and lasts so long that another dispatcher takes the load over. What
//! was about to be sent is sent when it ends, which may be amid the run of that other dispatcher.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use memchr::memmem;
use umbo_store::{
    CallContext, Change, DeleteRangeRequest, Deleted, Mutation, Page, RangeRequest, Store,
    StoreError, UploadStep, WrappedStore, WriteError, WriteRequest, Written,
};
use umbo_types::{Key, NamespaceId, Row, ShardId, UploadId};

use crate::chance::Chance;
use crate::simulation::{elapsed, met, note};
use crate::watched_value::WatchedValue;

/// What values have in them that a later row of their load replaces.
pub(super) const REPLACED: &str = "before";
/// Writes of runs at which a pause begins, in thousandths: those with such a value, which must not come late, and others.
const PAUSED_PER_MILLE: (u64, u64) = (500, 20);
/// Shortest and longest pause, in milliseconds: from the lease of a run on, up to less than the timeout of its writes.
const PAUSE_MS: (u64, u64) = (5_000, 9_000);

/// Writes of a run that takes a load over after which the paused one goes on, in thousandths.
const MET_PER_MILLE: u64 = 300;
/// Longest time that such a run is slowed then, in milliseconds.
const SLOWED_MS_MAX: u64 = 500;

/// A dispatcher that is paused, and the load that it was about to write for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pause {
    dispatcher: usize,
    load: NamespaceId,
    ends: Duration,
}

/// The pauses of all dispatchers, one at a time.
#[derive(Debug)]
pub(super) struct Pauses {
    chance: Mutex<Chance>,
    /// Pauses that may still begin. Fewer than the runs of a load that may end without getting on.
    left: AtomicU32,
    /// After it none begins.
    until: Duration,
    paused: Arc<WatchedValue<Option<Pause>>>,
    /// Uploads of loads, with the run that has begun each.
    begun: Mutex<BTreeMap<UploadId, u32>>,
}

impl Pauses {
    pub(super) fn new(mut chance: Chance, until: Duration) -> Arc<Self> {
        let left = chance.weighted(&[(1, 0), (1, 1), (1, 2)]);
        Arc::new(Self {
            chance: Mutex::new(chance),
            left: AtomicU32::new(left),
            until,
            paused: Arc::default(),
            begun: Mutex::default(),
        })
    }

    /// Returns the dispatcher that is paused.
    pub(super) fn paused(&self) -> Option<usize> {
        self.paused.get().map(|pause| pause.dispatcher)
    }

    /// Waits until a dispatcher is not paused.
    pub(super) async fn end_of(&self, dispatcher: usize) {
        let is_other = |pause: Pause| pause.dispatcher != dispatcher;
        self.paused
            .wait_for(|paused| paused.is_none_or(is_other))
            .await;
    }

    fn begun(&self) -> MutexGuard<'_, BTreeMap<UploadId, u32>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn chance(&self) -> MutexGuard<'_, Chance> {
        self.chance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pauses a dispatcher that is about to send this write of a run of a load, or not.
    fn draw(&self, dispatcher: usize, load: NamespaceId, request: &WriteRequest) {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 || self.paused().is_some() || elapsed() > self.until {
            return;
        }
        let mut chance = self.chance();
        let is_replaced = |mutation: &Mutation| match &mutation.change {
            Change::Put { value, .. } => memmem::find(&value.bytes, REPLACED.as_bytes()).is_some(),
            Change::Upload(UploadStep::Append { bytes, .. }) => {
                memmem::find(bytes, REPLACED.as_bytes()).is_some()
            }
            _ => false,
        };
        let (replaced, other) = PAUSED_PER_MILLE;
        let is_replaced = request.mutations.iter().any(is_replaced);
        if !chance.per_mille(if is_replaced { replaced } else { other }) {
            return;
        }
        let lasts = Duration::from_millis(chance.between(PAUSE_MS.0, PAUSE_MS.1));
        self.left.store(left - 1, Ordering::Relaxed);
        met("runner paused");
        note!("fault: dispatcher {dispatcher} is paused for {lasts:?}");
        let pause = Pause {
            dispatcher,
            load,
            ends: elapsed() + lasts,
        };
        self.paused.set(Some(pause));
        let paused = Arc::clone(&self.paused);
        tokio::spawn(async move {
            tokio::time::sleep(lasts).await;
            if paused.get() == Some(pause) {
                note!("dispatcher {dispatcher} goes on");
                paused.set(None);
            }
        });
    }

    /// Lets a paused dispatcher go on amid the run of another one that has taken its load over and written this, or not.
    async fn meet(&self, dispatcher: usize, load: NamespaceId) {
        let is_same = |pause: Pause| pause.dispatcher != dispatcher && pause.load == load;
        if !self.paused.get().is_some_and(is_same) || !self.chance().per_mille(MET_PER_MILLE) {
            return;
        }
        met("two runs at once");
        note!("the paused dispatcher goes on amid the run of dispatcher {dispatcher}");
        self.paused.set(None);
        let slowed = self.chance().below(SLOWED_MS_MAX);
        tokio::time::sleep(Duration::from_millis(slowed)).await;
    }
}

/// The store.
#[derive(Debug)]
pub(super) struct PausedStore {
    pub(super) inner: Arc<dyn Store>,
    pub(super) pauses: Arc<Pauses>,
    pub(super) dispatcher: usize,
}

impl PausedStore {
    /// Returns whether these are chunks of a large value of a load. Counts those that another run has begun to store.
    fn chunk_of(&self, request: &WriteRequest) -> bool {
        let Some(run) = request.run else {
            return false;
        };
        let Some(Change::Upload(UploadStep::Append { upload, index, .. })) =
            request.mutations.first().map(|one| &one.change)
        else {
            return false;
        };
        let mut begun = self.pauses.begun();
        let first = *begun.entry(*upload).or_insert(run.number);
        if *index == 0 {
            met("large value in a load");
        } else if first < run.number {
            met("large value continued by another run");
        }
        true
    }

    async fn goes_on(&self) {
        self.pauses.end_of(self.dispatcher).await;
    }
}

#[async_trait]
impl WrappedStore for PausedStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        self.goes_on().await;
        self.inner.get(call, shard, namespace, key).await
    }

    async fn range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &RangeRequest,
    ) -> Result<Page, StoreError> {
        self.goes_on().await;
        self.inner.range(call, shard, request).await
    }

    async fn write(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>> {
        let load = request.run.map(|run| run.load);
        let chunk = self.chunk_of(&request);
        if let Some(load) = load {
            self.pauses.draw(self.dispatcher, load, &request);
        }
        self.goes_on().await;
        let written = self.inner.write(call, shard, request).await;
        if chunk
            && written
                .iter()
                .any(|one| matches!(one, Err(WriteError::UploadGone)))
        {
            met("large value of a load given up");
        }
        if let Some(load) = load {
            self.pauses.meet(self.dispatcher, load).await;
        }
        self.goes_on().await;
        written
    }

    async fn delete_range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: DeleteRangeRequest,
    ) -> Result<Deleted, StoreError> {
        self.goes_on().await;
        let deleted = self.inner.delete_range(call, shard, request).await;
        self.goes_on().await;
        deleted
    }
}
