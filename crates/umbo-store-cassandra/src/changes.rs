//! The statements that make a bucket what a view says.

use bytes::Bytes;
use umbo_routing::Slot;
use umbo_store::{IdempotencyRecord, StoredRow};
use umbo_types::{Timestamp, UploadId};

use crate::about::About;
use crate::bucket::BucketId;
use crate::cell::{blob, int};
use crate::engine::BucketEngine;
use crate::error::ClusterError;
use crate::found::{RowCells, SizeOf};
use crate::guard::{Guard, RowChange};
use crate::needs::{place_of_record, place_of_upload};
use crate::place::{PlaceRange, StoredPlace};
use crate::sizes::add_size;
use crate::view::{BucketView, Upload, ViewedRow};

/// The engine removes an expired row this long after its end, by its own clock: clocks differ, and Umbo's decides.
const TTL_MARGIN_SECONDS: u64 = 86_400;
/// The longest time to live that the engine takes: 20 years. Longer ones end by Umbo's clock alone.
const TTL_SECONDS_MAX: u64 = 630_720_000;

/// Returns the engine's time to live of what ends at an instant, in seconds; 0 for none.
fn ttl(expires_at: Option<Timestamp>, now: Timestamp) -> u32 {
    let seconds = expires_at.map_or(0, |at| {
        let left = at.0.saturating_sub(now.0).div_ceil(1_000_000);
        left.saturating_add(TTL_MARGIN_SECONDS)
    });
    match u32::try_from(seconds) {
        Ok(seconds) if u64::from(seconds) <= TTL_SECONDS_MAX => seconds,
        _ => 0,
    }
}

impl BucketEngine {
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
            let place = StoredPlace::of_row(*dataset, bucket.slot_of(key), key);
            if let Some((change, size)) = self.change_of_row(bucket, &place, row, view.now) {
                changes.push(change);
                let (rows, bytes, saved) = row.size_before;
                let by = (size.0 - rows, size.1 - bytes, size.2 - saved);
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
        let removed = self.change_uploads(bucket, &view, &mut next, &mut changes);
        next.top = view.versions.last();
        let group = view.group.as_ref();
        next.live = group.map(|group| (group.epoch, group.live)).or(next.live);
        let is_changed = next.top != seen.top || next.runs != seen.runs || next.live != seen.live;
        if changes.is_empty() && !is_changed {
            return Ok(true);
        }
        for (upload, number, bytes) in &view.chunks {
            let cells = vec![
                blob(&**bytes),
                int(self.instance),
                blob(upload.0),
                int(*number),
            ];
            self.execute(&self.statements.own.put_chunk, cells).await?;
        }
        let is_applied = self.commit(bucket, seen, next, changes).await?;
        if is_applied {
            self.delete_chunks(&removed).await;
        }
        Ok(is_applied)
    }

    /// Removes the chunks of uploads that are gone. A chunk that stays is of no row, and costs nothing but room.
    pub(crate) async fn delete_chunks(&self, uploads: &[UploadId]) {
        for upload in uploads {
            let cells = vec![int(self.instance), blob(upload.0)];
            if let Err(error) = self
                .execute(&self.statements.own.delete_chunks, cells)
                .await
            {
                tracing::warn!(%upload, %error, "the bytes of a large value that is gone stay");
            }
        }
    }

    /// Returns the statement that sets a row, and the size of the row afterwards; `None` if nothing changes.
    fn change_of_row(
        &self,
        bucket: BucketId,
        place: &StoredPlace,
        row: &ViewedRow,
        now: Timestamp,
    ) -> Option<(RowChange<'_>, SizeOf)> {
        if !row.is_replaced() && row.by_client == row.by_client_before {
            return None;
        }
        let (mut cells, size) = match &row.now {
            Some(stored) => (cells_of(stored, now), size_of(place, stored)),
            None if row.by_client => (RowCells::default(), (0, 0, 0)),
            None => return Some((self.deletion(bucket, place), (0, 0, 0))),
        };
        cells.about.by_client = row.by_client;
        Some((self.put(bucket, place, cells), size))
    }

    /// Returns the statement that sets a row.
    pub(crate) fn put(
        &self,
        bucket: BucketId,
        place: &StoredPlace,
        row: RowCells,
    ) -> RowChange<'_> {
        let cells = self.bound(row.bound(), bucket, [Some(place.cell())]);
        (&self.statements.put, cells)
    }

    fn deletion(&self, bucket: BucketId, place: &StoredPlace) -> RowChange<'_> {
        let cells = self.bound([], bucket, [Some(place.cell())]);
        (&self.statements.delete, cells)
    }

    /// Returns the statement that removes all rows at some places.
    pub(crate) fn removal(&self, bucket: BucketId, places: PlaceRange) -> RowChange<'_> {
        let cells = self.bound([], bucket, places.cells());
        (&self.statements.delete_range, cells)
    }

    fn change_of_record(
        &self,
        bucket: BucketId,
        place: &StoredPlace,
        record: &IdempotencyRecord,
        now: Timestamp,
    ) -> RowChange<'_> {
        let row = RowCells {
            ttl: ttl(Some(record.keep_until), now),
            about: About {
                expires_at: Some(record.keep_until),
                ..About::default()
            },
            value: record.encode(),
        };
        self.put(bucket, place, row)
    }

    /// Makes the uploads of a bucket what the view says: adds the statements, and returns the uploads that end.
    pub(crate) fn change_uploads<'a>(
        &'a self,
        bucket: BucketId,
        view: &BucketView,
        next: &mut Guard,
        changes: &mut Vec<RowChange<'a>>,
    ) -> Vec<UploadId> {
        let mut ended = Vec::new();
        for (id, upload) in &view.uploads {
            if upload.before == upload.now {
                continue;
            }
            let due = upload.now.and_then(|upload| upload.due);
            next.due = next.due.into_iter().chain(due).min();
            ended.extend(upload.now.is_none().then_some(*id));
            changes.push(self.change_of_upload(bucket, id, upload.now));
        }
        ended
    }

    pub(crate) fn change_of_upload(
        &self,
        bucket: BucketId,
        id: &UploadId,
        upload: Option<Upload>,
    ) -> RowChange<'_> {
        let place = place_of_upload(id);
        let Some(Upload { state, due }) = upload else {
            return self.deletion(bucket, &place);
        };
        let about = About {
            expires_at: due,
            len: state.len,
            held: state.references.into(),
            ..About::default()
        };
        let row = RowCells {
            about,
            ..RowCells::default()
        };
        self.put(bucket, &place, row)
    }
}

pub(crate) fn cells_of(stored: &StoredRow, now: Timestamp) -> RowCells {
    let StoredRow { row, as_of } = stored;
    let value = &row.value;
    let large = value.large();
    let about = About {
        version: Some(row.version),
        expires_at: row.expires_at,
        as_of: *as_of,
        by_client: false,
        form: value.form,
        len: value.plain_len() as u64,
        held: value.bytes.len() as u64,
        large,
        content_type: value.content_type.clone(),
        content_encoding: value.content_encoding.clone(),
        mark: None,
    };
    RowCells {
        ttl: ttl(row.expires_at, now),
        about,
        value: match large {
            Some(_) => Bytes::new(),
            None => value.bytes.clone(),
        },
    }
}

fn size_of(place: &StoredPlace, stored: &StoredRow) -> SizeOf {
    let value = &stored.row.value;
    let keys = place.partition.len() + place.sort.len();
    let kept = value.stored_len();
    let saved = value.plain_len().saturating_sub(kept);
    let signed = |len: usize| (len as u64).cast_signed();
    (1, signed(keys + kept), signed(saved))
}
