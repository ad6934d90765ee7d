//! A store whose calls wait until the test releases them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tokio::sync::Semaphore;
use umbo_store::{
    CallContext, DeleteRangeRequest, Deleted, MemoryStore, Page, RangeRequest, ScanPage,
    ScanRequest, Store, StoreError, WrappedStore, WriteError, WriteRequest, Written,
};
use umbo_types::{Deadline, Key, NamespaceId, Row, ShardId};

use crate::support::WallClock;

/// A store whose calls wait until the test releases them.
#[derive(Debug)]
pub(crate) struct Slow {
    inner: MemoryStore,
    gate: Semaphore,
    /// Deadlines of the writes, in order of arrival.
    pub(crate) deadlines: Mutex<Vec<Option<Deadline>>>,
    pub(crate) begun: AtomicUsize,
    pub(crate) dropped: AtomicUsize,
}

impl Slow {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryStore::new(4, Arc::new(WallClock)).unwrap(),
            gate: Semaphore::new(0),
            deadlines: Mutex::default(),
            begun: AtomicUsize::new(0),
            dropped: AtomicUsize::new(0),
        })
    }

    pub(crate) fn let_all(&self) {
        self.gate.add_permits(1 << 20);
    }

    async fn wait(&self) {
        struct Counted<'a>(&'a AtomicUsize, bool);
        impl Drop for Counted<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(usize::from(!self.1), Ordering::SeqCst);
            }
        }
        self.begun.fetch_add(1, Ordering::SeqCst);
        let mut counted = Counted(&self.dropped, false);
        self.gate.acquire().await.unwrap().forget();
        counted.1 = true;
    }

    pub(crate) async fn until_begun(&self, count: usize) {
        while self.begun.load(Ordering::SeqCst) < count {
            tokio::task::yield_now().await;
        }
    }
}

#[async_trait]
impl WrappedStore for Slow {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        self.wait().await;
        self.inner.get(call, shard, namespace, key).await
    }

    async fn multi_get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        keys: &[Key],
    ) -> Vec<Result<Option<Row>, StoreError>> {
        self.wait().await;
        self.inner.multi_get(call, shard, namespace, keys).await
    }

    async fn range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &RangeRequest,
    ) -> Result<Page, StoreError> {
        self.wait().await;
        self.inner.range(call, shard, request).await
    }

    async fn scan(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &ScanRequest,
    ) -> Result<ScanPage, StoreError> {
        self.wait().await;
        self.inner.scan(call, shard, request).await
    }

    async fn write(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>> {
        self.deadlines.lock().unwrap().push(call.deadline);
        self.wait().await;
        self.inner.write(call, shard, request).await
    }

    async fn delete_range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: DeleteRangeRequest,
    ) -> Result<Deleted, StoreError> {
        self.wait().await;
        self.inner.delete_range(call, shard, request).await
    }
}
