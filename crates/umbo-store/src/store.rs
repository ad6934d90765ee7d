//! The contract itself.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use umbo_routing::{RecordsHome, ShardMap};
use umbo_types::{Key, NamespaceId, Row, ShardId};

use crate::call::CallContext;
use crate::error::{StoreError, WriteError};
use crate::records::{RecordsCopy, RecordsRevision};
use crate::request::{
    DeleteRangeRequest, Deleted, Page, RangeRequest, ScanPage, ScanRequest, WriteRequest, Written,
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
/// - **Versions.** The version assigned to a mutation is at least the proposed one and larger than every
///   version assigned before on the same shard, also across restarts, removals of the row and a clock that goes
///   back. A proposal beyond [`umbo_types::Version::latest_at`] the store's own time is lowered to that, so
///   that no client can use up the versions of a shard.
/// - **Atomicity.** A mutation is applied wholly or not at all; with `Atomicity::Partition` so are
///   all mutations of a partition. Mutations of one key in one request are applied in order.
/// - **Isolation of shards.** A shard that fails answers errors for its own keys only.
/// - **Order of writes.** Two writes of a partition whose futures were first polled one after the other
///   are applied in that order, or the earlier one is not applied at all.
/// - **Cancellation.** Dropping the future of a read stops it. Dropping the future of a write withdraws
///   what the store has not begun; what it has begun runs to its end.
/// - **Deadlines.** A write that the store has not begun by its deadline is never begun.
/// - **Fences.** Once [`Store::keep_records`] has answered `Ok` for a shard, that shard refuses all work
///   for the namespaces that the copy fences with [`StoreError::NamespaceGone`], also work that it took
///   before, also after a restart; and it reclaims their rows by itself.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug {
    /// Returns the owner of each slot.
    fn shard_map(&self) -> Arc<ShardMap>;

    /// Returns whether reads of one row or chunk are answered when they are first polled, because the rows
    /// are in this process.
    fn answers_at_once(&self) -> bool {
        false
    }

    /// Returns whether the shard should be asked now. False only while its node is briefly away, for example
    /// restarting: then the caller should wait for [`Self::reachable`].
    fn is_reachable(&self, _shard: ShardId) -> bool {
        true
    }

    /// Waits until the shard can be asked, or until the wait is over; calls then fail with
    /// [`StoreError::Unavailable`]. Bounded by the store.
    async fn reachable(&self, _shard: ShardId) {}

    /// Reads one row; none if there is no visible one.
    async fn get(
        &self,
        call: &CallContext,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError>;

    /// Reads rows of any partitions. The answers are in the order of the keys; a failing shard affects only
    /// its own keys. The rows of different shards are not one snapshot.
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

    /// Returns the shard in which Umbo's own records are changed.
    fn home(&self) -> RecordsHome {
        RecordsHome::default()
    }

    /// Passes a copy of Umbo's own records to the store. Every node keeps the newest one durably, and every
    /// shard raises its fences durably. Answers by shard, in order of their ids, `Ok` if the fences of this
    /// copy, or of a newer one, are on the disk. Passing the same copy again is cheap and has the same
    /// answer; an older copy than the kept one changes nothing.
    async fn keep_records(&self, copy: Arc<RecordsCopy>) -> Vec<(ShardId, Result<(), StoreError>)>;

    /// Returns the newest copy that any reachable node keeps; none if no copy was ever passed. Fails if no
    /// node can be asked, or a copy cannot be read.
    async fn kept_records(&self) -> Result<Option<Arc<RecordsCopy>>, StoreError>;

    /// Returns the highest revision of a copy that the store has received or heard of, at no cost.
    fn records_revision(&self) -> RecordsRevision;

    /// Returns the status of each shard, in order of their ids.
    fn status(&self) -> Vec<ShardStatus>;

    /// Returns, for each shard whose file is in this process, how many reads of the file have failed since the
    /// process started.
    fn bad_reads(&self) -> Vec<(ShardId, u64)> {
        Vec::new()
    }

    /// Returns the status of each shard node, by name; none if the shards are in this process.
    fn nodes(&self) -> Vec<NodeStatus> {
        Vec::new()
    }

    /// Returns the counters of the connections to those nodes; none if the shards are in this process.
    fn remote_stats(&self) -> Option<RemoteStats> {
        None
    }

    /// Stops accepting writes, and waits until everything acknowledged is on the disk.
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

/// Status of a shard node, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// Its name in the map of the cluster.
    pub name: String,
    /// Host and port.
    pub address: String,
    /// Why it cannot be asked; none if it can.
    pub failure: Option<String>,
    /// Version of the cluster map that the node uses; none until it has reported it.
    pub map_version: Option<u64>,
    /// Shards that the local map assigns to it.
    pub shards: Vec<ShardId>,
    /// Requests in flight at it.
    pub in_flight: u64,
}

/// Counters of the connections to shard nodes since the store was made, and the requests in flight now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemoteStats {
    /// Requests sent, retries included.
    pub requests: u64,
    /// Messages that carried them.
    pub frames: u64,
    /// Messages with answers that were received.
    pub answer_frames: u64,
    /// Requests that were sent again after their connection was lost, or to another node.
    pub retries: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Connections that could not be made, or were refused by the node.
    pub connections_refused: u64,
    /// Connections that were lost, or closed because the node was silent.
    pub connections_lost: u64,
    /// Requests in flight.
    pub in_flight: u64,
}

/// Status of a shard, for operators.
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
    /// Asynchronous writes that were acknowledged and are lost: they were not on the disk yet, and need a
    /// part of the file that cannot be read any more. Since the start.
    pub lost_async: u64,
    /// Fenced namespaces whose rows may not all be reclaimed yet.
    pub purging: u64,
    /// Expired rows that are known to await reclaiming; a lower bound while the sweeper is behind.
    pub expired: u64,
    /// Highest id of a namespace that has rows in the shard, or had some since it was opened;
    /// [`NamespaceId::SYSTEM`] if there is none.
    pub namespace_max: NamespaceId,
    /// Sizes of the namespaces that have rows in the shard, by id; none if they are unknown.
    pub sizes: Option<Vec<NamespaceSize>>,
}

impl ShardStatus {
    /// Makes the status of a shard of which nothing but its state is known.
    pub const fn new(shard: ShardId, state: ShardState) -> Self {
        Self {
            shard,
            state,
            rows: 0,
            file_bytes: 0,
            queued: 0,
            commits: 0,
            mutations: 0,
            reclaimed: 0,
            lost_async: 0,
            purging: 0,
            expired: 0,
            namespace_max: NamespaceId::SYSTEM,
            sizes: None,
        }
    }
}

/// Size of a namespace in a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamespaceSize {
    /// The namespace.
    pub namespace: NamespaceId,
    /// Rows stored, expired ones that await reclaiming included.
    pub rows: u64,
    /// Bytes of their keys and values, with what the engine stores beside these in each row.
    pub bytes: u64,
}
