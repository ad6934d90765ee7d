//! A store whose every call takes a fixed simulated time, and which can be told to hang, to wait or
//! to fail.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use umbo_store::{
    CallContext, DeleteRangeRequest, Deleted, ManualClock, MemoryStore, Page, RangeRequest,
    ScanPage, ScanRequest, Store, StoreError, WrappedStore, WriteError, WriteRequest, Written,
};
use umbo_types::{Key, NamespaceId, PartitionKey, Row, ShardId};

#[derive(Debug)]
pub(crate) struct TestStore {
    inner: MemoryStore,
    clock: Arc<ManualClock>,
    micros: AtomicU64,
    /// Part of the time of a write for which the shard is busy with it, of a group of writes; 0 if all of it is.
    busy_micros: AtomicU64,
    hangs: AtomicBool,
    /// Whose multi-gets and writes wait for ever.
    stalled: Mutex<Vec<ShardId>>,
    /// Whose nodes are away.
    away: Mutex<Vec<ShardId>>,
    is_held: watch::Sender<bool>,
    error: Mutex<Option<StoreError>>,
    calls: AtomicU64,
    /// Chunks without a row that the next scans begin with.
    empty_chunks: AtomicU64,
    /// Names of the threads that asked for several rows.
    readers: Mutex<BTreeSet<String>>,
}

impl TestStore {
    pub(crate) fn new(shards: u16, clock: Arc<ManualClock>) -> Self {
        Self {
            inner: MemoryStore::new(shards, clock.clone()).unwrap(),
            clock,
            micros: AtomicU64::new(0),
            busy_micros: AtomicU64::new(0),
            hangs: AtomicBool::new(false),
            stalled: Mutex::default(),
            away: Mutex::default(),
            is_held: watch::Sender::new(false),
            error: Mutex::new(None),
            calls: AtomicU64::new(0),
            empty_chunks: AtomicU64::new(0),
            readers: Mutex::default(),
        }
    }

    /// Lets every call for rows take this long.
    pub(crate) fn set_time(&self, time: Duration) {
        self.micros.store(time.as_micros() as u64, SeqCst);
    }

    /// Lets every write take this long as one of a group, of which the shard is busy with it for a part.
    pub(crate) fn set_group_time(&self, time: Duration, busy: Duration) {
        self.set_time(time);
        self.busy_micros.store(busy.as_micros() as u64, SeqCst);
    }

    /// Lets every call for rows wait for ever, or no longer.
    pub(crate) fn set_hangs(&self, hangs: bool) {
        self.hangs.store(hangs, SeqCst);
    }

    /// Lets multi-gets and writes of these shards wait for ever.
    pub(crate) fn set_stalled(&self, shards: &[ShardId]) {
        *self.stalled.lock().unwrap() = shards.to_vec();
    }

    /// Lets the nodes of these shards be away.
    pub(crate) fn set_away(&self, shards: &[ShardId]) {
        *self.away.lock().unwrap() = shards.to_vec();
    }

    fn is_stalled(&self, namespace: NamespaceId, partition: &PartitionKey) -> bool {
        let shard = self.inner.shard_map().locate(namespace, partition);
        namespace != NamespaceId::SYSTEM && self.stalled.lock().unwrap().contains(&shard)
    }

    /// Lets every call for rows wait until this is taken back.
    pub(crate) fn set_held(&self, is_held: bool) {
        self.is_held.send_replace(is_held);
    }

    /// Lets every call for rows fail, or no longer.
    pub(crate) fn set_error(&self, error: Option<StoreError>) {
        *self.error.lock().unwrap() = error;
    }

    /// Lets the next chunks of scans hold no row, as where all of them have expired.
    pub(crate) fn set_empty_chunks(&self, count: u64) {
        self.empty_chunks.store(count, SeqCst);
    }

    /// Returns the names of the threads that have asked for several rows since the last time.
    pub(crate) fn take_readers(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.readers.lock().unwrap())
    }

    /// Calls for rows so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(SeqCst)
    }

    /// Serves one call; records of Umbo itself take no time and never fail.
    async fn enter(&self, namespace: NamespaceId) -> Result<(), StoreError> {
        if namespace == NamespaceId::SYSTEM {
            return Ok(());
        }
        self.calls.fetch_add(1, SeqCst);
        if self.hangs.load(SeqCst) {
            std::future::pending::<()>().await;
        }
        let mut is_held = self.is_held.subscribe();
        is_held.wait_for(|is_held| !is_held).await.unwrap();
        self.clock
            .advance(Duration::from_micros(self.micros.load(SeqCst)));
        match &*self.error.lock().unwrap() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl WrappedStore for TestStore {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn is_reachable(&self, shard: ShardId) -> bool {
        !self.away.lock().unwrap().contains(&shard)
    }

    async fn reachable(&self, shard: ShardId) {
        if !WrappedStore::is_reachable(self, shard) {
            std::future::pending::<()>().await;
        }
    }

    async fn get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        self.enter(namespace).await?;
        self.inner.get(call, shard, namespace, key).await
    }

    async fn multi_get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        keys: &[Key],
    ) -> Vec<Result<Option<Row>, StoreError>> {
        let reader = std::thread::current().name().unwrap_or_default().to_owned();
        self.readers.lock().unwrap().insert(reader);
        if self.is_stalled(namespace, &keys[0].partition) {
            std::future::pending::<()>().await;
        }
        match self.enter(namespace).await {
            Ok(()) => self.inner.multi_get(call, shard, namespace, keys).await,
            Err(error) => keys.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &RangeRequest,
    ) -> Result<Page, StoreError> {
        self.enter(request.namespace).await?;
        self.inner.range(call, shard, request).await
    }

    async fn scan(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &ScanRequest,
    ) -> Result<ScanPage, StoreError> {
        self.enter(request.namespace).await?;
        let left = self.empty_chunks.load(SeqCst);
        if left > 0 {
            self.empty_chunks.store(left - 1, SeqCst);
            let key = Key::new(b"\0".to_vec(), Vec::new()).unwrap();
            return Ok(ScanPage {
                resume_after: Some(key),
                ..ScanPage::default()
            });
        }
        self.inner.scan(call, shard, request).await
    }

    async fn write(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>> {
        if self.is_stalled(request.namespace, &request.mutations[0].key.partition) {
            std::future::pending::<()>().await;
        }
        let entered = self.enter(request.namespace).await;
        let busy = self.busy_micros.load(SeqCst);
        if busy > 0 && request.namespace != NamespaceId::SYSTEM {
            let time = Duration::from_micros(self.micros.load(SeqCst));
            call.note_shared_time(time, Duration::from_micros(busy));
        }
        match entered {
            Ok(()) => self.inner.write(call, shard, request).await,
            Err(error) => {
                let failed = || Err(WriteError::Store(error.clone()));
                request.mutations.iter().map(|_| failed()).collect()
            }
        }
    }

    async fn delete_range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: DeleteRangeRequest,
    ) -> Result<Deleted, StoreError> {
        self.enter(request.namespace).await?;
        self.inner.delete_range(call, shard, request).await
    }
}
