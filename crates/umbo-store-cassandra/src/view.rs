//! The rows of a commit in memory: the state of a bucket as it was read, and as the
//! decisions make it.

use std::collections::HashMap;

use bytes::Bytes;
use umbo_store::{
    CommitView, DIGEST_LEN, DatasetGroup, Idempotency, IdempotencyRecord, READ_GRACE, SortRange,
    StoredRow, UPLOAD_IDLE, UploadState, UploadStep, WriteError,
};
use umbo_types::{
    Key, LargeRef, NamespaceId, PartitionKey, Timestamp, UploadId, Version, VersionClock,
};

use crate::found::{FoundRow, SizeOf};

/// An upload of the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Upload {
    pub(crate) state: UploadState,
    /// When it goes unless a row refers to it.
    pub(crate) due: Option<Timestamp>,
}

/// Something of the bucket, as it was read and as it is to be.
#[derive(Debug)]
pub(crate) struct ViewedState<T> {
    pub(crate) before: Option<T>,
    pub(crate) now: Option<T>,
}

impl<T> Default for ViewedState<T> {
    fn default() -> Self {
        let (before, now) = (None, None);
        Self { before, now }
    }
}

impl<T: Clone> ViewedState<T> {
    pub(crate) fn read(one: T) -> Self {
        Self {
            before: Some(one.clone()),
            now: Some(one),
        }
    }
}

/// A row of the bucket.
#[derive(Debug, Default)]
pub(crate) struct ViewedRow {
    pub(crate) now: Option<StoredRow>,
    pub(crate) by_client: bool,
    /// As it was read: version, mark and size.
    pub(crate) version_before: Option<Version>,
    pub(crate) by_client_before: bool,
    pub(crate) size_before: SizeOf,
}

impl ViewedRow {
    pub(crate) fn is_replaced(&self) -> bool {
        self.now.as_ref().map(|stored| stored.row.version) != self.version_before
    }
}

/// The name of an idempotency record within its bucket.
pub(crate) type KeyedRecord = (PartitionKey, [u8; DIGEST_LEN]);

/// What a commit has read of its bucket.
#[derive(Debug)]
pub(crate) struct BucketView {
    pub(crate) group: Option<DatasetGroup>,
    pub(crate) rows: HashMap<(NamespaceId, Key), ViewedRow>,
    /// What clients have removed by range of the dataset that is being built.
    pub(crate) removed_ranges: Vec<(Bytes, SortRange)>,
    pub(crate) uploads: HashMap<UploadId, ViewedState<Upload>>,
    pub(crate) records: HashMap<KeyedRecord, ViewedState<IdempotencyRecord>>,
    /// Chunks to store before the commit.
    pub(crate) chunks: Vec<(UploadId, u32, Bytes)>,
    pub(crate) versions: VersionClock,
    pub(crate) now: Timestamp,
}

impl BucketView {
    pub(crate) fn new(group: Option<DatasetGroup>, top: Version, now: Timestamp) -> Self {
        Self {
            group,
            rows: HashMap::new(),
            removed_ranges: Vec::new(),
            uploads: HashMap::new(),
            records: HashMap::new(),
            chunks: Vec::new(),
            versions: VersionClock::after(top),
            now,
        }
    }

    pub(crate) fn add_row(&mut self, key: Key, found: &FoundRow) {
        let row = ViewedRow {
            now: found.stored(),
            by_client: found.about.by_client,
            version_before: found.about.version,
            by_client_before: found.about.by_client,
            size_before: found.size(),
        };
        self.rows.insert((found.place.dataset, key), row);
    }

    /// Counts a row more or less that refers to an upload.
    pub(crate) fn refer(&mut self, upload: UploadId, is_more: bool) {
        let Some(change) = self.uploads.get_mut(&upload) else {
            return;
        };
        let Some(upload) = &mut change.now else {
            return;
        };
        let references = &mut upload.state.references;
        *references = if is_more {
            references.saturating_add(1)
        } else {
            references.saturating_sub(1)
        };
        // An upload that no row has referred to before the commit is kept as if none had done so in it.
        let before = change.before.filter(|before| before.state.references == 0);
        let due = before.map_or_else(|| Some(self.now.saturating_add(READ_GRACE)), |one| one.due);
        upload.due = due.filter(|_| *references == 0);
    }
}

impl CommitView for BucketView {
    fn group_of(&self, dataset: NamespaceId) -> Option<&DatasetGroup> {
        let group = self.group.as_ref()?;
        group.ids().any(|id| id == dataset).then_some(group)
    }

    fn row(&self, dataset: NamespaceId, key: &Key) -> Option<&StoredRow> {
        self.rows.get(&(dataset, key.clone()))?.now.as_ref()
    }

    fn place(
        &mut self,
        dataset: NamespaceId,
        key: &Key,
        row: Option<StoredRow>,
    ) -> Option<StoredRow> {
        let upload_of = |row: &Option<StoredRow>| Some(row.as_ref()?.row.value.large()?.upload);
        let more = upload_of(&row);
        let viewed = self.rows.entry((dataset, key.clone())).or_default();
        let before = std::mem::replace(&mut viewed.now, row);
        if let Some(upload) = more {
            self.refer(upload, true);
        }
        if let Some(upload) = upload_of(&before) {
            self.refer(upload, false);
        }
        before
    }

    fn is_unwritten(&self, building: NamespaceId, key: &Key) -> bool {
        let viewed = self.rows.get(&(building, key.clone()));
        let is_in = |(partition, range): &(Bytes, SortRange)| {
            *partition == key.partition.as_bytes() && range.contains(key.sort.as_bytes())
        };
        !viewed.is_some_and(|viewed| viewed.by_client) && !self.removed_ranges.iter().any(is_in)
    }

    fn note_written(&mut self, building: NamespaceId, key: &Key) {
        let viewed = self.rows.entry((building, key.clone())).or_default();
        viewed.by_client = true;
    }

    fn step_upload(&mut self, step: &UploadStep, now: Timestamp) -> Result<(), WriteError> {
        let change = self.uploads.entry(*step.upload()).or_default();
        let known = change.now.map(|upload| upload.state);
        match step {
            UploadStep::Append {
                upload,
                index,
                bytes,
            } => {
                let state = UploadState::append(known, *index, bytes.len());
                let due = Some(now.saturating_add(UPLOAD_IDLE));
                let state = state.ok_or(WriteError::UploadGone)?;
                change.now = Some(Upload { state, due });
                self.chunks.push((*upload, *index, bytes.clone()));
            }
            UploadStep::Abandon(_) => {
                change.now.take_if(|upload| upload.state.references == 0);
            }
        }
        Ok(())
    }

    fn check_upload(&self, large: &LargeRef) -> Result<(), WriteError> {
        let upload = self.uploads.get(&large.upload).and_then(|one| one.now);
        match upload {
            Some(upload) if upload.state.is_whole(large) => Ok(()),
            _ => Err(WriteError::UploadGone),
        }
    }

    fn versions(&mut self, _dataset: NamespaceId, _partition: &PartitionKey) -> &mut VersionClock {
        &mut self.versions
    }

    fn begin_record(
        &mut self,
        _dataset: NamespaceId,
        partition: &PartitionKey,
        idempotency: &Idempotency,
        _mutations: usize,
        now: Timestamp,
    ) -> Result<IdempotencyRecord, WriteError> {
        let known = self.records.get(&(partition.clone(), idempotency.id));
        let known = known.and_then(|change| change.now.as_ref());
        match known.filter(|record| record.keep_until > now) {
            Some(record) if record.request != idempotency.request => {
                Err(WriteError::IdempotencyMismatch)
            }
            Some(record) => Ok(record.clone()),
            None => Ok(IdempotencyRecord::begin(idempotency)),
        }
    }

    fn keep_record(
        &mut self,
        _dataset: NamespaceId,
        partition: &PartitionKey,
        idempotency: &Idempotency,
        record: IdempotencyRecord,
    ) {
        let id = (partition.clone(), idempotency.id);
        self.records.entry(id).or_default().now = Some(record);
    }
}
