//! Reclaiming: the rows of fenced namespaces, and uploads that no row refers to.
//!
//! One task of the process goes through the buckets of all namespaces, after each new copy of the records and then from
//! time to time. The work in a bucket is in its guard: which datasets have rows, and when the next upload is due.
//! It is done in the queue of the bucket, in steps, as any other commit. There a bucket is also counted that another
//! process has changed.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::Weak;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::sync::oneshot;
use umbo_types::{NamespaceId, Timestamp, UploadId};

use crate::bucket::BucketId;
use crate::cell::int;
use crate::engine::{BucketEngine, lock};
use crate::error::ClusterError;
use crate::found::FoundRow;
use crate::guard::{Guard, RowChange};
use crate::guarded::TRIES_MAX;
use crate::needs::upload_of;
use crate::place::PlaceRange;
use crate::queue::{Reclaimed, Work};
use crate::reads::ALL;
use crate::schema::{IDEMPOTENCY, REMOVED_RANGE, ROW, UPLOAD};
use crate::sizes::add_size;
use crate::view::BucketView;

/// How often all buckets are looked at.
const RECLAIM_EVERY: Duration = Duration::from_mins(10);
/// Pause after a round that could not do all.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Rows that one step reclaims.
const STEP_ROWS: u32 = 1_000;
/// Guards that are read at the same time.
const GUARDS_AT_ONCE: usize = 32;

/// Reclaims until the store is dropped.
pub(crate) async fn reclaim(engine: Weak<BucketEngine>) {
    loop {
        let Some(engine_now) = engine.upgrade() else {
            return;
        };
        let is_done = match engine_now.reclaim_all().await {
            Ok(is_done) => is_done,
            Err(error) => {
                tracing::warn!(%error, "cannot reclaim what is gone; it is tried again");
                false
            }
        };
        let wait = if is_done { RECLAIM_EVERY } else { RETRY_AFTER };
        let is_asked = Arc::clone(&engine_now.reclaim);
        drop(engine_now);
        let _ = tokio::time::timeout(wait, is_asked.notified()).await;
    }
}

impl BucketEngine {
    /// Reads the namespaces that have buckets.
    pub(crate) async fn read_namespaces(&self) -> Result<Vec<NamespaceId>, ClusterError> {
        let answer = self
            .execute(&self.statements.own.namespaces, vec![int(self.instance)])
            .await?
            .into_rows_result()?;
        let mut namespaces = Vec::new();
        for row in answer.rows::<(i32,)>()? {
            namespaces.push(NamespaceId(row?.0.cast_unsigned()));
        }
        lock(&self.namespaces).extend(&namespaces);
        Ok(namespaces)
    }

    /// Reads the guards of all buckets of a namespace.
    pub(crate) async fn guards_of(
        &self,
        identity: NamespaceId,
    ) -> Result<Vec<(BucketId, Guard)>, ClusterError> {
        let buckets = (0..self.buckets).map(|number| BucketId { identity, number });
        let read = |bucket| async move {
            let guard = self.read_guard(bucket, false).await?;
            Ok::<_, ClusterError>((bucket, guard))
        };
        let guards = futures_util::stream::iter(buckets.map(read)).buffered(GUARDS_AT_ONCE);
        let guards: Vec<_> = guards.collect().await;
        guards.into_iter().collect()
    }

    /// Goes through all buckets. Returns whether nothing is left to reclaim now.
    async fn reclaim_all(self: &Arc<Self>) -> Result<bool, ClusterError> {
        let mut is_done = true;
        for identity in self.read_namespaces().await? {
            let mut is_empty = true;
            for (bucket, guard) in self.guards_of(identity).await? {
                is_empty &= guard.sizes.is_empty();
                if self.has_counted(bucket, &guard) && !self.has_to_reclaim(&guard) {
                    continue;
                }
                let is_reclaimed = self.reclaim_steps(bucket).await;
                is_done &= is_reclaimed;
                is_empty &= is_reclaimed;
            }
            if is_empty && self.is_gone(identity) {
                let cells = vec![int(self.instance), int(identity.0)];
                self.execute(&self.statements.own.delete_namespace, cells)
                    .await?;
                lock(&self.namespaces).remove(&identity);
            }
        }
        Ok(is_done)
    }

    fn has_counted(&self, bucket: BucketId, guard: &Guard) -> bool {
        let sizes = lock(&self.shard(self.shard_of(bucket)).sizes);
        sizes.has_counted(bucket, &guard.sizes)
    }

    fn has_to_reclaim(&self, guard: &Guard) -> bool {
        let is_due = guard.due.is_some_and(|at| at <= self.clock.wall());
        is_due || !self.fenced_of(guard).is_empty()
    }

    fn fenced_of(&self, guard: &Guard) -> Vec<NamespaceId> {
        let records = lock(&self.records);
        let is_fenced = |id: &NamespaceId| records.as_ref().is_some_and(|copy| copy.fences(*id));
        let datasets = guard.sizes.keys();
        let datasets = datasets.map(|id| NamespaceId(id.cast_unsigned()));
        datasets.filter(is_fenced).collect()
    }

    /// Returns whether a namespace was removed with all its datasets.
    fn is_gone(&self, identity: NamespaceId) -> bool {
        let records = lock(&self.records);
        let Some(copy) = &*records else { return false };
        copy.fences(identity) && copy.datasets.iter().all(|group| group.identity != identity)
    }

    /// Reclaims what there is in a bucket, in steps; writes that wait have their turn between two. Returns whether nothing is
    /// left.
    async fn reclaim_steps(self: &Arc<Self>, bucket: BucketId) -> bool {
        loop {
            let (done, answer) = oneshot::channel();
            let is_queued = self.enqueue(bucket, Work::Reclaim(done)).is_ok();
            match answer.await {
                Ok(Reclaimed::Some) if is_queued => {}
                made => return made == Ok(Reclaimed::All),
            }
        }
    }

    /// Makes a step of reclaiming.
    pub(crate) async fn reclaim_bucket(&self, bucket: BucketId) -> Result<Reclaimed, ClusterError> {
        // Another process may have changed it since the last commit of this one.
        self.lock_guards().pop(&bucket);
        for tries in 0..TRIES_MAX {
            self.pause(tries).await;
            let seen = self.guard_in_turn(bucket, tries).await?;
            self.count_sizes(bucket, &seen);
            let fenced = self.fenced_of(&seen).into_iter().next();
            let is_due = seen.due.is_some_and(|at| at <= self.clock.wall());
            let is_applied = match fenced {
                Some(dataset) => self.reclaim_rows(bucket, &seen, dataset).await?,
                None if is_due => self.reclaim_uploads(bucket, &seen).await?,
                None => return Ok(Reclaimed::All),
            };
            if is_applied {
                return Ok(Reclaimed::Some);
            }
        }
        Ok(Reclaimed::Nothing)
    }

    /// Removes some rows of a dataset that is fenced; with the last ones everything else of it.
    async fn reclaim_rows(
        &self,
        bucket: BucketId,
        seen: &Guard,
        dataset: NamespaceId,
    ) -> Result<bool, ClusterError> {
        if dataset.has_fast_writes() {
            self.delete_fast_rows(bucket, dataset).await?;
            let mut next = seen.clone();
            next.sizes.remove(&dataset.0.cast_signed());
            return self.commit(bucket, seen, next, Vec::new()).await;
        }
        let places = PlaceRange::of_kind(ROW, dataset);
        let rows = self.walk(bucket, places, false, true, STEP_ROWS).await?;
        let (mut next, now) = (seen.clone(), self.clock.wall());
        let mut view = BucketView::new(None, seen.top, now);
        let uploads: Vec<UploadId> = rows.iter().filter_map(FoundRow::upload).collect();
        let distinct: HashSet<UploadId> = uploads.iter().copied().collect();
        self.add_uploads(bucket, distinct, &mut view).await?;
        for upload in uploads {
            view.refer(upload, false);
        }
        for row in &rows {
            let size = row.size();
            add_size(&mut next.sizes, dataset, (-size.0, -size.1, -size.2));
        }
        let mut changes: Vec<RowChange<'_>> = Vec::new();
        let is_last = rows.len() < STEP_ROWS as usize;
        changes.extend(self.removal_of(bucket, &rows));
        if is_last {
            // Rows that have expired in the engine are counted until then.
            next.sizes.remove(&dataset.0.cast_signed());
            let records = (IDEMPOTENCY, NamespaceId::SYSTEM);
            let records = self.is_gone(bucket.identity).then_some(records);
            let ranges = (REMOVED_RANGE, dataset);
            for (kind, dataset) in [ranges].into_iter().chain(records) {
                changes.push(self.removal(bucket, PlaceRange::of_kind(kind, dataset)));
            }
        }
        self.change_uploads(bucket, &view, &mut next, &mut changes);
        self.commit(bucket, seen, next, changes).await
    }

    /// Removes the uploads that are due by the guard that this process has left.
    pub(crate) async fn reclaim_due(&self, bucket: BucketId) {
        let known = self.lock_guards().get(&bucket).cloned();
        let now = self.clock.wall();
        if let Some(seen) = known.filter(|guard| guard.due.is_some_and(|at| at <= now))
            && let Err(error) = self.reclaim_uploads(bucket, &seen).await
        {
            tracing::warn!(%error, "cannot reclaim bytes of large values; it is tried again");
        }
    }

    /// Removes the uploads that are due, and finds when the next one is.
    async fn reclaim_uploads(&self, bucket: BucketId, seen: &Guard) -> Result<bool, ClusterError> {
        let places = PlaceRange::of_kind(UPLOAD, NamespaceId::SYSTEM);
        let found = self.walk(bucket, places, false, true, ALL).await?;
        let now = self.clock.wall();
        let mut next = seen.clone();
        next.due = None;
        let (mut changes, mut removed) = (Vec::new(), Vec::new());
        for (id, upload) in found.iter().filter_map(upload_of) {
            let due: Option<Timestamp> = upload.due.filter(|_| upload.state.references == 0);
            match due {
                Some(at) if at <= now => {
                    removed.push(id);
                    changes.push(self.change_of_upload(bucket, &id, None));
                }
                due => next.due = next.due.into_iter().chain(due).min(),
            }
        }
        let is_applied = self.commit(bucket, seen, next, changes).await?;
        if is_applied {
            self.delete_chunks(&removed).await;
        }
        Ok(is_applied)
    }
}
