//! The contract itself.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use umbo_routing::ShardMap;
use umbo_types::{Key, NamespaceId, Row, ShardId};

use crate::call::CallContext;
use crate::error::{StoreError, WriteError};
use crate::request::{
    DeleteRangeRequest, Deleted, Page, PurgeProgress, RangeRequest, ScanPage, ScanRequest,
    WriteRequest, Written,
};

/// A store of rows, divided into shards by partition key.
///
/// Every engine promises:
/// - **Order.** Rows of a partition are ordered bytewise by sort key; any bytes are a key.
/// - **Visibility.** A reader sees the last committed state. A write that was acknowledged is seen
///   by every read that begins afterwards. An expired row is never seen, whether or not its space
///   has been reclaimed; it counts as absent for conditions too.
/// - **Durability.** A write with `Durability::Sync` is on the disk when it is acknowledged. One
///   with `Durability::Async` is at least visible, and on the disk within the engine's flush bound.
/// - **Versions.** The version given to a mutation is at least the proposed one and larger than
///   every version given before on the same shard, also across restarts, removals of the row and a
///   clock that goes back.
/// - **Atomicity.** A mutation is applied wholly or not at all; with `Atomicity::Partition` so are
///   all mutations of a partition. Mutations of one key in one request are applied in order.
/// - **Isolation of shards.** A shard that fails answers errors for its own keys only.
/// - **Cancellation.** Dropping the future of a read stops it. Dropping the future of a write
///   leaves the write running to its end.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug {
    /// Returns which shard owns which slot.
    fn shard_map(&self) -> Arc<ShardMap>;

    /// Says whether reads of one row or chunk are answered when they are first polled, because the
    /// rows are in this process.
    fn answers_at_once(&self) -> bool {
        false
    }

    /// Says whether it makes sense to ask the shard now. False only while its node is away for a
    /// moment, as it is while it restarts: then [`Self::reachable`] is worth waiting for.
    fn is_reachable(&self, _shard: ShardId) -> bool {
        true
    }

    /// Waits until the shard can be asked, or until it is not worth waiting any more; calls answer
    /// [`StoreError::Unavailable`] then. Bounded by the store.
    async fn reachable(&self, _shard: ShardId) {}

    /// Reads one row; none where there is no visible one.
    async fn get(
        &self,
        call: &CallContext,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError>;

    /// Reads rows of any partitions. The answers are in the order of the keys; a shard that fails
    /// fails only its own keys. The rows of different shards are not one snapshot.
    async fn multi_get(
        &self,
        call: &CallContext,
        namespace: NamespaceId,
        keys: &[Key],
    ) -> Vec<Result<Option<Row>, StoreError>>;

    /// Reads one chunk of a range within a partition. Each chunk is one snapshot; two are not.
    async fn range(&self, call: &CallContext, request: &RangeRequest) -> Result<Page, StoreError>;

    /// Reads one chunk of a namespace.
    async fn scan(&self, call: &CallContext, request: &ScanRequest)
    -> Result<ScanPage, StoreError>;

    /// Applies mutations. The answers are in the order of the mutations.
    async fn write(
        &self,
        call: &CallContext,
        request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>>;

    /// Removes a bounded number of rows of a range.
    async fn delete_range(
        &self,
        call: &CallContext,
        request: DeleteRangeRequest,
    ) -> Result<Deleted, StoreError>;

    /// Removes a bounded number of rows of a namespace that nobody can reach any more.
    async fn purge(
        &self,
        namespace: NamespaceId,
        rows_max: u32,
    ) -> Result<PurgeProgress, StoreError>;

    /// Returns the state of each shard, in order of their ids.
    fn status(&self) -> Vec<ShardStatus>;

    /// Returns the state of each node that shards are on, by name; none where the shards are in
    /// this process.
    fn nodes(&self) -> Vec<NodeStatus> {
        Vec::new()
    }

    /// Returns what was counted of the way to those nodes; none where the shards are in this process.
    fn remote_stats(&self) -> Option<RemoteStats> {
        None
    }

    /// Stops taking writes, brings everything acknowledged to the disk and waits for it.
    async fn close(&self);
}

/// Whether a shard serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShardState {
    /// Reads and writes.
    Available,
    /// Reads only, and why.
    ReadOnly(String),
    /// Nothing, and why.
    Unavailable(String),
}

/// State of a node that shards are on, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// Its name in the map of the cluster.
    pub name: String,
    /// Host and port.
    pub address: String,
    /// Why it cannot be asked; none where it can.
    pub failure: Option<String>,
    /// Version of the cluster map that the node goes by; none until it has said so.
    pub map_version: Option<u64>,
    /// Shards that the map of the one who asks gives it.
    pub shards: Vec<ShardId>,
    /// Requests that it has been asked and has not answered.
    pub in_flight: u64,
}

/// What a store on other machines counted of the way to them since it was made, and what is in flight
/// now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemoteStats {
    /// Requests sent, retries and hedges included.
    pub requests: u64,
    /// Messages that they were sent in.
    pub frames: u64,
    /// Messages with answers that came.
    pub answer_frames: u64,
    /// Requests that were sent again after their connection was lost, or to another node.
    pub retries: u64,
    /// Reads that were sent a second time because they were slow.
    pub hedges: u64,
    /// Of those, how many were answered by the second.
    pub hedges_won: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Connections that could not be made, or were refused by the node.
    pub connections_refused: u64,
    /// Connections that were lost or given up.
    pub connections_lost: u64,
    /// Requests that have been asked and not answered.
    pub in_flight: u64,
}

/// State of a shard, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardStatus {
    /// The shard.
    pub shard: ShardId,
    /// Whether it serves.
    pub state: ShardState,
    /// Rows stored, expired ones that await reclaiming included.
    pub rows: u64,
    /// Size of its file, in bytes.
    pub file_bytes: u64,
    /// Mutations waiting for a commit.
    pub queued: u64,
    /// Commits since the process started.
    pub commits: u64,
    /// Mutations committed since the process started.
    pub mutations: u64,
    /// Expired rows reclaimed since the process started.
    pub reclaimed: u64,
}
