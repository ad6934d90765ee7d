//! What a commit has to read of its bucket, and the view that it is decided on.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use scylla::value::CqlValue;
use umbo_store::{Change, DatasetGroup, IdempotencyRecord, SortRange, UploadState, WriteRequest};
use umbo_types::{NamespaceId, PartitionKey, Timestamp, UploadId};

use crate::bucket::BucketId;
use crate::engine::BucketEngine;
use crate::error::ClusterError;
use crate::found::{FoundRow, decode};
use crate::guard::Guard;
use crate::place::{PlaceRange, StoredPlace};
use crate::reads::ALL;
use crate::schema::{IDEMPOTENCY, REMOVED_RANGE, UPLOAD};
use crate::view::{BucketView, Upload, ViewedState};

/// Rows that are read by their places with one statement.
const PLACES_MAX: usize = 100;

impl BucketEngine {
    /// Reads rows by their places.
    pub(crate) async fn rows_at(
        &self,
        bucket: BucketId,
        places: &[StoredPlace],
        keys_only: bool,
    ) -> Result<Vec<FoundRow>, ClusterError> {
        let mut found = Vec::new();
        for some in places.chunks(PLACES_MAX) {
            let places = CqlValue::List(some.iter().map(StoredPlace::cell).collect());
            let cells = self.bound([], bucket, [Some(places)]);
            let statement = self.statements.rows.at.of(keys_only);
            found.extend(decode(self.execute(statement, cells).await?)?);
        }
        Ok(found)
    }

    /// Reads what the requests are decided by.
    pub(crate) async fn view(
        &self,
        bucket: BucketId,
        seen: &Guard,
        group: Option<DatasetGroup>,
        requests: &[&WriteRequest],
        now: Timestamp,
    ) -> Result<BucketView, ClusterError> {
        let needs = Needs::of(bucket, group.as_ref(), requests);
        let mut view = BucketView::new(group, seen.top, now);
        let mut found = self.rows_at(bucket, &needs.keys, true).await?;
        found.extend(self.rows_at(bucket, &needs.whole, false).await?);
        let mut uploads = needs.uploads;
        for one in found {
            if one.place.kind == IDEMPOTENCY {
                add_record(&mut view, &one)?;
            } else {
                uploads.extend(one.upload());
                view.add_row(one.key()?, &one);
            }
        }
        self.add_uploads(bucket, uploads, &mut view).await?;
        if let Some(building) = needs.building {
            self.add_removed_ranges(bucket, building, &mut view).await?;
        }
        Ok(view)
    }

    /// Reads the states of uploads.
    pub(crate) async fn add_uploads(
        &self,
        bucket: BucketId,
        uploads: HashSet<UploadId>,
        view: &mut BucketView,
    ) -> Result<(), ClusterError> {
        let places: Vec<StoredPlace> = uploads.iter().map(place_of_upload).collect();
        for found in self.rows_at(bucket, &places, true).await? {
            if let Some((id, upload)) = upload_of(&found) {
                view.uploads.insert(id, ViewedState::read(upload));
            }
        }
        Ok(())
    }

    async fn add_removed_ranges(
        &self,
        bucket: BucketId,
        building: NamespaceId,
        view: &mut BucketView,
    ) -> Result<(), ClusterError> {
        let places = PlaceRange::of_kind(REMOVED_RANGE, building);
        for found in self.walk(bucket, places, false, false, ALL).await? {
            let range = SortRange {
                start: found.place.sort,
                // An end is never empty, and a row without one has no value.
                end: Some(found.value).filter(|end| !end.is_empty()),
            };
            view.removed_ranges.push((found.place.partition, range));
        }
        Ok(())
    }
}

/// What a commit has to read.
struct Needs {
    /// Rows without their values.
    keys: Vec<StoredPlace>,
    /// Rows and records with their values.
    whole: Vec<StoredPlace>,
    uploads: HashSet<UploadId>,
    /// The dataset that a load builds, if it puts rows.
    building: Option<NamespaceId>,
}

impl Needs {
    fn of(bucket: BucketId, group: Option<&DatasetGroup>, requests: &[&WriteRequest]) -> Self {
        let mut rows: HashMap<StoredPlace, bool> = HashMap::new();
        let (mut uploads, mut building, mut records) = (HashSet::new(), None, HashSet::new());
        for request in requests {
            for mutation in &request.mutations {
                let slot = bucket.slot_of(&mutation.key);
                if let Some(idempotency) = &request.idempotency {
                    let partition = mutation.key.partition.as_bytes();
                    records.insert(place_of_record(slot, partition, &idempotency.id));
                }
                let is_of_load = mutation.condition.is_unwritten();
                let is_whole = match &mutation.change {
                    Change::Upload(step) => {
                        uploads.insert(*step.upload());
                        continue;
                    }
                    Change::Put { value, .. } => {
                        uploads.extend(value.large().map(|large| large.upload));
                        false
                    }
                    Change::Delete => false,
                    Change::Increment { .. } => true,
                };
                if is_of_load {
                    building = Some(request.namespace);
                }
                let datasets: Vec<NamespaceId> = match group {
                    Some(group) if !is_of_load => group.ids().collect(),
                    _ => vec![request.namespace],
                };
                for dataset in datasets {
                    let place = StoredPlace::of_row(dataset, slot, &mutation.key);
                    *rows.entry(place).or_default() |= is_whole;
                }
            }
        }
        let (whole, keys): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(_, whole)| *whole);
        let place = |(place, _): (StoredPlace, bool)| place;
        Self {
            keys: keys.into_iter().map(place).collect(),
            whole: whole.into_iter().map(place).chain(records).collect(),
            uploads,
            building,
        }
    }
}

pub(crate) fn place_of_record(slot: u16, partition: &[u8], id: &[u8]) -> StoredPlace {
    StoredPlace {
        kind: IDEMPOTENCY,
        dataset: NamespaceId::SYSTEM,
        slot,
        partition: Bytes::copy_from_slice(partition),
        sort: Bytes::copy_from_slice(id),
    }
}

pub(crate) fn place_of_upload(id: &UploadId) -> StoredPlace {
    StoredPlace {
        kind: UPLOAD,
        dataset: NamespaceId::SYSTEM,
        slot: 0,
        partition: Bytes::copy_from_slice(&id.0),
        sort: Bytes::new(),
    }
}

/// Returns the upload of a row of this kind.
pub(crate) fn upload_of(found: &FoundRow) -> Option<(UploadId, Upload)> {
    let id = UploadId(found.place.partition.as_ref().try_into().ok()?);
    let state = UploadState {
        len: found.about.len,
        references: u32::try_from(found.about.held).unwrap_or(u32::MAX),
    };
    let due = found.about.expires_at;
    Some((id, Upload { state, due }))
}

fn add_record(view: &mut BucketView, found: &FoundRow) -> Result<(), ClusterError> {
    let keep_until = found.about.expires_at.unwrap_or_default();
    let record = IdempotencyRecord::decode(&found.value, keep_until);
    let record = record.ok_or_else(|| ClusterError::damaged("an idempotency record is damaged"))?;
    let id = found.place.sort.as_ref().try_into();
    let id = id.map_err(|_| ClusterError::damaged("an idempotency record has a damaged name"))?;
    let partition = found.place.partition.clone();
    let partition = PartitionKey::new(partition);
    let partition = partition.map_err(|error| ClusterError::damaged(&error.to_string()))?;
    view.records
        .insert((partition, id), ViewedState::read(record));
    Ok(())
}
