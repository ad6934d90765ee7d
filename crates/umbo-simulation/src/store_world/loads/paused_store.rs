//! The store of a dispatcher that may be paused as a whole, as a process is that the system stops for a while: nothing is
//! sent meanwhile, and no answer is seen.
//!
//! A pause begins with a write of a run of a load, and lasts so long that another dispatcher takes the load over. What
//! was about to be sent is sent when it ends.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use memchr::memmem;
use umbo_store::{
    CallContext, Change, DeleteRangeRequest, Deleted, Mutation, Page, RangeRequest, Store,
    StoreError, WrappedStore, WriteError, WriteRequest, Written,
};
use umbo_types::{Key, NamespaceId, Row};

use crate::chance::Chance;
use crate::simulation::{elapsed, met, note};
use crate::watched_value::WatchedValue;

/// What values have in them that a later row of their load replaces.
pub(super) const REPLACED: &str = "before";
/// Writes of runs at which a pause begins, in thousandths: those with such a value, which must not come late, and others.
const PAUSED_PER_MILLE: (u64, u64) = (500, 20);
/// Shortest and longest pause, in milliseconds: from the lease of a run on, up to less than the timeout of its writes.
const PAUSE_MS: (u64, u64) = (5_000, 9_000);

/// The pauses of all dispatchers, one at a time.
#[derive(Debug)]
pub(super) struct Pauses {
    chance: Mutex<Chance>,
    /// Pauses that may still begin. Fewer than the runs of a load that may end without getting on.
    left: AtomicU32,
    /// After it none begins.
    until: Duration,
    /// The dispatcher that is paused.
    paused: Arc<WatchedValue<Option<usize>>>,
}

impl Pauses {
    pub(super) fn new(mut chance: Chance, until: Duration) -> Arc<Self> {
        let left = chance.weighted(&[(1, 0), (1, 1), (1, 2)]);
        Arc::new(Self {
            chance: Mutex::new(chance),
            left: AtomicU32::new(left),
            until,
            paused: Arc::default(),
        })
    }

    /// Returns the dispatcher that is paused.
    pub(super) fn paused(&self) -> Option<usize> {
        self.paused.get()
    }

    /// Pauses a dispatcher that is about to send this write of a run, or not.
    fn draw(&self, dispatcher: usize, request: &WriteRequest) {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 || self.paused().is_some() || elapsed() > self.until {
            return;
        }
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        let is_replaced = |mutation: &Mutation| match &mutation.change {
            Change::Put { value, .. } => memmem::find(&value.bytes, REPLACED.as_bytes()).is_some(),
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
        self.paused.set(Some(dispatcher));
        let paused = Arc::clone(&self.paused);
        tokio::spawn(async move {
            tokio::time::sleep(lasts).await;
            note!("dispatcher {dispatcher} goes on");
            paused.set(None);
        });
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
    async fn goes_on(&self) {
        let paused = &self.pauses.paused;
        paused
            .wait_for(|paused| paused != Some(self.dispatcher))
            .await;
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
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        self.goes_on().await;
        self.inner.get(call, namespace, key).await
    }

    async fn range(&self, call: &CallContext, request: &RangeRequest) -> Result<Page, StoreError> {
        self.goes_on().await;
        self.inner.range(call, request).await
    }

    async fn write(
        &self,
        call: &CallContext,
        request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>> {
        if request.run.is_some() {
            self.pauses.draw(self.dispatcher, &request);
        }
        self.goes_on().await;
        let written = self.inner.write(call, request).await;
        self.goes_on().await;
        written
    }

    async fn delete_range(
        &self,
        call: &CallContext,
        request: DeleteRangeRequest,
    ) -> Result<Deleted, StoreError> {
        self.goes_on().await;
        let deleted = self.inner.delete_range(call, request).await;
        self.goes_on().await;
        deleted
    }
}
