//! Fast writes: plain changes of rows, without a guard and without a read.
//!
//! The version of a write is the time stamp of its cells, so the cluster itself keeps the write with the highest version,
//! in whatever order writes arrive. Versions are above all earlier ones of this process, and follow the clocks of the
//! nodes, so that a clock of a process that is set wrong hides no write. The guard of a bucket says only that it may have
//! such rows, and they are reclaimed once the namespace is removed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use scylla::statement::batch::{Batch, BatchType};
use tokio::sync::oneshot;
use umbo_store::{
    Atomicity, CallContext, Change, Condition, DeleteRangeRequest, Deleted, Mutation, Outcome,
    StoreError, StoredRow, WriteError, WriteRequest, Written,
};
use umbo_types::{NamespaceId, PartitionKey, Row, ShardId, Version};

use crate::about::mark_of;
use crate::bucket::BucketId;
use crate::cell::big;
use crate::changes::cells_of;
use crate::engine::BucketEngine;
use crate::error::ClusterError;
use crate::found::SizeOf;
use crate::guard::{Guard, RowChange};
use crate::place::{PlaceRange, StoredPlace};
use crate::queue::Work;
use crate::removal::STEP_ROWS_MAX;
use crate::runner::answered;
use crate::schema::ROW;

/// The size that a guard has of rows that are not counted: no number of rows.
const NOT_COUNTED: SizeOf = (-1, 0, 0);
/// A removal of all rows is above writes of processes that do not know of it yet, and whose clocks are ahead by less.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_mins(1);

/// Returns whether a write without a read can make a mutation.
fn is_plain(mutation: &Mutation) -> bool {
    let is_plain = match &mutation.change {
        Change::Put { value, .. } => value.large().is_none(),
        Change::Delete => true,
        Change::Increment { .. } | Change::Upload(_) => false,
    };
    is_plain && mutation.condition == Condition::Always
}

/// Returns why each mutation of a write is refused: by itself, or as its partition is written whole or not at all.
fn refused(request: &WriteRequest) -> Vec<Option<WriteError>> {
    let mutations = &request.mutations;
    let mut aborted: HashMap<&PartitionKey, usize> = HashMap::new();
    if request.atomicity == Atomicity::Partition {
        for (index, mutation) in mutations.iter().enumerate() {
            if !is_plain(mutation) {
                aborted.entry(&mutation.key.partition).or_insert(index);
            }
        }
    }
    let refused = |mutation: &Mutation| match aborted.get(&mutation.key.partition) {
        _ if !is_plain(mutation) => Some(WriteError::NeedsExactWrites),
        Some(&index) => Some(WriteError::GroupAborted { index }),
        None => None,
    };
    mutations.iter().map(refused).collect()
}

impl BucketEngine {
    /// Makes a write, all parts at the same time; each part is one mutation of its bucket, applied whole.
    pub(crate) async fn write_fast(
        self: &Arc<Self>,
        call: &CallContext,
        shard: ShardId,
        request: &WriteRequest,
        parts: impl Iterator<Item = (BucketId, Vec<usize>)>,
    ) -> Vec<Result<Written, WriteError>> {
        let count = request.mutations.len();
        if request.idempotency.is_some() || request.run.is_some() || request.not_before.is_some() {
            return vec![Err(WriteError::NeedsExactWrites); count];
        }
        let first = self.versions(request.proposed, count as u64);
        let version = |at: usize| Version(first + at as u64);
        let refused = refused(request);
        let mut answers: Vec<Result<Written, WriteError>> = refused
            .iter()
            .map(|error| Err(error.clone().unwrap_or(WriteError::NeedsExactWrites)))
            .collect();
        let parts = parts.map(|(bucket, mut indexes)| {
            indexes.retain(|&at| refused[at].is_none());
            let changes = indexes
                .iter()
                .map(|&at| self.fast_change(bucket, request, at, version(at)));
            let applied = self.apply_fast(call, shard, bucket, changes.collect());
            async move { (indexes, applied.await) }
        });
        for (indexes, applied) in join_all(parts).await {
            for at in indexes {
                // It is not known whether there was a row.
                let written = Written::new(version(at), true);
                answers[at] = applied.clone().map(|()| written).map_err(WriteError::Store);
            }
        }
        answers
    }

    /// Takes as many versions as a write needs, and returns the first.
    fn versions(&self, proposed: Version, count: u64) -> u64 {
        let proposed = self.by_clocks_of_nodes(proposed.0);
        let next = |max: u64| Some(proposed.max(max + 1) + count - 1);
        let before = self
            .version_max
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .unwrap_or_else(|before| before);
        proposed.max(before + 1)
    }

    /// Returns what an instant of this process is by the clocks of the nodes, in microseconds.
    fn by_clocks_of_nodes(&self, instant: u64) -> u64 {
        let ahead = self.clock_ahead.load(Ordering::Relaxed);
        instant.saturating_add_signed(-ahead)
    }

    fn fast_change(
        &self,
        bucket: BucketId,
        request: &WriteRequest,
        at: usize,
        version: Version,
    ) -> RowChange<'_> {
        let Mutation { key, change, .. } = &request.mutations[at];
        let place = StoredPlace::of_row(request.namespace, bucket.slot_of(key), key);
        let Change::Put { value, expires_at } = change else {
            let delete = &self.statements.fast.delete;
            let place = [Some(place.cell())];
            return (delete, self.bound([big(version.0)], bucket, place));
        };
        let stored = StoredRow {
            row: Row {
                version,
                expires_at: *expires_at,
                value: value.clone(),
            },
            as_of: None,
        };
        let row = cells_of(&stored, self.clock.wall());
        let statement = if row.is_apart() {
            &self.statements.fast.put_apart
        } else {
            &self.statements.fast.put
        };
        let cells = row.bound_fast(version, mark_of(self.process));
        (statement, self.bound(cells, bucket, [Some(place.cell())]))
    }

    /// Sends changes of a bucket as one mutation. Without an answer it is not known whether they are applied.
    async fn apply_fast(
        self: &Arc<Self>,
        call: &CallContext,
        shard: ShardId,
        bucket: BucketId,
        mut changes: Vec<RowChange<'_>>,
    ) -> Result<(), StoreError> {
        let noted = self.note_bucket(shard, bucket).await;
        noted.and_then(|noted| noted.map_err(|error| error.of(shard)))?;
        let _admitted = self.admission.read().await;
        self.admit_at(shard, bucket.identity, call.deadline)?;
        let mutations = changes.len() as u64;
        let sent = match (changes.pop(), changes.is_empty()) {
            (None, _) => return Ok(()),
            (Some((statement, cells)), true) => self.execute(statement, cells).await.map(|_| ()),
            (Some(last), false) => {
                let mut batch = Batch::new(BatchType::Unlogged);
                batch.set_is_idempotent(true);
                let mut values = Vec::with_capacity(changes.len() + 1);
                for (statement, cells) in changes.into_iter().chain([last]) {
                    batch.append_statement(statement.clone());
                    values.push(cells);
                }
                let sent = Box::pin(self.session.batch(&batch, values)).await;
                sent.map(|_| ()).map_err(ClusterError::from)
            }
        };
        sent.map_err(|error| StoreError::Unavailable {
            shard,
            reason: error.to_string(),
            outcome: Outcome::Unknown,
        })?;
        let state = self.shard(shard);
        state.commits.fetch_add(1, Ordering::Relaxed);
        state.mutations.fetch_add(mutations, Ordering::Relaxed);
        Ok(())
    }

    /// Makes sure that the guard of a bucket says that there may be rows of fast writes.
    async fn note_bucket(
        self: &Arc<Self>,
        shard: ShardId,
        bucket: BucketId,
    ) -> Result<Result<(), ClusterError>, StoreError> {
        let dataset = bucket.identity.0.cast_signed();
        let is_noted = |guard: &Guard| guard.sizes.contains_key(&dataset);
        if self.lock_guards().get(&bucket).is_some_and(is_noted) {
            return Ok(Ok(()));
        }
        let (done, answer) = oneshot::channel();
        self.enqueue(bucket, Work::Bind(done))?;
        answered(shard, answer).await
    }

    /// Says in a guard that its bucket may have rows of fast writes, if the namespace has them and is not gone.
    pub(crate) fn note_fast_rows(&self, bucket: BucketId, guard: &mut Guard) {
        let (shard, identity) = (self.shard_of(bucket), bucket.identity);
        if identity.has_fast_writes() && self.check_fence(shard, identity).is_ok() {
            guard.sizes.insert(identity.0.cast_signed(), NOT_COUNTED);
        }
    }

    /// Makes a step of a removal: removes older rows, from the first row of the step to the last.
    pub(crate) async fn remove_fast(
        self: &Arc<Self>,
        call: &CallContext,
        bucket: BucketId,
        request: &DeleteRangeRequest,
    ) -> Result<Deleted, StoreError> {
        let shard = self.shard_of(bucket);
        let slot = self.map.slot(request.namespace, &request.partition);
        let at = (
            request.namespace,
            slot.index(),
            request.partition.as_bytes(),
        );
        let rows_max = request.rows_max.min(STEP_ROWS_MAX);
        let places = PlaceRange::of_sorts(at, &request.range);
        let walk = self.walk(bucket, places, false, true, rows_max + 1);
        let mut found = walk.await.map_err(|error| error.of(shard))?;
        let has_more = found.len() > rows_max as usize;
        found.truncate(rows_max as usize);
        let now = self.clock.wall();
        let mut deleted = Deleted::default();
        for row in &found {
            if row.about.expires_at.is_none_or(|at| at > now) {
                deleted.rows += 1;
                deleted.bytes += row.place.sort.len() as u64 + row.about.len;
            }
        }
        let last = found.last().filter(|_| has_more);
        deleted.resume_after = last.map(|row| row.place.sort.clone());
        let version = self.versions(Version::proposed_at(now), 1);
        let removal = found.first().zip(found.last()).map(|(first, last)| {
            let places = PlaceRange::between(&first.place, &last.place);
            let delete = &self.statements.fast.delete_range;
            (delete, self.bound([big(version)], bucket, places.cells()))
        });
        let removal = removal.into_iter().collect();
        self.apply_fast(call, shard, bucket, removal).await?;
        Ok(deleted)
    }

    /// Removes all rows of a namespace that is gone from a bucket, and rows that are still on their way.
    pub(crate) async fn delete_fast_rows(
        &self,
        bucket: BucketId,
        dataset: NamespaceId,
    ) -> Result<(), ClusterError> {
        let now = self.by_clocks_of_nodes(self.clock.wall().0);
        let above = now + CLOCKS_DIFFER_MAX.as_micros() as u64;
        let places = PlaceRange::of_kind(ROW, dataset).cells();
        let delete = &self.statements.fast.delete_range;
        let cells = self.bound([big(above)], bucket, places);
        self.execute(delete, cells).await.map(|_| ())
    }
}
