//! What the decisions of a commit read and change, as each engine has it.

use umbo_types::{Key, LargeRef, NamespaceId, PartitionKey, Row, Timestamp, VersionClock};

use crate::dataset_group::DatasetGroup;
use crate::error::WriteError;
use crate::idempotency::Idempotency;
use crate::idempotency_record::IdempotencyRecord;
use crate::large::UploadStep;

/// A row as an engine keeps it: the row, and the instant of its data if a load has put it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRow {
    /// The row, which may have expired.
    pub row: Row,
    /// Instant of its data, if it was put under [`Condition::NotNewerThan`](crate::Condition::NotNewerThan).
    pub as_of: Option<Timestamp>,
}

/// What a commit reads and changes: the rows of its keys in all datasets of the group, and everything else that decides
/// a mutation. A change is seen by all later reads of the view.
pub trait CommitView {
    /// Returns the group of a dataset, or `None` if the id has no group.
    fn group_of(&self, dataset: NamespaceId) -> Option<&DatasetGroup>;

    /// Returns a row, expired or not.
    fn row(&self, dataset: NamespaceId, key: &Key) -> Option<&StoredRow>;

    /// Stores a row or removes it, and returns the previous one.
    fn place(
        &mut self,
        dataset: NamespaceId,
        key: &Key,
        row: Option<StoredRow>,
    ) -> Option<StoredRow>;

    /// Returns whether no client has written or removed the row since the build of the dataset began.
    fn is_unwritten(&self, building: NamespaceId, key: &Key) -> bool;

    /// Records that a client has written or removed a row of a dataset that is being built.
    fn note_written(&mut self, building: NamespaceId, key: &Key);

    /// Takes a step of an upload.
    fn step_upload(&mut self, step: &UploadStep, now: Timestamp) -> Result<(), WriteError>;

    /// Refuses a reference to an upload that is not there, or not whole.
    fn check_upload(&self, large: &LargeRef) -> Result<(), WriteError>;

    /// Returns the versions of a partition of a dataset, or of everything that the partition shares them with.
    fn versions(&mut self, dataset: NamespaceId, partition: &PartitionKey) -> &mut VersionClock;

    /// Returns the record of an earlier request, or a new one, for this many mutations of a request to a partition.
    fn begin_record(
        &mut self,
        dataset: NamespaceId,
        partition: &PartitionKey,
        idempotency: &Idempotency,
        mutations: usize,
        now: Timestamp,
    ) -> Result<IdempotencyRecord, WriteError>;

    /// Keeps a record.
    fn keep_record(
        &mut self,
        dataset: NamespaceId,
        partition: &PartitionKey,
        idempotency: &Idempotency,
        record: IdempotencyRecord,
    );
}
