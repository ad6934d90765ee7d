//! A store around another one, for tests: what it does not override is passed on.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use umbo_routing::{RecordsHome, ShardMap};
use umbo_types::{Key, NamespaceId, Row, ShardId, Timestamp};

use crate::backup::BackupRequest;
use crate::call::CallContext;
use crate::capabilities::Capabilities;
use crate::error::{StoreError, WriteError};
use crate::large::ChunkRequest;
use crate::records::{RecordsCopy, RecordsKeeper, RecordsRevision};
use crate::report::{DiskSpace, NodeStatus, RemoteStats, ShardStatus, StoreReport};
use crate::request::{
    DeleteRangeRequest, Deleted, Page, RangeRequest, ScanPage, ScanRequest, WriteRequest, Written,
};
use crate::store::Store;

/// A store around another one. Every method has a default that asks the inner store; a test overrides what it
/// delays, counts or refuses. Its reads are not answered at once, unless it says so.
#[async_trait]
pub trait WrappedStore: Send + Sync + fmt::Debug {
    /// Returns the store within.
    fn inner(&self) -> &dyn Store;

    /// See [`Store::capabilities`].
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            answers_at_once: false,
            ..self.inner().capabilities()
        }
    }

    /// See [`Store::shard_map`].
    fn shard_map(&self) -> Arc<ShardMap> {
        self.inner().shard_map()
    }

    /// See [`Store::is_reachable`].
    fn is_reachable(&self, shard: ShardId) -> bool {
        self.inner().is_reachable(shard)
    }

    /// See [`Store::reachable`].
    async fn reachable(&self, shard: ShardId) {
        self.inner().reachable(shard).await;
    }

    /// See [`Store::time_at`].
    fn time_at(&self, shard: ShardId, now: Timestamp) -> Timestamp {
        self.inner().time_at(shard, now)
    }

    /// See [`Store::lives_from`].
    fn lives_from(&self, shard: ShardId, now: Timestamp) -> Timestamp {
        self.inner().lives_from(shard, now)
    }

    /// See [`Store::get`].
    async fn get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        self.inner().get(call, shard, namespace, key).await
    }

    /// See [`Store::multi_get`].
    async fn multi_get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        keys: &[Key],
    ) -> Vec<Result<Option<Row>, StoreError>> {
        self.inner().multi_get(call, shard, namespace, keys).await
    }

    /// See [`Store::range`].
    async fn range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &RangeRequest,
    ) -> Result<Page, StoreError> {
        self.inner().range(call, shard, request).await
    }

    /// See [`Store::scan`].
    async fn scan(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &ScanRequest,
    ) -> Result<ScanPage, StoreError> {
        self.inner().scan(call, shard, request).await
    }

    /// See [`Store::chunk`].
    async fn chunk(
        &self,
        call: &CallContext,
        shard: ShardId,
        key: &Key,
        request: &ChunkRequest,
    ) -> Result<Option<Bytes>, StoreError> {
        self.inner().chunk(call, shard, key, request).await
    }

    /// See [`Store::write`].
    async fn write(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>> {
        self.inner().write(call, shard, request).await
    }

    /// See [`Store::delete_range`].
    async fn delete_range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: DeleteRangeRequest,
    ) -> Result<Deleted, StoreError> {
        self.inner().delete_range(call, shard, request).await
    }

    /// See [`RecordsKeeper::keep_records`].
    async fn keep_records(&self, copy: Arc<RecordsCopy>) -> Vec<(ShardId, Result<(), StoreError>)> {
        self.inner().keep_records(copy).await
    }

    /// See [`StoreReport::status`].
    fn status(&self) -> Vec<ShardStatus> {
        self.inner().status()
    }

    /// See [`StoreReport::nodes`].
    fn nodes(&self) -> Vec<NodeStatus> {
        self.inner().nodes()
    }
}

#[async_trait]
impl<W: WrappedStore> Store for W {
    fn shard_map(&self) -> Arc<ShardMap> {
        WrappedStore::shard_map(self)
    }

    fn capabilities(&self) -> Capabilities {
        WrappedStore::capabilities(self)
    }

    fn is_reachable(&self, shard: ShardId) -> bool {
        WrappedStore::is_reachable(self, shard)
    }

    async fn reachable(&self, shard: ShardId) {
        WrappedStore::reachable(self, shard).await;
    }

    fn time_at(&self, shard: ShardId, now: Timestamp) -> Timestamp {
        WrappedStore::time_at(self, shard, now)
    }

    fn lives_from(&self, shard: ShardId, now: Timestamp) -> Timestamp {
        WrappedStore::lives_from(self, shard, now)
    }

    async fn get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        WrappedStore::get(self, call, shard, namespace, key).await
    }

    async fn multi_get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        keys: &[Key],
    ) -> Vec<Result<Option<Row>, StoreError>> {
        WrappedStore::multi_get(self, call, shard, namespace, keys).await
    }

    async fn range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &RangeRequest,
    ) -> Result<Page, StoreError> {
        WrappedStore::range(self, call, shard, request).await
    }

    async fn scan(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &ScanRequest,
    ) -> Result<ScanPage, StoreError> {
        WrappedStore::scan(self, call, shard, request).await
    }

    async fn chunk(
        &self,
        call: &CallContext,
        shard: ShardId,
        key: &Key,
        request: &ChunkRequest,
    ) -> Result<Option<Bytes>, StoreError> {
        WrappedStore::chunk(self, call, shard, key, request).await
    }

    async fn write(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>> {
        WrappedStore::write(self, call, shard, request).await
    }

    async fn delete_range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: DeleteRangeRequest,
    ) -> Result<Deleted, StoreError> {
        WrappedStore::delete_range(self, call, shard, request).await
    }

    async fn backup(
        &self,
        call: &CallContext,
        request: &BackupRequest,
    ) -> Result<Option<Bytes>, StoreError> {
        self.inner().backup(call, request).await
    }

    async fn close(&self) {
        self.inner().close().await;
    }
}

#[async_trait]
impl<W: WrappedStore> RecordsKeeper for W {
    fn home(&self) -> RecordsHome {
        self.inner().home()
    }

    async fn keep_records(&self, copy: Arc<RecordsCopy>) -> Vec<(ShardId, Result<(), StoreError>)> {
        WrappedStore::keep_records(self, copy).await
    }

    async fn kept_records(&self) -> Result<Option<Arc<RecordsCopy>>, StoreError> {
        self.inner().kept_records().await
    }

    fn is_fenced(&self, namespace: NamespaceId) -> bool {
        self.inner().is_fenced(namespace)
    }

    fn records_revision(&self) -> RecordsRevision {
        self.inner().records_revision()
    }
}

impl<W: WrappedStore> StoreReport for W {
    fn status(&self) -> Vec<ShardStatus> {
        WrappedStore::status(self)
    }

    fn bad_reads(&self) -> Vec<(ShardId, u64)> {
        self.inner().bad_reads()
    }

    fn disk_space(&self) -> Option<DiskSpace> {
        self.inner().disk_space()
    }

    fn nodes(&self) -> Vec<NodeStatus> {
        WrappedStore::nodes(self)
    }

    fn remote_stats(&self) -> Option<RemoteStats> {
        self.inner().remote_stats()
    }
}
