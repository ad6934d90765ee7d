//! A step of the removal of a range: the rows of all datasets up to one sort key, in one commit.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use umbo_routing::Slot;
use umbo_store::{CommitTime, DatasetGroup, DeleteRangeRequest, Deleted, SortRange, StoreError};
use umbo_types::NamespaceId;

use crate::bucket::BucketId;
use crate::engine::BucketEngine;
use crate::error::ClusterError;
use crate::found::{FoundRow, RowCells};
use crate::guard::{Guard, RowChange};
use crate::guarded::TRIES_MAX;
use crate::place::{PlaceRange, StoredPlace};
use crate::queue::QueuedRemoval;
use crate::schema::REMOVED_RANGE;
use crate::sizes::add_size;
use crate::view::BucketView;

/// Rows that one step removes of a dataset at most.
pub(crate) const STEP_ROWS_MAX: u32 = 1_000;

impl BucketEngine {
    /// Makes a step of a removal, and answers it.
    pub(crate) async fn remove(&self, bucket: BucketId, removal: QueuedRemoval) {
        let (shard, begun) = (self.shard_of(bucket), self.clock.monotonic());
        let done = self.try_remove(bucket, &removal).await;
        let took = self.clock.monotonic().saturating_duration_since(begun);
        let done = done.map_err(|error| error.of(shard)).flatten();
        if let Ok(deleted) = &done {
            let state = self.shard(shard);
            state.commits.fetch_add(1, Ordering::Relaxed);
            state.mutations.fetch_add(deleted.rows, Ordering::Relaxed);
        }
        let time = CommitTime { took, share: took };
        let _ = removal.answer.send((done, time));
    }

    async fn try_remove(
        &self,
        bucket: BucketId,
        removal: &QueuedRemoval,
    ) -> Result<Result<Deleted, StoreError>, ClusterError> {
        let (shard, request) = (self.shard_of(bucket), &removal.request);
        self.learn(shard, request.namespace, request.epoch).await?;
        for tries in 0..TRIES_MAX {
            self.pause(tries).await;
            let seen = self.guard_in_turn(bucket, tries).await?;
            if let Err(error) = self.admit_at(shard, request.namespace, removal.deadline) {
                return Ok(Err(error));
            }
            if let Some(deleted) = self.remove_once(bucket, &seen, request).await? {
                return Ok(Ok(deleted));
            }
        }
        Err(ClusterError::Contended)
    }

    /// Reads the rows of a step in each dataset, and where the next one begins.
    async fn rows_of_step(
        &self,
        bucket: BucketId,
        group: Option<&DatasetGroup>,
        request: &DeleteRangeRequest,
    ) -> Result<(Vec<(NamespaceId, Vec<FoundRow>)>, Option<Bytes>), ClusterError> {
        let ids: Vec<NamespaceId> = match group {
            Some(group) => group.ids().collect(),
            None => vec![request.namespace],
        };
        let slot = Slot::of(bucket.identity, &request.partition).index();
        let rows_max = request.rows_max.min(STEP_ROWS_MAX) as usize;
        let mut found: Vec<(NamespaceId, Vec<FoundRow>)> = Vec::with_capacity(ids.len());
        for id in ids {
            let at = (id, slot, request.partition.as_bytes());
            let limit = rows_max as u32 + 1;
            let places = PlaceRange::of_sorts(at, &request.range);
            let walk = self.walk(bucket, places, false, true, limit);
            found.push((id, walk.await?));
        }
        // The step ends with the last row that any of the datasets may lose.
        let last_of = |(_, rows): &(NamespaceId, Vec<FoundRow>)| {
            let has_more = rows.len() > rows_max;
            has_more.then(|| rows[rows_max - 1].place.sort.clone())
        };
        let resume_after: Option<Bytes> = found.iter().filter_map(last_of).min();
        if let Some(last) = &resume_after {
            for (_, rows) in &mut found {
                rows.retain(|row| row.place.sort <= *last);
            }
        }
        Ok((found, resume_after))
    }

    /// Removes the rows of a step. Returns `None` if another process was faster.
    async fn remove_once(
        &self,
        bucket: BucketId,
        seen: &Guard,
        request: &DeleteRangeRequest,
    ) -> Result<Option<Deleted>, ClusterError> {
        let group = self.group_of(bucket);
        let building = group.as_ref().and_then(|group| group.building);
        let (found, resume_after) = self.rows_of_step(bucket, group.as_ref(), request).await?;
        let mut deleted = Deleted {
            resume_after,
            ..Deleted::default()
        };
        let (mut next, now) = (seen.clone(), self.clock.wall());
        let mut view = BucketView::new(group, seen.top, now);
        let mut changes: Vec<RowChange<'_>> = Vec::new();
        let mut gone = Vec::new();
        for (at, (id, rows)) in found.iter().enumerate() {
            changes.extend(self.removal_of(bucket, rows));
            for row in rows.iter().filter(|row| row.about.version.is_some()) {
                let size = row.size();
                add_size(&mut next.sizes, *id, (-size.0, -size.1, -size.2));
                gone.extend(row.upload());
                if at == 0 && row.about.expires_at.is_none_or(|at| at > now) {
                    deleted.rows += 1;
                    deleted.bytes += row.place.sort.len() as u64 + row.about.len;
                }
            }
        }
        if let Some(building) = building {
            let covered = covered(&request.range, deleted.resume_after.as_deref());
            changes.push(self.mark_removed(bucket, building, request, covered));
        }
        if changes.is_empty() {
            return Ok(Some(deleted));
        }
        let uploads: HashSet<_> = gone.iter().copied().collect();
        self.add_uploads(bucket, uploads, &mut view).await?;
        for upload in gone {
            view.refer(upload, false);
        }
        self.change_uploads(bucket, &view, &mut next, &mut changes);
        let group = view.group.as_ref();
        next.live = group.map(|group| (group.epoch, group.live)).or(next.live);
        let is_applied = self.commit(bucket, seen, next, changes).await?;
        Ok(is_applied.then_some(deleted))
    }

    /// Returns the statement that removes the rows from the first of these to the last.
    pub(crate) fn removal_of(&self, bucket: BucketId, rows: &[FoundRow]) -> Option<RowChange<'_>> {
        let places = PlaceRange::between(&rows.first()?.place, &rows.last()?.place);
        Some(self.removal(bucket, places))
    }

    /// Returns the statement that keeps a load from putting rows of a range that a client has removed.
    fn mark_removed(
        &self,
        bucket: BucketId,
        building: NamespaceId,
        request: &DeleteRangeRequest,
        covered: SortRange,
    ) -> RowChange<'_> {
        let place = StoredPlace {
            kind: REMOVED_RANGE,
            dataset: building,
            slot: Slot::of(bucket.identity, &request.partition).index(),
            partition: Bytes::copy_from_slice(request.partition.as_bytes()),
            sort: covered.start,
        };
        let row = RowCells {
            value: covered.end.unwrap_or_default(),
            ..RowCells::default()
        };
        self.put(bucket, &place, row)
    }
}

/// Returns the part of a range up to a sort key, which is included, or the whole range without a sort key.
fn covered(range: &SortRange, last: Option<&[u8]>) -> SortRange {
    let Some(last) = last else {
        return range.clone();
    };
    let up_to = SortRange {
        start: Bytes::new(),
        end: Some(SortRange::default().beyond(last, false).start),
    };
    range.clone().intersect(up_to)
}
