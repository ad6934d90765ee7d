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

/// A store of rows, divided into shards by partition key. The caller names the shard of a call. All keys of the call
/// belong to that shard by [`Store::shard_map`]; otherwise the store refuses the call before it begins.
///
/// Every engine makes the promises below, and declares further ones in [`Capabilities`]; the contract suite tests each
/// engine against its declaration. [`StoreReport`] has the reports for operators, and [`RecordsKeeper`] the copies of
/// Umbo's own records.
///
/// - **Order.** Rows of a partition are ordered bytewise by sort key; any bytes are a key.
/// - **Visibility.** A reader sees the last committed state. A write that was acknowledged is seen
///   by every read that begins afterwards. An expired row is never seen, whether or not its space
///   has been reclaimed; it counts as absent for conditions too.
/// - **Durability.** A write with `Durability::Sync` is on the disk when it is acknowledged. One
///   with `Durability::Async` is at least visible, and on the disk within the engine's flush bound.
/// - **Versions.** The version assigned to a mutation is at least the proposed one and larger than every version
///   assigned before on the same partition (if the engine declares it, the same shard), also across restarts, removals
///   of the row and a clock that goes back. A proposal beyond [`umbo_types::Version::latest_at`] the store's own time
///   is lowered to that bound, so that a wrong clock cannot carry the versions of a shard ahead of time.
/// - **Atomicity.** A mutation is applied wholly or not at all; with `Atomicity::Partition` so are
///   all mutations of a partition. Mutations of one key in one request are applied in order.
/// - **Isolation of shards.** A shard that fails does not affect the calls of other shards.
/// - **Large values.** A put of a row that refers to an upload is refused unless the upload is whole. The commit that
///   makes the row visible decides this. An upload is kept while a row refers to it, and
///   [`READ_GRACE`](crate::READ_GRACE) longer. An upload that no row has referred to is kept for
///   [`UPLOAD_IDLE`](crate::UPLOAD_IDLE) after its last chunk. Then the shard reclaims it.
/// - **Order of writes.** Two writes of a partition whose futures were first polled one after the other
///   are applied in that order, or the earlier one is not applied at all.
/// - **Cancellation.** Dropping the future of a read stops it. Dropping the future of a write withdraws the parts that
///   the store has not begun; parts that it has begun run to their end.
/// - **Deadlines.** A write that the store has not begun by its deadline is never begun.
/// - **Fences.** Once [`RecordsKeeper::keep_records`] has answered `Ok` for a shard, that shard refuses all work
///   for the namespaces that the copy fences with [`StoreError::NamespaceGone`], also work that it took
///   before, also after a restart; and it reclaims their rows by itself.
#[async_trait]
pub trait Store: StoreReport + RecordsKeeper + Send + Sync + fmt::Debug {
    /// Returns the owner of each slot.
    fn shard_map(&self) -> Arc<ShardMap>;

    /// Returns the promises of this engine that not every engine makes. They never change while the engine lives.
    fn capabilities(&self) -> Capabilities;

    /// Returns whether the shard should be asked now. False only while its node is briefly away, for example
    /// restarting: then the caller should wait for [`Self::reachable`].
    fn is_reachable(&self, _shard: ShardId) -> bool {
        true
    }

    /// Waits until the shard can be asked, or until the wait is over; calls then fail with
    /// [`StoreError::Unavailable`]. Bounded by the store.
    async fn reachable(&self, _shard: ShardId) {}

    /// Returns the time of day of a shard when the time of this process is `now`. The rows of the shard expire by it.
    /// Both times are the same unless the shard is on another machine and one of the two clocks is wrong.
    fn time_at(&self, _shard: ShardId, now: Timestamp) -> Timestamp {
        now
    }

    /// Returns the begin of the life of a row with a time to live that is written now; `now` is the time of this
    /// process. It is the time of the shard, or the time of most known clocks if the shard is behind them: a row does
    /// not expire early once the clock of its shard is set right.
    fn lives_from(&self, shard: ShardId, now: Timestamp) -> Timestamp {
        self.time_at(shard, now)
    }

    /// Reads one row. Returns `None` if no row is visible.
    async fn get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError>;

    /// Reads rows of a shard, which are not one snapshot. The answers are in the order of the keys. The row whose value
    /// reaches the sum of [`MULTI_GET_BYTES_MAX`](umbo_types::limits::MULTI_GET_BYTES_MAX) bytes is the last: there are
    /// fewer answers than keys then.
    async fn multi_get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        keys: &[Key],
    ) -> Vec<Result<Option<Row>, StoreError>>;

    /// Reads one chunk of a range within a partition. A chunk is one snapshot if the engine declares that; two chunks
    /// are not.
    async fn range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &RangeRequest,
    ) -> Result<Page, StoreError>;

    /// Reads like [`Self::range`], but passes the rows to `rows` and returns a page without rows. If the read fails,
    /// `rows` may have taken some.
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

    /// Reads like [`Self::scan`], but passes the rows to `rows` and returns a page without rows. If the read fails,
    /// `rows` may have taken some.
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

    /// Reads a chunk of a large value; `key` is the key of its row. Returns `None` if the value has been reclaimed.
    async fn chunk(
        &self,
        call: &CallContext,
        shard: ShardId,
        key: &Key,
        request: &ChunkRequest,
    ) -> Result<Option<Bytes>, StoreError>;

    /// Begins a backup of a shard and returns an empty piece, or reads a piece of it. Returns `None` beyond its end. A
    /// backup is gone if it is not read for [`BACKUP_IDLE`](crate::BACKUP_IDLE), if its shard is opened again, or if
    /// another backup of the shard begins. Its next piece is empty then; other pieces are never empty. An engine
    /// without backups fails with [`StoreError::Unavailable`].
    async fn backup(
        &self,
        _call: &CallContext,
        request: &BackupRequest,
    ) -> Result<Option<Bytes>, StoreError> {
        Err(StoreError::Unavailable {
            shard: request.shard,
            reason: "its engine does not support backups".to_owned(),
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
