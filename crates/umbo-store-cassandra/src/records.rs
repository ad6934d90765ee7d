//! The copy of Umbo's own records: one row of the cluster, changed by compare-and-set, and what it fences here.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use scylla::value::{CqlValue, Row as CqlRow};
use umbo_store::{DatasetGroup, IdRange, RecordsCopy, RecordsKeeper, RecordsRevision, StoreError};
use umbo_types::{NamespaceId, ShardId};

use crate::engine::{Engine, lock};
use crate::error::ClusterError;
use crate::found::{big, blob, int};
use crate::store::CassandraStore;

/// How often a newer copy of another process is waited out.
const TRIES_MAX: u32 = 100;

/// A dataset group as it is stored: identity, live, building (0 for none), epoch, kept.
type StoredGroup = (i32, i32, i32, i32, Vec<i32>);

const fn id(number: i32) -> NamespaceId {
    NamespaceId(number.cast_unsigned())
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

fn cells_of_group(group: &DatasetGroup) -> CqlValue {
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

impl Engine {
    pub(crate) async fn read_records(&self) -> Result<Option<RecordsCopy>, ClusterError> {
        type Columns = (
            Option<i64>,
            Option<i64>,
            Option<Vec<(i32, i32)>>,
            Option<Vec<StoredGroup>>,
            Option<Bytes>,
        );
        let cells = vec![int(self.tenant)];
        let answer = self.execute(&self.statements.records, cells).await?;
        let row = answer.into_rows_result()?.maybe_first_row::<Columns>()?;
        let Some((epoch, number, fenced, datasets, content)) = row else {
            return Ok(None);
        };
        let range = |(first, last)| IdRange {
            first: id(first),
            last: id(last),
        };
        Ok(Some(RecordsCopy {
            revision: RecordsRevision {
                epoch: epoch.unwrap_or_default().cast_unsigned(),
                number: number.unwrap_or_default().cast_unsigned(),
            },
            fenced: fenced.unwrap_or_default().into_iter().map(range).collect(),
            datasets: datasets
                .unwrap_or_default()
                .into_iter()
                .map(group)
                .collect(),
            content: content.unwrap_or_default(),
        }))
    }

    /// Keeps a copy in the cluster unless it has the same or a newer one, and returns the newest.
    async fn store_records(
        &self,
        copy: &Arc<RecordsCopy>,
    ) -> Result<Arc<RecordsCopy>, ClusterError> {
        for tries in 0..TRIES_MAX {
            if tries > 0 {
                self.pause(tries).await;
            }
            let known = self.read_records().await?;
            let revision = known.as_ref().map(|known| known.revision);
            if let Some(known) = known.filter(|known| known.revision >= copy.revision) {
                return Ok(Arc::new(known));
            }
            let range = |range: &IdRange| {
                let bound = |id: NamespaceId| Some(CqlValue::Int(id.0.cast_signed()));
                CqlValue::Tuple(vec![bound(range.first), bound(range.last)])
            };
            let fenced = copy.fenced.iter().map(range).collect();
            let datasets = copy.datasets.iter().map(cells_of_group).collect();
            let cells = vec![
                big(copy.revision.epoch),
                big(copy.revision.number),
                Some(CqlValue::List(fenced)),
                Some(CqlValue::List(datasets)),
                blob(&copy.content),
                int(self.tenant),
                revision.and_then(|revision| big(revision.epoch)),
                revision.and_then(|revision| big(revision.number)),
            ];
            let answer = self.execute(&self.statements.keep_records, cells).await?;
            let row = answer.into_rows_result()?.first_row::<CqlRow>()?;
            if let Some(Some(CqlValue::Boolean(true))) = row.columns.first() {
                return Ok(Arc::clone(copy));
            }
        }
        Err(ClusterError::Contended)
    }

    /// Raises the fences of a copy, and waits until no commit is under way that has not met them.
    pub(crate) async fn adopt(&self, copy: &Arc<RecordsCopy>) {
        {
            let mut records = lock(&self.records);
            if records
                .as_ref()
                .is_some_and(|known| known.revision >= copy.revision)
            {
                return;
            }
            *records = Some(Arc::clone(copy));
        }
        copy.place_datasets(&self.map);
        for shard in &self.shards {
            lock(&shard.groups).adopt(copy);
        }
        drop(self.admission.write().await);
        self.reclaim.notify_one();
    }
}

#[async_trait]
impl RecordsKeeper for CassandraStore {
    async fn keep_records(&self, copy: Arc<RecordsCopy>) -> Vec<(ShardId, Result<(), StoreError>)> {
        let known = lock(&self.engine.records).clone();
        let is_known = known.is_some_and(|known| known.revision >= copy.revision);
        let kept = match is_known {
            true => Ok(()),
            false => match self.engine.store_records(&copy).await {
                Ok(newest) => {
                    self.engine.adopt(&newest).await;
                    Ok(())
                }
                Err(error) => Err(error),
            },
        };
        let shards = (0..self.engine.shards.len() as u16).map(ShardId);
        shards
            .map(|shard| {
                (
                    shard,
                    kept.as_ref().map(|()| ()).map_err(|error| error.of(shard)),
                )
            })
            .collect()
    }

    async fn kept_records(&self) -> Result<Option<Arc<RecordsCopy>>, StoreError> {
        let records = self.engine.read_records().await;
        let records = records.map_err(|error| error.of(self.home().shard))?;
        Ok(records.map(Arc::new))
    }

    fn is_fenced(&self, namespace: NamespaceId) -> bool {
        let kept = lock(&self.engine.records);
        kept.as_ref().is_some_and(|copy| copy.fences(namespace))
    }

    fn records_revision(&self) -> RecordsRevision {
        let kept = lock(&self.engine.records);
        kept.as_ref().map(|copy| copy.revision).unwrap_or_default()
    }
}
