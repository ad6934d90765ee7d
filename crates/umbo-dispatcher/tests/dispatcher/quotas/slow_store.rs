//! A store that takes its time: before each answer, whoever else waits gets a turn. Without it, what
//! two pods do at the same moment would never interleave over a store in memory.

use async_trait::async_trait;
use tokio::task::yield_now;
use umbo_store::{
    CallContext, DeleteRangeRequest, Deleted, MemoryStore, Page, RangeRequest, ScanPage,
    ScanRequest, Store, StoreError, WrappedStore, WriteError, WriteRequest, Written,
};
use umbo_types::{Key, NamespaceId, Row, ShardId};

#[derive(Debug)]
pub(crate) struct SlowStore(pub(crate) MemoryStore);

#[async_trait]
impl WrappedStore for SlowStore {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    async fn get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        yield_now().await;
        self.0.get(call, shard, namespace, key).await
    }

    async fn multi_get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        keys: &[Key],
    ) -> Vec<Result<Option<Row>, StoreError>> {
        yield_now().await;
        self.0.multi_get(call, shard, namespace, keys).await
    }

    async fn range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &RangeRequest,
    ) -> Result<Page, StoreError> {
        yield_now().await;
        self.0.range(call, shard, request).await
    }

    async fn scan(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &ScanRequest,
    ) -> Result<ScanPage, StoreError> {
        yield_now().await;
        self.0.scan(call, shard, request).await
    }

    async fn write(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>> {
        yield_now().await;
        self.0.write(call, shard, request).await
    }

    async fn delete_range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: DeleteRangeRequest,
    ) -> Result<Deleted, StoreError> {
        yield_now().await;
        self.0.delete_range(call, shard, request).await
    }
}
