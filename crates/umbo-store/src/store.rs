//! The contract itself.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use umbo_routing::ShardMap;
use umbo_types::{Key, NamespaceId, Row, ShardId, Timestamp};

use crate::backup::BackupRequest;
use crate::call::CallContext;
use crate::capabilities::Capabilities;
use crate::error::{Outcome, StoreError, WriteError};
use crate::large::ChunkRequest;
use crate::records::RecordsKeeper;
use crate::report::StoreReport;
use crate::request::{
    DeleteRangeRequest, Deleted, Page, RangeRequest, ScanPage, ScanRequest, WriteRequest, Written,
};
use crate::row_sink::RowSink;

/// A store of rows, divided into shards by partition key. A call is for one shard, which the caller names: its keys are all
/// of that shard by [`Store::shard_map`], and a store refuses it otherwise before it begins.
///
/// Every engine promises what follows, and declares what more it does in [`Capabilities`]; the contract suite
/// asks of it what it declares. What operators read is [`StoreReport`], what a store keeps of Umbo's own records
/// [`RecordsKeeper`].
///
/// - **Order.** Rows of a partition are ordered bytewise by sort key; any bytes are a key.
/// - **Visibility.** A reader sees the last committed state. A write that was acknowledged is seen
///   by every read that begins afterwards. An expired row is never seen, whether or not its space
///   has been reclaimed; it counts as absent for conditions too.
/// - **Durability.** A write with `Durability::Sync` is on the disk when it is acknowledged. One
///   with `Durability::Async` is at least visible, and on the disk within the engine's flush bound.
/// - **Versions.** The version assigned to a mutation is at least the proposed one and larger than every
///   version assigned before on the same partition (where the engine declares it, the same shard), also
///   across restarts, removals of the row and a clock that goes back. A proposal beyond
///   [`umbo_types::Version::latest_at`] the store's own time is lowered to that, so that no clock that is wrong carries
///   the versions of a shard ahead of time.
/// - **Atomicity.** A mutation is applied wholly or not at all; with `Atomicity::Partition` so are
///   all mutations of a partition. Mutations of one key in one request are applied in order.
/// - **Isolation of shards.** A shard that fails does not affect the calls of other shards.
/// - **Large values.** A put of a row that refers to an upload is refused unless the upload is whole, in the same commit
///   in which the row becomes visible. An upload is kept while a row refers to it, and [`READ_GRACE`](crate::READ_GRACE)
///   longer; without one for [`UPLOAD_IDLE`](crate::UPLOAD_IDLE) after its last chunk. Then the shard reclaims it.
/// - **Order of writes.** Two writes of a partition whose futures were first polled one after the other
///   are applied in that order, or the earlier one is not applied at all.
/// - **Cancellation.** Dropping the future of a read stops it. Dropping the future of a write withdraws
///   what the store has not begun; what it has begun runs to its end.
/// - **Deadlines.** A write that the store has not begun by its deadline is never begun.
/// - **Fences.** Once [`RecordsKeeper::keep_records`] has answered `Ok` for a shard, that shard refuses all work
///   for the namespaces that the copy fences with [`StoreError::NamespaceGone`], also work that it took
///   before, also after a restart; and it reclaims their rows by itself.
#[async_trait]
pub trait Store: StoreReport + RecordsKeeper + Send + Sync + fmt::Debug {
    /// Returns the owner of each slot.
    fn shard_map(&self) -> Arc<ShardMap>;

    /// Returns what the engine promises beyond what every engine does. The same as long as it lives.
    fn capabilities(&self) -> Capabilities;

    /// Returns whether the shard should be asked now. False only while its node is briefly away, for example
    /// restarting: then the caller should wait for [`Self::reachable`].
    fn is_reachable(&self, _shard: ShardId) -> bool {
        true
    }

    /// Waits until the shard can be asked, or until the wait is over; calls then fail with
    /// [`StoreError::Unavailable`]. Bounded by the store.
    async fn reachable(&self, _shard: ShardId) {}

    /// Returns the time of day of a shard, by which its rows expire; `now` is that of this process. They are the same
    /// unless the shard is on another machine and the clock of one of both is wrong.
    fn time_at(&self, _shard: ShardId, now: Timestamp) -> Timestamp {
        now
    }

    /// Returns the begin of the life of a row with a time to live that is written now; `now` is the time of this process.
    /// It is the time of the shard, or that of most known clocks if the shard is behind them: a row does not expire early
    /// once the clock of its shard is set right.
    fn lives_from(&self, shard: ShardId, now: Timestamp) -> Timestamp {
        self.time_at(shard, now)
    }

    /// Reads one row; none if there is no visible one.
    async fn get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError>;

    /// Reads rows of a shard, which are not one snapshot. The answers are in the order of the keys. There are fewer
    /// answers than keys if the values reach [`MULTI_GET_BYTES_MAX`](umbo_types::limits::MULTI_GET_BYTES_MAX): the row with
    /// which they do is the last.
    async fn multi_get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        keys: &[Key],
    ) -> Vec<Result<Option<Row>, StoreError>>;

    /// Reads one chunk of a range within a partition. Two chunks are not one snapshot; one is where the engine
    /// declares it.
    async fn range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &RangeRequest,
    ) -> Result<Page, StoreError>;

    /// Reads like [`Self::range`], but hands the rows to `rows`, and the page holds none. If the read fails, some
    /// may have been taken.
    async fn range_into(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &RangeRequest,
        rows: &mut dyn RowSink,
    ) -> Result<Page, StoreError> {
        let mut page = self.range(call, shard, request).await?;
        rows.append(&std::mem::take(&mut page.rows));
        Ok(page)
    }

    /// Reads one chunk of the rows that a shard has of a namespace.
    async fn scan(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &ScanRequest,
    ) -> Result<ScanPage, StoreError>;

    /// Reads like [`Self::scan`], but hands the rows to `rows`, and the page holds none. If the read fails, some
    /// may have been taken.
    async fn scan_into(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &ScanRequest,
        rows: &mut dyn RowSink,
    ) -> Result<ScanPage, StoreError> {
        let mut page = self.scan(call, shard, request).await?;
        rows.append(&std::mem::take(&mut page.rows));
        Ok(page)
    }

    /// Reads a chunk of a large value, whose row is of `key`; none if it has been reclaimed.
    async fn chunk(
        &self,
        call: &CallContext,
        shard: ShardId,
        key: &Key,
        request: &ChunkRequest,
    ) -> Result<Option<Bytes>, StoreError>;

    /// Begins a backup of a shard, which is answered with an empty piece, or reads a piece of it; none beyond its end. A
    /// backup that is not read for [`BACKUP_IDLE`](crate::BACKUP_IDLE) is gone, and one of a shard that was opened again or
    /// of which another was begun: then its next piece is empty, which none is otherwise. An engine that makes no backups
    /// fails with [`StoreError::Unavailable`].
    async fn backup(
        &self,
        _call: &CallContext,
        request: &BackupRequest,
    ) -> Result<Option<Bytes>, StoreError> {
        Err(StoreError::Unavailable {
            shard: request.shard,
            reason: "its engine makes no backups".to_owned(),
            outcome: Outcome::NotApplied,
        })
    }

    /// Applies mutations of rows of a shard. The answers are in the order of the mutations.
    async fn write(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>>;

    /// Removes a bounded number of rows of a range.
    async fn delete_range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: DeleteRangeRequest,
    ) -> Result<Deleted, StoreError>;

    /// Stops accepting writes, and waits until everything acknowledged is on the disk.
    async fn close(&self);
}
