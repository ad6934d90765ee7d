//! The store contract, as requests to the nodes.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use umbo_protocol::{Ask, NodeError, Outcome};
use umbo_routing::{RecordsHome, ShardMap};
use umbo_store::{
    BackupRequest, CallContext, Capabilities, ChunkRequest, DeleteRangeRequest, Deleted,
    NodeStatus, Page, RangeRequest, RecordsCopy, RecordsKeeper, RecordsRevision, RemoteStats,
    ScanPage, ScanRequest, ShardStatus, Store, StoreError, StoreReport, WriteError, WriteRequest,
    Written,
};
use umbo_types::{Key, NamespaceId, Row, ShardId, Timestamp};

use crate::attempt::AccessKind;
use crate::store::RemoteStore;
use crate::unknown_shard::of_shard;

#[async_trait]
impl Store for RemoteStore {
    fn shard_map(&self) -> Arc<ShardMap> {
        Arc::clone(self.shard_map())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::ONE_WRITER
    }

    fn is_reachable(&self, shard: ShardId) -> bool {
        self.topology().node_of(shard).is_reachable()
    }

    async fn reachable(&self, shard: ShardId) {
        let node = Arc::clone(self.topology().node_of(shard));
        node.reachable().await;
    }

    fn time_at(&self, shard: ShardId, now: Timestamp) -> Timestamp {
        self.topology().node_of(shard).time_at(now)
    }

    fn lives_from(&self, shard: ShardId, now: Timestamp) -> Timestamp {
        let topology = self.topology();
        topology
            .node_of(shard)
            .time_at(now)
            .max(topology.median_time(now))
    }

    async fn get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        let ask = Ask::Get(namespace, key.clone());
        match self.ask(call, shard, AccessKind::Read, &ask).await? {
            Outcome::Row(row) => Ok(row),
            _ => Err(unusable(shard, umbo_store::Outcome::NotApplied)),
        }
    }

    async fn multi_get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        keys: &[Key],
    ) -> Vec<Result<Option<Row>, StoreError>> {
        let ask = Ask::MultiGet(namespace, keys.to_vec());
        let rows = match self.ask(call, shard, AccessKind::Read, &ask).await {
            Ok(Outcome::MultiGot(rows)) if (1..=keys.len()).contains(&rows.len()) => Ok(rows),
            Ok(_) => Err(unusable(shard, umbo_store::Outcome::NotApplied)),
            Err(error) => Err(error),
        };
        let rows = rows.map(|rows| {
            let rows = rows.into_iter();
            rows.map(|row| row.map_err(|error| of_row(error, shard)))
                .collect()
        });
        rows.unwrap_or_else(|error| vec![Err(error); keys.len()])
    }

    async fn range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &RangeRequest,
    ) -> Result<Page, StoreError> {
        let ask = Ask::Range(request.clone());
        match self.ask(call, shard, AccessKind::Read, &ask).await? {
            Outcome::Page(page) => Ok(page),
            _ => Err(unusable(shard, umbo_store::Outcome::NotApplied)),
        }
    }

    async fn scan(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &ScanRequest,
    ) -> Result<ScanPage, StoreError> {
        let ask = Ask::Scan(shard, request.clone());
        match self.ask(call, shard, AccessKind::Read, &ask).await? {
            Outcome::Scanned(page) => Ok(page),
            _ => Err(unusable(shard, umbo_store::Outcome::NotApplied)),
        }
    }

    async fn chunk(
        &self,
        call: &CallContext,
        shard: ShardId,
        key: &Key,
        request: &ChunkRequest,
    ) -> Result<Option<Bytes>, StoreError> {
        let ask = Ask::Chunk(key.clone(), Box::new(*request));
        match self.ask(call, shard, AccessKind::Read, &ask).await? {
            Outcome::Row(chunk) => Ok(chunk.map(|row| row.value.bytes)),
            _ => Err(unusable(shard, umbo_store::Outcome::NotApplied)),
        }
    }

    async fn backup(
        &self,
        call: &CallContext,
        request: &BackupRequest,
    ) -> Result<Option<Bytes>, StoreError> {
        let (shard, ask) = (request.shard, Ask::Backup(*request));
        match self.ask(call, shard, AccessKind::Read, &ask).await? {
            Outcome::Row(piece) => Ok(piece.map(|row| row.value.bytes)),
            _ => Err(unusable(shard, umbo_store::Outcome::NotApplied)),
        }
    }

    async fn write(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>> {
        let (rows, ask) = (request.mutations.len(), Ask::Write(request));
        let answers = match self.ask(call, shard, AccessKind::Write, &ask).await {
            Ok(Outcome::Written(answers)) if answers.len() == rows => Ok(answers),
            Ok(_) => Err(unusable(shard, umbo_store::Outcome::Unknown)),
            Err(error) => Err(error),
        };
        let answers = answers.map(|answers| {
            let answers = answers.into_iter();
            answers
                .map(|answer| answer.unwrap_or_else(|error| Err(of_row(error, shard).into())))
                .collect()
        });
        answers.unwrap_or_else(|error| vec![Err(error.into()); rows])
    }

    async fn delete_range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: DeleteRangeRequest,
    ) -> Result<Deleted, StoreError> {
        let ask = Ask::DeleteRange(request);
        match self.ask(call, shard, AccessKind::Write, &ask).await? {
            Outcome::Deleted(deleted) => Ok(deleted),
            _ => Err(unusable(shard, umbo_store::Outcome::Unknown)),
        }
    }

    async fn close(&self) {
        self.end().await;
    }
}

#[async_trait]
impl RecordsKeeper for RemoteStore {
    fn home(&self) -> RecordsHome {
        self.topology().map.home()
    }

    async fn keep_records(&self, copy: Arc<RecordsCopy>) -> Vec<(ShardId, Result<(), StoreError>)> {
        if let Err(error) = self.check_open() {
            let shards = self.status().into_iter();
            return shards
                .map(|status| (status.shard, Err(error.clone())))
                .collect();
        }
        self.hand_records(copy).await
    }

    async fn kept_records(&self) -> Result<Option<Arc<RecordsCopy>>, StoreError> {
        self.check_open()?;
        self.newest_records().await
    }

    fn is_fenced(&self, namespace: NamespaceId) -> bool {
        let newest = self.last_records();
        newest.is_some_and(|copy| copy.fences(namespace))
    }

    fn records_revision(&self) -> RecordsRevision {
        self.common.records_revision()
    }
}

impl StoreReport for RemoteStore {
    fn status(&self) -> Vec<ShardStatus> {
        self.shards()
    }

    fn nodes(&self) -> Vec<NodeStatus> {
        self.node_status()
    }

    fn remote_stats(&self) -> Option<RemoteStats> {
        Some(self.stats())
    }
}

/// Returns the error of one row of an answer.
fn of_row(error: NodeError, shard: ShardId) -> StoreError {
    match error {
        NodeError::Store(error) => of_shard(error, shard),
        error => StoreError::Unavailable {
            shard,
            reason: error.to_string(),
            outcome: umbo_store::Outcome::NotApplied,
        },
    }
}

fn unusable(shard: ShardId, outcome: umbo_store::Outcome) -> StoreError {
    StoreError::Unavailable {
        shard,
        reason: "its node sent an answer of another kind".to_owned(),
        outcome,
    }
}
