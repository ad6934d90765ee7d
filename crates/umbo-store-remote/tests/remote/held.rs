//! A store whose calls can be held back, to observe other calls meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;
use umbo_routing::ShardMap;
use umbo_store::{
    CallContext, DeleteRangeRequest, Deleted, MemoryStore, Page, RangeRequest, ScanPage,
    ScanRequest, ShardStatus, Store, StoreError, WriteError, WriteRequest, Written,
};
use umbo_types::{Key, NamespaceId, Row};

#[derive(Debug)]
pub(crate) struct HeldStore {
    rows: Arc<MemoryStore>,
    /// Number of the next calls to hold.
    to_hold: AtomicUsize,
    pub(crate) held: AtomicUsize,
    released: watch::Sender<usize>,
}

impl HeldStore {
    pub(crate) fn new(rows: Arc<MemoryStore>) -> Self {
        Self {
            rows,
            to_hold: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            released: watch::Sender::new(0),
        }
    }

    /// Holds the next `calls` gets and writes.
    pub(crate) fn hold(&self, calls: usize) {
        self.to_hold.store(calls, Ordering::SeqCst);
    }

    /// Lets go what is held.
    pub(crate) fn release(&self) {
        self.released.send_modify(|times| *times += 1);
    }

    async fn pass(&self) {
        let less = |left: usize| left.checked_sub(1);
        let (set, fetch) = (Ordering::SeqCst, Ordering::SeqCst);
        if self.to_hold.fetch_update(set, fetch, less).is_ok() {
            let mut released = self.released.subscribe();
            self.held.fetch_add(1, Ordering::SeqCst);
            let _ = released.changed().await;
            self.held.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[async_trait::async_trait]
impl Store for HeldStore {
    fn shard_map(&self) -> Arc<ShardMap> {
        self.rows.shard_map()
    }

    async fn get(
        &self,
        call: &CallContext,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        self.pass().await;
        self.rows.get(call, namespace, key).await
    }

    async fn multi_get(
        &self,
        call: &CallContext,
        namespace: NamespaceId,
        keys: &[Key],
    ) -> Vec<Result<Option<Row>, StoreError>> {
        self.rows.multi_get(call, namespace, keys).await
    }

    async fn range(&self, call: &CallContext, request: &RangeRequest) -> Result<Page, StoreError> {
        self.rows.range(call, request).await
    }

    async fn scan(
        &self,
        call: &CallContext,
        request: &ScanRequest,
    ) -> Result<ScanPage, StoreError> {
        self.rows.scan(call, request).await
    }

    async fn write(
        &self,
        call: &CallContext,
        request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>> {
        self.pass().await;
        self.rows.write(call, request).await
    }

    async fn delete_range(
        &self,
        call: &CallContext,
        request: DeleteRangeRequest,
    ) -> Result<Deleted, StoreError> {
        self.rows.delete_range(call, request).await
    }

    async fn keep_records(
        &self,
        copy: Arc<umbo_store::RecordsCopy>,
    ) -> Vec<(umbo_types::ShardId, Result<(), StoreError>)> {
        self.rows.keep_records(copy).await
    }

    async fn kept_records(&self) -> Result<Option<Arc<umbo_store::RecordsCopy>>, StoreError> {
        self.rows.kept_records().await
    }

    fn records_revision(&self) -> umbo_store::RecordsRevision {
        self.rows.records_revision()
    }

    fn status(&self) -> Vec<ShardStatus> {
        self.rows.status()
    }

    async fn close(&self) {
        self.rows.close().await;
    }
}
