//! A commit of writes: reads their rows, decides, and makes the bucket so, again and again until nobody was faster.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use scylla::value::CqlValue;
use umbo_routing::Slot;
use umbo_store::{
    Change as RowMutation, Condition, DatasetGroup, FencingToken, IdempotencyRecord, SortRange,
    StoreError, StoredRow, WriteError, WriteRequest, Written, decide,
};
use umbo_types::{Deadline, Key, LargeRef, NamespaceId, ShardId, Timestamp, UploadId};

use crate::engine::{BucketId, Engine};
use crate::error::ClusterError;
use crate::found::{Cell, Found, Place, SizeOf, big, blob, decode, int, tiny};
use crate::guard::{Guard, RowChange};
use crate::queue::QueuedWrite;
use crate::schema::{IDEMPOTENCY, REMOVED_RANGE, UPLOAD};
use crate::sizes::add_size;
use crate::view::{BucketView, Change, Upload, ViewedRow};

/// How often a commit is decided anew because another process was faster.
const TRIES_MAX: u32 = 100;
/// Longest pause before the second try; it doubles up to 32 times this.
const PAUSE: Duration = Duration::from_millis(2);
/// Rows that are read by their places with one statement.
const PLACES_MAX: usize = 100;
/// The engine removes an expired row this long after its end, by its own clock: clocks differ, and Umbo's decides.
const TTL_MARGIN_SECONDS: u64 = 86_400;
/// The longest time to live that the engine takes: 20 years. Longer ones end by Umbo's clock alone.
const TTL_SECONDS_MAX: u64 = 630_720_000;

/// Returns the engine's time to live of what ends at an instant; 0 for none.
fn ttl(expires_at: Option<Timestamp>, now: Timestamp) -> Cell {
    let seconds = expires_at.map_or(0, |at| {
        let left = at.0.saturating_sub(now.0).div_ceil(1_000_000);
        left.saturating_add(TTL_MARGIN_SECONDS)
    });
    let taken = if seconds > TTL_SECONDS_MAX {
        0
    } else {
        seconds
    };
    int(taken as u32)
}

impl Engine {
    /// Commits writes of a bucket, and answers them.
    pub(crate) async fn write_all(&self, bucket: BucketId, writes: Vec<QueuedWrite>) {
        if writes.is_empty() {
            return;
        }
        let shard = self.shard_of(bucket);
        match self.commit_writes(bucket, &writes).await {
            Ok(answers) => {
                let state = self.shard(shard);
                state.commits.fetch_add(1, Ordering::Relaxed);
                for (write, answers) in writes.into_iter().zip(answers) {
                    let applied = answers.iter().filter(|answer| answer.is_ok()).count();
                    state.mutations.fetch_add(applied as u64, Ordering::Relaxed);
                    let _ = write.answer.send(answers);
                }
                self.reclaim_due(bucket).await;
            }
            Err(error) => {
                let error = error.of(shard);
                for write in writes {
                    write.refuse(error.clone());
                }
            }
        }
    }

    /// Refuses what must not begin any more.
    fn admit(&self, shard: ShardId, write: &QueuedWrite) -> Result<(), StoreError> {
        let request = &write.request;
        self.admit_at(shard, request.namespace, write.deadline)?;
        if let Some(run) = request.run {
            self.check_fence(shard, run.load)?;
        }
        self.check_due(shard, request.not_before)
    }

    /// Refuses a change of a fenced namespace, of a store that closes, and one that is late.
    pub(crate) fn admit_at(
        &self,
        shard: ShardId,
        namespace: NamespaceId,
        deadline: Option<Deadline>,
    ) -> Result<(), StoreError> {
        self.check_fence(shard, namespace)?;
        if self.is_closing.load(Ordering::SeqCst) {
            return Err(StoreError::Closing);
        }
        let now = self.clock.monotonic();
        if deadline.is_some_and(|deadline| deadline.has_passed(now)) {
            return Err(StoreError::DeadlinePassed { shard });
        }
        Ok(())
    }

    async fn commit_writes(
        &self,
        bucket: BucketId,
        writes: &[QueuedWrite],
    ) -> Result<Vec<Vec<Result<Written, WriteError>>>, ClusterError> {
        let shard = self.shard_of(bucket);
        for QueuedWrite { request, .. } in writes {
            let mutations = &request.mutations;
            if mutations
                .iter()
                .any(|one| one.condition != Condition::Unwritten)
            {
                self.learn(shard, request.namespace, request.epoch).await?;
            }
        }
        for tries in 0..TRIES_MAX {
            if tries > 0 {
                self.pause(tries).await;
            }
            let seen = self.known_guard(bucket).await?;
            let group = self.group_of(bucket);
            let now = self.clock.wall();
            let requests: Vec<&WriteRequest> = writes.iter().map(|write| &write.request).collect();
            let mut view = self.view(bucket, &seen, group, &requests, now).await?;
            let mut next = seen.clone();
            let answers = writes.iter().map(|write| {
                let request = &write.request;
                let admitted = self.admit(shard, write).and_then(|()| match request.run {
                    Some(run) if !self.begin_run(&mut next, run) => {
                        Err(StoreError::Overtaken { shard })
                    }
                    _ => Ok(()),
                });
                match admitted {
                    Ok(()) => decide(&mut view, request, now),
                    Err(error) => vec![Err(error.into()); request.mutations.len()],
                }
            });
            let answers: Vec<_> = answers.collect();
            if self.make_so(bucket, &seen, next, view).await? {
                return Ok(answers);
            }
        }
        Err(ClusterError::Contended)
    }

    /// Waits a little, at random, before a commit is decided anew.
    pub(crate) async fn pause(&self, tries: u32) {
        let longest = PAUSE * (1 << tries.min(5));
        let mut byte = [0];
        let _ = getrandom::fill(&mut byte);
        tokio::time::sleep(longest * u32::from(byte[0]) / 256).await;
    }

    /// Records the run of a write, or refuses it because a later run has begun one.
    fn begin_run(&self, guard: &mut Guard, run: FencingToken) -> bool {
        let (load, number) = (run.load.0.cast_signed(), run.number.cast_signed());
        let latest = guard.runs.get(&load).copied();
        if latest.is_some_and(|latest| latest.cast_unsigned() > run.number) {
            return false;
        }
        if latest != Some(number) {
            let records = crate::engine::lock(&self.records);
            let has_ended = |load: i32| {
                let load = NamespaceId(load.cast_unsigned());
                records.as_ref().is_some_and(|copy| copy.fences(load))
            };
            guard.runs.retain(|load, _| !has_ended(*load));
            guard.runs.insert(load, number);
        }
        true
    }

    /// Reads rows by their places.
    pub(crate) async fn rows_at(
        &self,
        bucket: BucketId,
        places: &[Place],
        keys_only: bool,
    ) -> Result<Vec<Found>, ClusterError> {
        let mut found = Vec::new();
        for some in places.chunks(PLACES_MAX) {
            let tuple = |place: &Place| CqlValue::Tuple(place.cells().into());
            let mut cells = self.bucket_cells(bucket);
            cells.push(Some(CqlValue::List(some.iter().map(tuple).collect())));
            let statement = self.statements.rows.at.of(keys_only);
            found.extend(decode(self.execute(statement, cells).await?)?);
        }
        Ok(found)
    }

    pub(crate) fn slot_of(&self, bucket: BucketId, key: &Key) -> u16 {
        Slot::of(bucket.identity, &key.partition).index()
    }

    /// Reads what the requests are decided by.
    async fn view(
        &self,
        bucket: BucketId,
        seen: &Guard,
        group: Option<DatasetGroup>,
        requests: &[&WriteRequest],
        now: Timestamp,
    ) -> Result<BucketView, ClusterError> {
        let needs = Needs::of(self, bucket, group.as_ref(), requests);
        let mut view = BucketView::new(group, seen.top, now);
        let mut found = self.rows_at(bucket, &needs.keys, true).await?;
        found.extend(self.rows_at(bucket, &needs.whole, false).await?);
        let mut uploads = needs.uploads;
        for one in found {
            match one.place.kind {
                IDEMPOTENCY => add_record(&mut view, &one)?,
                _ => {
                    uploads.extend(one.upload());
                    let key = one.key()?;
                    view.add_row(key, &one);
                }
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
        let places: Vec<Place> = uploads.iter().map(place_of_upload).collect();
        for found in self.rows_at(bucket, &places, true).await? {
            if let Some((id, upload)) = upload_of(&found) {
                view.uploads.insert(id, Change::read(upload));
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
        let mut cells = self.bucket_cells(bucket);
        cells.extend([tiny(REMOVED_RANGE), int(building.0)]);
        let answer = self
            .execute(&self.statements.rows.kind.of(false), cells)
            .await?;
        for found in decode(answer)? {
            let range = SortRange {
                start: found.place.sort,
                // An end is never empty, and a row without one has no value.
                end: Some(found.value).filter(|end| !end.is_empty()),
            };
            view.removed_ranges.push((found.place.partition, range));
        }
        Ok(())
    }

    /// Makes the bucket what the view says. Returns false if another process was faster.
    pub(crate) async fn make_so(
        &self,
        bucket: BucketId,
        seen: &Guard,
        mut next: Guard,
        view: BucketView,
    ) -> Result<bool, ClusterError> {
        let mut changes = Vec::new();
        for ((dataset, key), row) in &view.rows {
            let place = Place::of_row(*dataset, self.slot_of(bucket, key), key);
            if let Some((change, size)) = self.change_of_row(bucket, place, row, view.now) {
                changes.push(change);
                let (before, [rows, bytes, saved]) = (row.size_before, [size.0, size.1, size.2]);
                let by = (rows - before.0, bytes - before.1, saved - before.2);
                add_size(&mut next.sizes, *dataset, by);
            }
        }
        for ((partition, id), record) in &view.records {
            if let Some(record_now) = record.now.as_ref().filter(|_| record.before != record.now) {
                let slot = Slot::of(bucket.identity, partition).index();
                let place = place_of_record(slot, partition.as_bytes(), id);
                changes.push(self.change_of_record(bucket, &place, record_now, view.now));
            }
        }
        let mut removed = Vec::new();
        for (id, upload) in &view.uploads {
            if upload.before == upload.now {
                continue;
            }
            let due = upload.now.and_then(|upload| upload.due);
            next.due = next.due.into_iter().chain(due).min();
            if upload.now.is_none() {
                removed.push(*id);
            }
            changes.push(self.change_of_upload(bucket, id, upload.now));
        }
        next.top = view.versions.last();
        let group = view.group.as_ref();
        next.live = group.map(|group| (group.epoch, group.live)).or(next.live);
        let is_changed = next.top != seen.top || next.runs != seen.runs || next.live != seen.live;
        if changes.is_empty() && !is_changed {
            return Ok(true);
        }
        for (upload, number, bytes) in &view.chunks {
            let cells = vec![blob(bytes), int(self.tenant), blob(&upload.0), int(*number)];
            self.execute(&self.statements.own.put_chunk, cells).await?;
        }
        let is_applied = self.commit(bucket, seen, next, changes).await?;
        if is_applied {
            self.delete_chunks(&removed).await;
        }
        Ok(is_applied)
    }

    /// Removes the chunks of uploads that are gone. Those that stay are of no row and cost room alone.
    pub(crate) async fn delete_chunks(&self, uploads: &[UploadId]) {
        for upload in uploads {
            let cells = vec![int(self.tenant), blob(&upload.0)];
            if let Err(error) = self
                .execute(&self.statements.own.delete_chunks, cells)
                .await
            {
                tracing::warn!(%upload, %error, "the bytes of a large value that is gone stay");
            }
        }
    }

    fn change_of_row(
        &self,
        bucket: BucketId,
        place: Place,
        row: &ViewedRow,
        now: Timestamp,
    ) -> Option<(RowChange<'_>, SizeOf)> {
        let by_client = row.by_client.then_some(CqlValue::Boolean(true));
        let is_changed = row.is_replaced() || row.by_client != row.by_client_before;
        if !is_changed {
            return None;
        }
        if row.now.is_none() && by_client.is_none() {
            let mut cells = self.bucket_cells(bucket);
            cells.extend(place.cells());
            return Some(((&self.statements.delete, cells), (0, 0, 0)));
        }
        let (mut cells, size) = match &row.now {
            Some(stored) => (cells_of(stored, by_client, now), size_of(&place, stored)),
            None => {
                let mut cells = vec![ttl(None, now), None, None, None, by_client];
                cells.resize(12, None);
                (cells, (0, 0, 0))
            }
        };
        cells.extend(self.bucket_cells(bucket));
        cells.extend(place.cells());
        Some(((&self.statements.put, cells), size))
    }

    fn change_of_record(
        &self,
        bucket: BucketId,
        place: &Place,
        record: &IdempotencyRecord,
        now: Timestamp,
    ) -> RowChange<'_> {
        let mut cells = vec![
            ttl(Some(record.keep_until), now),
            None,
            big(record.keep_until.0),
        ];
        cells.resize(8, None);
        cells.push(blob(&record.encode()));
        cells.resize(12, None);
        cells.extend(self.bucket_cells(bucket));
        cells.extend(place.cells());
        (&self.statements.put, cells)
    }

    pub(crate) fn change_of_upload(
        &self,
        bucket: BucketId,
        id: &UploadId,
        upload: Option<Upload>,
    ) -> RowChange<'_> {
        let place = place_of_upload(id);
        let (statement, mut cells) = match upload {
            None => (&self.statements.delete, Vec::new()),
            Some(Upload { state, due }) => {
                let due = due.and_then(|at| big(at.0));
                let mut cells = vec![int(0), None, due, None, None, None];
                cells.extend([big(state.len), big(state.references.into())]);
                cells.resize(12, None);
                (&self.statements.put, cells)
            }
        };
        cells.extend(self.bucket_cells(bucket));
        cells.extend(place.cells());
        (statement, cells)
    }
}

/// What a commit has to read.
struct Needs {
    /// Rows without their values.
    keys: Vec<Place>,
    /// Rows and records with their values.
    whole: Vec<Place>,
    uploads: HashSet<UploadId>,
    /// The dataset that a load builds, if it puts rows.
    building: Option<NamespaceId>,
}

impl Needs {
    fn of(
        engine: &Engine,
        bucket: BucketId,
        group: Option<&DatasetGroup>,
        requests: &[&WriteRequest],
    ) -> Self {
        let mut rows: HashMap<Place, bool> = HashMap::new();
        let (mut uploads, mut building, mut records) = (HashSet::new(), None, HashSet::new());
        for request in requests {
            for mutation in &request.mutations {
                let slot = engine.slot_of(bucket, &mutation.key);
                if let Some(idempotency) = &request.idempotency {
                    let partition = mutation.key.partition.as_bytes();
                    records.insert(place_of_record(slot, partition, &idempotency.id));
                }
                let is_of_load = mutation.condition == Condition::Unwritten;
                let is_whole = match &mutation.change {
                    RowMutation::Upload(step) => {
                        uploads.insert(*step.upload());
                        continue;
                    }
                    RowMutation::Put { value, .. } => {
                        uploads.extend(value.large().map(|large: LargeRef| large.upload));
                        false
                    }
                    RowMutation::Delete => false,
                    RowMutation::Increment { .. } => true,
                };
                if is_of_load {
                    building = Some(request.namespace);
                }
                let datasets: Vec<NamespaceId> = match group {
                    Some(group) if !is_of_load => group.ids().collect(),
                    _ => vec![request.namespace],
                };
                for dataset in datasets {
                    let place = Place::of_row(dataset, slot, &mutation.key);
                    *rows.entry(place).or_default() |= is_whole;
                }
            }
        }
        let (whole, keys): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(_, whole)| *whole);
        let place = |(place, _): (Place, bool)| place;
        Self {
            keys: keys.into_iter().map(place).collect(),
            whole: whole.into_iter().map(place).chain(records).collect(),
            uploads,
            building,
        }
    }
}

fn place_of_record(slot: u16, partition: &[u8], id: &[u8]) -> Place {
    Place {
        kind: IDEMPOTENCY,
        dataset: NamespaceId::SYSTEM,
        slot,
        partition: Bytes::copy_from_slice(partition),
        sort: Bytes::copy_from_slice(id),
    }
}

fn place_of_upload(id: &UploadId) -> Place {
    Place {
        kind: UPLOAD,
        dataset: NamespaceId::SYSTEM,
        slot: 0,
        partition: Bytes::copy_from_slice(&id.0),
        sort: Bytes::new(),
    }
}

/// Returns the upload of a row of this kind.
pub(crate) fn upload_of(found: &Found) -> Option<(UploadId, Upload)> {
    let id = UploadId(found.place.partition.as_ref().try_into().ok()?);
    let state = umbo_store::UploadState {
        len: found.len,
        references: u32::try_from(found.held).unwrap_or(u32::MAX),
    };
    let due = found.expires_at;
    Some((id, Upload { state, due }))
}

fn add_record(view: &mut BucketView, found: &Found) -> Result<(), ClusterError> {
    let keep_until = found.expires_at.unwrap_or_default();
    let record = IdempotencyRecord::decode(&found.value, keep_until);
    let record = record.ok_or_else(|| ClusterError::damaged("an idempotency record is damaged"))?;
    let id = found.place.sort.as_ref().try_into();
    let id = id.map_err(|_| ClusterError::damaged("an idempotency record has a damaged name"))?;
    let partition = found.place.partition.clone();
    let partition = umbo_types::PartitionKey::new(partition);
    let partition = partition.map_err(|error| ClusterError::damaged(&error.to_string()))?;
    view.records.insert((partition, id), Change::read(record));
    Ok(())
}

/// Returns what is bound of a row: all columns, so that nothing of an earlier one stays.
fn cells_of(stored: &StoredRow, by_client: Cell, now: Timestamp) -> Vec<Cell> {
    let StoredRow { row, as_of } = stored;
    let value = &row.value;
    let is_large = value.large().is_some();
    let bytes = blob(&value.bytes);
    vec![
        ttl(row.expires_at, now),
        big(row.version.0),
        row.expires_at.and_then(|at| big(at.0)),
        as_of.and_then(|at| big(at.0)),
        by_client,
        Some(CqlValue::TinyInt(value.form.code().cast_signed())),
        big(value.plain_len() as u64),
        big(value.bytes.len() as u64),
        bytes.clone().filter(|_| !is_large),
        bytes.filter(|_| is_large),
        blob(&value.content_type),
        blob(&value.content_encoding),
    ]
}

fn size_of(place: &Place, stored: &StoredRow) -> SizeOf {
    let value = &stored.row.value;
    let keys = place.partition.len() + place.sort.len();
    let kept = value.stored_len();
    let saved = value.plain_len().saturating_sub(kept);
    (1, (keys + kept) as i64, saved as i64)
}
