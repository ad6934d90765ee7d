//! Walks over the rows of a partition or namespace, in the shards that hold them.
//!
//! The rows go to a sink as they are read. A walk that cannot be finished at once, because a page is not in
//! memory or its file has failed, is begun again where it may wait; the sink forgets what it had taken.

use std::sync::Arc;

use arc_swap::ArcSwap;
use umbo_routing::ShardMap;
use umbo_store::{
    Outcome, Page, RangeRequest, RowBatch, RowSink, ScanPage, ScanRequest, StoreError,
};
use umbo_types::{Clock, ShardId};

use crate::file_error::FileError;
use crate::running::ServedShard;
use crate::snapshot::{ChunkBuilder, Limits, Segment, ShardSnapshot};
use crate::store::RedbStore;

impl RedbStore {
    /// Reads a chunk of a range in a shard into `rows`.
    pub(crate) async fn walk_range(
        &self,
        id: ShardId,
        request: &RangeRequest,
        rows: &mut dyn RowSink,
    ) -> Result<Page, StoreError> {
        let served = self.served(id);
        let shard = served.open(id)?;
        let at_once = shard
            .attempt_at_once(|snapshot, clock| snapshot.range(request, clock.wall(), &mut *rows));
        let (resume_after, touched) = match at_once {
            Ok(read) => read,
            Err(failure) => {
                rows.clear();
                let owned = || {
                    let request = request.clone();
                    move |snapshot: &ShardSnapshot, clock: &dyn Clock| {
                        let mut batch = RowBatch::default();
                        let read = snapshot.range(&request, clock.wall(), &mut batch)?;
                        Ok((batch, read))
                    }
                };
                // Boxed, so that the future of a read that waits for nothing stays small.
                let (batch, read) = Box::pin(shard.read_again(failure, owned)).await?;
                rows.append(&batch);
                read
            }
        };
        Ok(Page {
            rows: RowBatch::default(),
            resume_after,
            touched,
        })
    }

    /// Reads a chunk of a scan into `rows`.
    pub(crate) async fn walk_scan(
        &self,
        request: &ScanRequest,
        rows: &mut dyn RowSink,
    ) -> Result<ScanPage, StoreError> {
        let served = |id: ShardId| self.shards[usize::from(id.0)].load_full();
        let mut read = scan_shards(&self.map, request, rows, served, false);
        if read.is_err() {
            rows.clear();
        }
        if let Err(ScanFailure::File(id, FileError::MustWait | FileError::Paused)) = read {
            read = self.scan_waiting(request, id, rows).await;
        }
        let (id, failure) = match read {
            Ok(page) => return Ok(page),
            Err(ScanFailure::Store(error)) => return Err(error),
            Err(ScanFailure::File(id, failure)) => (id, failure),
        };
        self.served(id).open(id)?.recover_from(failure).await?;
        let read = self.scan_waiting(request, id, rows).await;
        read.map_err(|failure| match failure {
            ScanFailure::Store(error) => error,
            ScanFailure::File(id, failure) => match self.served(id).open(id) {
                Ok(shard) => shard.error(failure, Outcome::NotApplied),
                Err(error) => error,
            },
        })
    }

    /// As [`Self::scan_once`], again after each pause of a shard that it meets.
    async fn scan_waiting(
        &self,
        request: &ScanRequest,
        id: ShardId,
        rows: &mut dyn RowSink,
    ) -> Result<ScanPage, ScanFailure> {
        loop {
            match self.scan_once(request, id, rows).await {
                Err(ScanFailure::File(id, FileError::Paused))
                    if self.served(id).open(id)?.outlasts_pause().await => {}
                read => return read,
            }
        }
    }

    /// Reads a chunk of a scan on a thread that may wait for the disk of a shard.
    async fn scan_once(
        &self,
        request: &ScanRequest,
        id: ShardId,
        rows: &mut dyn RowSink,
    ) -> Result<ScanPage, ScanFailure> {
        let served: Vec<_> = self.shards.iter().map(ArcSwap::load_full).collect();
        let (map, request) = (Arc::clone(&self.map), request.clone());
        let disk = Arc::clone(&self.served(id).open(id)?.disk);
        let read = move || {
            let served = |id: ShardId| Arc::clone(&served[usize::from(id.0)]);
            let mut batch = RowBatch::default();
            let read = scan_shards(&map, &request, &mut batch, served, true);
            Ok(read.map(|page| (batch, page)))
        };
        let read = disk.wait(read).await;
        let (batch, page) = read.unwrap_or_else(|failure| Err(ScanFailure::File(id, failure)))?;
        rows.append(&batch);
        Ok(page)
    }
}

/// Reads a chunk of a scan into `rows`; a failure carries its shard.
fn scan_shards(
    map: &ShardMap,
    request: &ScanRequest,
    rows: &mut dyn RowSink,
    served: impl Fn(ShardId) -> Arc<ServedShard>,
    may_wait: bool,
) -> Result<ScanPage, ScanFailure> {
    let mut ids = request.shards(map);
    let is_here = |id| !matches!(*served(id), ServedShard::Elsewhere(_));
    ids.retain(|&id| request.shard == Some(id) || is_here(id));
    let mut after = request.after.as_ref();
    let first = match after {
        None => 0,
        Some(after) => ids
            .iter()
            .position(|&id| id == after.shard)
            .ok_or_else(|| no_such_position(after.shard))?,
    };
    let limits = Limits::of(request.rows_max, request.bytes_max, request.keys_only);
    let mut chunk = ChunkBuilder::new(limits, rows);
    for &id in &ids[first..] {
        let segment = Segment {
            shard: id,
            namespace: request.namespace,
            placed_as: map.placements().of(request.namespace),
            slots: request.slots.clone(),
            after: after.take().map(|after| after.key.clone()),
        };
        let served = served(id);
        let shard = served.open(id)?;
        let read = |snapshot: &ShardSnapshot, clock: &dyn Clock| {
            snapshot.scan(&segment, clock.wall(), &mut chunk)
        };
        let read = if may_wait {
            shard.attempt(read)
        } else {
            shard.attempt_at_once(read)
        };
        read.map_err(|failure| ScanFailure::File(id, failure))?;
        if chunk.is_cut() {
            break;
        }
    }
    let (resume_after, touched) = chunk.finish();
    Ok(ScanPage {
        rows: RowBatch::default(),
        resume_after,
        touched,
    })
}

/// Why a chunk of a scan was not read.
enum ScanFailure {
    /// The file of a shard failed; the read may be tried again.
    File(ShardId, FileError),
    /// An error that a retry does not help.
    Store(StoreError),
}

impl From<StoreError> for ScanFailure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

fn no_such_position(shard: ShardId) -> StoreError {
    StoreError::Unavailable {
        shard,
        reason: "it owns none of the slots of this scan".to_owned(),
        outcome: Outcome::NotApplied,
    }
}
