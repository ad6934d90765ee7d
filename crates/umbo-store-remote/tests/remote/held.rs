//! A store whose calls can be held back, to observe other calls meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;
use umbo_store::{
    CallContext, MemoryStore, Store, StoreError, WrappedStore, WriteError, WriteRequest, Written,
};
use umbo_types::{Key, NamespaceId, Row, ShardId};

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
impl WrappedStore for HeldStore {
    fn inner(&self) -> &dyn Store {
        &*self.rows
    }

    async fn get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        self.pass().await;
        self.rows.get(call, shard, namespace, key).await
    }

    async fn write(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>> {
        self.pass().await;
        self.rows.write(call, shard, request).await
    }
}
