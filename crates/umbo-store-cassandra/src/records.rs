//! The copy of Umbo's own records: one row of the cluster, changed by compare-and-set, and bound to buckets.
//!
//! A process that does not know a copy yet must not write to a namespace that it fences, or whose datasets it changes.
//! So the keeper of a copy binds the buckets of those namespaces to it: their guards have its revision, and a
//! process that meets a newer revision than its own reads the copy before it decides. The keeper is answered after that.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use scylla::value::CqlValue;
use tokio::sync::oneshot;
use umbo_store::{DatasetGroup, IdRange, RecordsCopy, RecordsKeeper, RecordsRevision, StoreError};
use umbo_types::{NamespaceId, ShardId};

use crate::bucket::BucketId;
use crate::cell::{big, blob, int};
use crate::engine::{BucketEngine, lock};
use crate::error::ClusterError;
use crate::found::is_applied;
use crate::guarded::TRIES_MAX;
use crate::queue::Work;
use crate::store::CassandraStore;

/// Buckets that are bound at the same time.
const BOUND_AT_ONCE: usize = 32;

/// A dataset group as it is stored: identity, live, building (0 for none), epoch, kept.
type StoredGroup = (i32, i32, i32, i32, Vec<i32>);

/// The copy that the cluster keeps, and the revision that all buckets are bound to.
struct KeptCopy {
    copy: RecordsCopy,
    bound: RecordsRevision,
}

const fn id(number: i32) -> NamespaceId {
    NamespaceId(number.cast_unsigned())
}

fn revision(epoch: Option<i64>, number: Option<i64>) -> RecordsRevision {
    RecordsRevision {
        epoch: epoch.unwrap_or_default().cast_unsigned(),
        number: number.unwrap_or_default().cast_unsigned(),
    }
}

fn group(stored: StoredGroup) -> DatasetGroup {
    let (identity, live, building, epoch, kept) = stored;
    DatasetGroup {
        epoch: epoch.cast_unsigned(),
        live: id(live),
        kept: kept.into_iter().map(id).collect(),
        building: Some(id(building)).filter(|id| *id != NamespaceId::SYSTEM),
        identity: id(identity),
    }
}

fn cell_of_group(group: &DatasetGroup) -> CqlValue {
    let number = |id: NamespaceId| CqlValue::Int(id.0.cast_signed());
    let building = group.building.unwrap_or(NamespaceId::SYSTEM);
    let kept = group.kept.iter().map(|id| number(*id)).collect();
    CqlValue::Tuple(vec![
        Some(number(group.identity)),
        Some(number(group.live)),
        Some(number(building)),
        Some(CqlValue::Int(group.epoch.cast_signed())),
        Some(CqlValue::List(kept)),
    ])
}

fn cell_of_range(range: IdRange) -> CqlValue {
    let bound = |id: NamespaceId| Some(CqlValue::Int(id.0.cast_signed()));
    CqlValue::Tuple(vec![bound(range.first), bound(range.last)])
}

impl BucketEngine {
    async fn kept_records(&self) -> Result<Option<KeptCopy>, ClusterError> {
        type Columns = (
            Option<i64>,
            Option<i64>,
            Option<i64>,
            Option<i64>,
            Option<Vec<(i32, i32)>>,
            Option<Vec<StoredGroup>>,
            Option<Bytes>,
        );
        let cells = vec![int(self.instance)];
        let answer = self.execute(&self.statements.own.records, cells).await?;
        let row = answer.into_rows_result()?.maybe_first_row::<Columns>()?;
        let Some((epoch, number, bound_epoch, bound_number, fenced, datasets, content)) = row
        else {
            return Ok(None);
        };
        let range = |(first, last)| IdRange {
            first: id(first),
            last: id(last),
        };
        let datasets = datasets.unwrap_or_default().into_iter();
        Ok(Some(KeptCopy {
            copy: RecordsCopy {
                revision: revision(epoch, number),
                fenced: fenced.unwrap_or_default().into_iter().map(range).collect(),
                datasets: datasets.map(group).collect(),
                content: content.unwrap_or_default(),
            },
            bound: revision(bound_epoch, bound_number),
        }))
    }

    /// Learns the copy that the cluster keeps.
    pub(crate) async fn refresh_records(&self) -> Result<(), ClusterError> {
        if let Some(kept) = self.kept_records().await? {
            self.note_records(&Arc::new(kept.copy));
        }
        Ok(())
    }

    /// Keeps a copy in the cluster unless it has the same or a newer one, and returns the kept one.
    async fn store_records(&self, copy: &RecordsCopy) -> Result<KeptCopy, ClusterError> {
        for tries in 0..TRIES_MAX {
            self.pause(tries).await;
            let known = self.kept_records().await?;
            if let Some(known) = known {
                if known.copy.revision >= copy.revision {
                    return Ok(known);
                }
                if self
                    .replace_records(Some(known.copy.revision), copy)
                    .await?
                {
                    let copy = copy.clone();
                    return Ok(KeptCopy { copy, ..known });
                }
            } else if self.replace_records(None, copy).await? {
                let (copy, bound) = (copy.clone(), RecordsRevision::default());
                return Ok(KeptCopy { copy, bound });
            }
        }
        Err(ClusterError::Contended)
    }

    /// Replaces the copy if its revision is as it was seen.
    async fn replace_records(
        &self,
        seen: Option<RecordsRevision>,
        copy: &RecordsCopy,
    ) -> Result<bool, ClusterError> {
        let cells = vec![
            big(copy.revision.epoch),
            big(copy.revision.number),
            Some(CqlValue::List(
                copy.fenced.iter().copied().map(cell_of_range).collect(),
            )),
            Some(CqlValue::List(
                copy.datasets.iter().map(cell_of_group).collect(),
            )),
            blob(&*copy.content),
            int(self.instance),
            seen.and_then(|revision| big(revision.epoch)),
            seen.and_then(|revision| big(revision.number)),
        ];
        is_applied(
            self.execute(&self.statements.own.keep_records, cells)
                .await?,
        )
    }

    /// Raises the fences of a copy in this process, unless it knows a newer one.
    pub(crate) fn note_records(&self, copy: &Arc<RecordsCopy>) {
        let mut records = lock(&self.records);
        let known = records.as_ref().map(|known| known.revision);
        if known.is_some_and(|known| known >= copy.revision) {
            return;
        }
        *records = Some(Arc::clone(copy));
        copy.place_datasets(&self.map);
        for shard in &self.shards {
            lock(&shard.groups).adopt(copy);
        }
        drop(records);
        self.reclaim.notify_one();
    }

    /// Keeps a copy. Once it returns, no process writes to what the copy, or a newer one, fences.
    async fn keep(self: &Arc<Self>, copy: &RecordsCopy) -> Result<(), ClusterError> {
        let before = lock(&self.records).clone();
        let kept = self.store_records(copy).await?;
        let newest = Arc::new(kept.copy);
        self.note_records(&newest);
        // Buckets are bound in their queues, behind all earlier work. A load may write to any of them: its commits
        // that have not met the fences end first.
        drop(self.runs.write().await);
        if kept.bound >= newest.revision {
            return Ok(());
        }
        let before = before.filter(|before| before.revision == kept.bound);
        self.bind(before.as_deref(), &newest).await?;
        let RecordsRevision { epoch, number } = newest.revision;
        let mut cells = vec![big(epoch), big(number), int(self.instance)];
        cells.extend([big(epoch), big(number)]);
        // If there is a newer copy, its keeper binds to that one.
        self.execute(&self.statements.own.bind_records, cells)
            .await?;
        Ok(())
    }

    /// Binds the buckets of all namespaces that a copy changes. `before` is the last copy that was bound, if it is
    /// known.
    async fn bind(
        self: &Arc<Self>,
        before: Option<&RecordsCopy>,
        copy: &RecordsCopy,
    ) -> Result<(), ClusterError> {
        let is_new =
            |id: NamespaceId| copy.fences(id) && !before.is_some_and(|before| before.fences(id));
        let known_groups = before.map_or(&[][..], |before| &before.datasets);
        let changed = copy
            .datasets
            .iter()
            .filter(|one| !known_groups.contains(one));
        let ended = known_groups
            .iter()
            .filter(|one| !copy.datasets.contains(one));
        let changed: BTreeSet<_> = changed.chain(ended).map(|group| group.identity).collect();
        let is_concerned = |identity: &NamespaceId| {
            // A forgotten copy may have changed any group.
            before.is_none() || is_new(*identity) || changed.contains(identity)
        };
        let namespaces = self.read_namespaces().await?.into_iter();
        let concerned = namespaces.filter(is_concerned);
        let buckets = concerned.flat_map(|identity| {
            (0..self.buckets).map(move |number| BucketId { identity, number })
        });
        let buckets: Vec<BucketId> = buckets.collect();
        let bound = buckets.into_iter().map(|bucket| {
            let (done, answer) = oneshot::channel();
            let queued = self.enqueue(bucket, Work::Bind(done));
            async move {
                match queued {
                    Ok(()) => answer.await.unwrap_or(Err(ClusterError::InDoubt)),
                    Err(_) => Err(ClusterError::Contended),
                }
            }
        });
        let mut bound = futures_util::stream::iter(bound).buffered(BOUND_AT_ONCE);
        while let Some(bound) = bound.next().await {
            bound?;
        }
        Ok(())
    }

    /// Binds a bucket to the copy that this process knows, and notes that it may have rows of fast writes.
    pub(crate) async fn bind_bucket(&self, bucket: BucketId) -> Result<(), ClusterError> {
        for tries in 0..TRIES_MAX {
            self.pause(tries).await;
            let seen = self.guard_in_turn(bucket, tries).await?;
            let mut next = seen.clone();
            self.note_fast_rows(bucket, &mut next);
            let is_bound = seen.records >= self.revision() && next.sizes == seen.sizes;
            if is_bound {
                self.lock_guards().put(bucket, seen);
                return Ok(());
            }
            if self.commit(bucket, &seen, next, Vec::new()).await? {
                return Ok(());
            }
        }
        Err(ClusterError::Contended)
    }
}

#[async_trait]
impl RecordsKeeper for CassandraStore {
    async fn keep_records(&self, copy: Arc<RecordsCopy>) -> Vec<(ShardId, Result<(), StoreError>)> {
        let kept = self.engine.keep(&copy).await;
        let of = |shard| match &kept {
            Ok(()) => Ok(()),
            Err(error) => Err(error.of(shard)),
        };
        let shards = (0..self.engine.shards.len() as u16).map(ShardId);
        shards.map(|shard| (shard, of(shard))).collect()
    }

    async fn kept_records(&self) -> Result<Option<Arc<RecordsCopy>>, StoreError> {
        let records = self.engine.kept_records().await;
        let records = records.map_err(|error| error.of(self.home().shard))?;
        Ok(records.map(|kept| Arc::new(kept.copy)))
    }

    fn is_fenced(&self, namespace: NamespaceId) -> bool {
        let kept = lock(&self.engine.records);
        kept.as_ref().is_some_and(|copy| copy.fences(namespace))
    }

    fn records_revision(&self) -> RecordsRevision {
        self.engine.revision()
    }
}
