//! A shard of the memory store as the view of a commit.

use bytes::Bytes;
use umbo_types::{Key, LargeRef, NamespaceId, PartitionKey, Timestamp, Version, VersionClock};

use super::{MemoryShard, PartitionId};
use crate::capabilities::VersionOrder;
use crate::commit_view::{CommitView, StoredRow};
use crate::dataset_group::DatasetGroup;
use crate::error::WriteError;
use crate::idempotency::Idempotency;
use crate::idempotency_record::IdempotencyRecord;
use crate::large::UploadStep;
use crate::memory::rows::referred;
use crate::request::SortRange;

impl CommitView for MemoryShard {
    fn group_of(&self, dataset: NamespaceId) -> Option<&DatasetGroup> {
        self.groups.of(dataset)
    }

    fn row(&self, dataset: NamespaceId, key: &Key) -> Option<&StoredRow> {
        let rows = self.partitions.get(&(dataset, key.partition.clone()))?;
        rows.get(key.sort.as_bytes())
    }

    fn place(
        &mut self,
        dataset: NamespaceId,
        key: &Key,
        row: Option<StoredRow>,
    ) -> Option<StoredRow> {
        let sort = Bytes::copy_from_slice(key.sort.as_bytes());
        self.place_at(&(dataset, key.partition.clone()), sort, row)
    }

    fn is_unwritten(&self, building: NamespaceId, key: &Key) -> bool {
        let at = (building, key.partition.clone());
        let sort = key.sort.as_bytes();
        let is_in =
            |(other, range): &(PartitionId, SortRange)| *other == at && range.contains(sort);
        let ranges = &self.written_ranges;
        !ranges.iter().any(is_in) && !self.written.contains(&(at, Bytes::copy_from_slice(sort)))
    }

    fn note_written(&mut self, building: NamespaceId, key: &Key) {
        let sort = Bytes::copy_from_slice(key.sort.as_bytes());
        self.written
            .insert(((building, key.partition.clone()), sort));
    }

    fn step_upload(&mut self, step: &UploadStep, now: Timestamp) -> Result<(), WriteError> {
        self.uploads.step(step, referred(&self.partitions), now)
    }

    fn check_upload(&self, large: &LargeRef) -> Result<(), WriteError> {
        self.uploads.check(large)
    }

    fn versions(&mut self, dataset: NamespaceId, partition: &PartitionKey) -> &mut VersionClock {
        let ordered = match self.order {
            VersionOrder::Partition => Some((self.identity(dataset), partition.clone())),
            VersionOrder::Shard => None,
        };
        let versions = self.versions.entry(ordered);
        versions.or_insert_with(|| VersionClock::after(Version(0)))
    }

    fn begin_record(
        &mut self,
        dataset: NamespaceId,
        partition: &PartitionKey,
        idempotency: &Idempotency,
        mutations: usize,
        now: Timestamp,
    ) -> Result<IdempotencyRecord, WriteError> {
        let id = (self.identity(dataset), partition.clone(), idempotency.id);
        self.idempotency.begin(&id, idempotency, mutations, now)
    }

    fn keep_record(
        &mut self,
        dataset: NamespaceId,
        partition: &PartitionKey,
        idempotency: &Idempotency,
        record: IdempotencyRecord,
    ) {
        let id = (self.identity(dataset), partition.clone(), idempotency.id);
        self.idempotency.keep(&id, record);
    }
}
