//! Reads: rows, ranges and scans, each chunk with one query.

use std::collections::HashMap;

use bytes::Bytes;
use futures_util::StreamExt as _;
use umbo_routing::Slot;
use umbo_store::{
    ChunkRequest, Page, RangeRequest, RowCollector, ScanPage, ScanRequest, StoreError,
};
use umbo_types::limits::{CHUNK_BYTES_MAX, CHUNK_ROWS_MAX, MULTI_GET_BYTES_MAX, SLOTS};
use umbo_types::{Key, NamespaceId, Row, ShardId, Timestamp};

use crate::bucket::BucketId;
use crate::cell::{blob, int};
use crate::engine::{BucketEngine, lock};
use crate::error::ClusterError;
use crate::found::{FoundRow, decode};
use crate::place::{PlaceRange, StoredPlace};

/// Rows of a multi-get that are read at the same time.
const GETS_AT_ONCE: usize = 32;
/// A query asks for this many times the rows that fill a chunk if all have the mean size, because the cluster bounds an
/// answer by rows and not by bytes.
const ROWS_IN_RESERVE: u64 = 2;
/// Rows that a query asks for at least.
const ROWS_MIN: u64 = 16;
/// A limit above any number of rows.
pub(crate) const ALL: u32 = i32::MAX.unsigned_abs();

impl BucketEngine {
    /// Returns the bucket of a partition of a dataset.
    pub(crate) fn bucket_at(&self, dataset: NamespaceId, slot: Slot) -> BucketId {
        BucketId {
            identity: self.map.placements().of(dataset),
            number: self.bucket_of(slot.index()),
        }
    }

    pub(crate) const fn last_slot(&self, bucket: u16) -> u16 {
        self.slots_begin(bucket) + (SLOTS / self.buckets - 1)
    }

    pub(crate) async fn get(
        &self,
        dataset: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, ClusterError> {
        let slot = self.map.slot(dataset, &key.partition);
        let place = StoredPlace::of_row(dataset, slot.index(), key).cell();
        let cells = self.bound([], self.bucket_at(dataset, slot), [Some(place)]);
        let found = decode(self.execute(&self.statements.rows.get, cells).await?)?;
        let stored = found.first().and_then(FoundRow::stored);
        let row = stored.map(|stored| stored.row);
        Ok(row.filter(|row| !row.is_expired(self.clock.wall())))
    }

    pub(crate) async fn multi_get(
        &self,
        shard: ShardId,
        dataset: NamespaceId,
        keys: &[Key],
    ) -> Vec<Result<Option<Row>, StoreError>> {
        let read: Vec<_> = keys.iter().map(|key| self.get(dataset, key)).collect();
        let mut read = futures_util::stream::iter(read).buffered(GETS_AT_ONCE);
        let (mut rows, mut room) = (Vec::with_capacity(keys.len()), MULTI_GET_BYTES_MAX);
        while let Some(row) = read.next().await {
            let row = row.map_err(|error| error.of(shard));
            let found = row.as_ref().ok().and_then(Option::as_ref);
            let len = found.map_or(0, |row| row.value.bytes.len());
            rows.push(row);
            match room.checked_sub(len).filter(|&left| left > 0) {
                Some(left) => room = left,
                None => break,
            }
        }
        rows
    }

    /// Returns how many rows a chunk asks for, one more than it takes.
    fn limit(&self, shard: ShardId, dataset: NamespaceId, rows_max: u32, bytes_max: u32) -> u32 {
        let mean = lock(&self.shard(shard).sizes).mean_row(dataset).max(1);
        let bytes = u64::from(bytes_max.min(CHUNK_BYTES_MAX));
        let by_bytes = (bytes * ROWS_IN_RESERVE / mean).max(ROWS_MIN);
        let rows = u64::from(rows_max.min(CHUNK_ROWS_MAX)).min(by_bytes);
        rows as u32 + 1
    }

    /// Reads rows of a bucket in order, or from the last one on.
    pub(crate) async fn walk(
        &self,
        bucket: BucketId,
        places: PlaceRange,
        reverse: bool,
        keys_only: bool,
        limit: u32,
    ) -> Result<Vec<FoundRow>, ClusterError> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let [start, end] = places.cells();
        let cells = self.bound([], bucket, [start, end, int(limit)]);
        let statement = self.statements.rows.walk[usize::from(reverse)].of(keys_only);
        decode(self.execute(statement, cells).await?)
    }

    pub(crate) async fn range(
        &self,
        shard: ShardId,
        request: &RangeRequest,
    ) -> Result<Page, ClusterError> {
        let slot = self.map.slot(request.namespace, &request.partition);
        let bucket = self.bucket_at(request.namespace, slot);
        let limit = self.limit(
            shard,
            request.namespace,
            request.rows_max,
            request.bytes_max,
        );
        let at = (
            request.namespace,
            slot.index(),
            request.partition.as_bytes(),
        );
        let places = PlaceRange::of_sorts(at, &request.range);
        let walk = self.walk(bucket, places, request.reverse, request.keys_only, limit);
        let mut walked = ChunkRows::of(walk.await?, limit);
        let now = self.clock.wall();
        if !request.keys_only {
            let read = self.read_apart(bucket, &mut walked, request.bytes_max, now);
            read.await?;
        }
        let mut chunk = RowCollector::new(request.rows_max, request.bytes_max, request.keys_only);
        let position = |found: &FoundRow| found.place.sort.clone();
        walked.fill(&mut chunk, now, false, position);
        let (rows, resume_after, touched) = chunk.finish();
        Ok(Page {
            rows,
            resume_after,
            touched,
        })
    }

    pub(crate) async fn scan(
        &self,
        shard: ShardId,
        request: &ScanRequest,
    ) -> Result<ScanPage, ClusterError> {
        let dataset = request.namespace;
        let slots = self.slots_of(shard, request);
        let limit = self.limit(shard, dataset, request.rows_max, request.bytes_max);
        let mut after = request.after.clone();
        let begin = after.as_ref().map_or(slots.0, |key| {
            self.map.slot(dataset, &key.partition).index()
        });
        let identity = self.map.placements().of(dataset);
        if slots.0 > slots.1 || begin > slots.1 {
            return Ok(ScanPage::default());
        }
        let last_bucket = self.bucket_of(slots.1);
        for number in self.bucket_of(begin)..=last_bucket {
            let bucket = BucketId { identity, number };
            let of_bucket = (
                slots.0.max(self.slots_begin(number)),
                slots.1.min(self.last_slot(number)),
            );
            let mut places = PlaceRange::of_slots(dataset, of_bucket);
            if let Some(key) = after.take() {
                places = places.after(&StoredPlace::of_row(dataset, begin, &key));
            }
            let walk = self.walk(bucket, places, false, request.keys_only, limit);
            let mut walked = ChunkRows::of(walk.await?, limit);
            if walked.rows.is_empty() {
                continue;
            }
            let now = self.clock.wall();
            if !request.keys_only {
                let read = self.read_apart(bucket, &mut walked, request.bytes_max, now);
                read.await?;
            }
            let mut chunk =
                RowCollector::new(request.rows_max, request.bytes_max, request.keys_only);
            let position = |found: &FoundRow| found.place.clone();
            walked.fill(&mut chunk, now, true, position);
            if number < last_bucket {
                chunk.cut();
            }
            let (rows, resume_after, touched) = chunk.finish();
            let resume_after = match resume_after {
                Some(place) => {
                    let key = Key::new(place.partition, place.sort);
                    Some(key.map_err(|_| ClusterError::damaged("a row has a key too long"))?)
                }
                None => None,
            };
            return Ok(ScanPage {
                rows,
                resume_after,
                touched,
            });
        }
        Ok(ScanPage::default())
    }

    /// Returns the first and the last slot of a scan that the shard has.
    fn slots_of(&self, shard: ShardId, request: &ScanRequest) -> (u16, u16) {
        let of_shard = SLOTS / self.shards.len() as u16;
        let first = shard.0 * of_shard;
        let last = first + (of_shard - 1);
        (
            first.max(*request.slots.start()),
            last.min(*request.slots.end()),
        )
    }

    pub(crate) async fn chunk(
        &self,
        request: &ChunkRequest,
    ) -> Result<Option<Bytes>, ClusterError> {
        let cells = vec![
            int(self.instance),
            blob(request.large.upload.0),
            int(request.index),
        ];
        let answer = self.execute(&self.statements.own.chunk, cells).await?;
        let row = answer
            .into_rows_result()?
            .maybe_first_row::<(Option<Bytes>,)>()?;
        Ok(row.and_then(|(bytes,)| bytes))
    }
}

/// Rows of a walk in order.
struct ChunkRows {
    rows: Vec<FoundRow>,
    /// Whether there are rows behind them.
    has_more: bool,
}

impl ChunkRows {
    /// Takes the answer of a query with a limit; the last row it asked for only tells that there are more.
    fn of(mut rows: Vec<FoundRow>, limit: u32) -> Self {
        let has_more = rows.len() >= limit as usize;
        if has_more {
            rows.pop();
        }
        Self { rows, has_more }
    }

    fn end_before(&mut self, at: usize) {
        self.has_more |= at < self.rows.len();
        self.rows.truncate(at);
    }

    /// Ends the rows where a chunk of so many bytes is full, or has read the bytes of the largest chunk.
    fn end_at(&mut self, bytes_max: u32, now: Timestamp) {
        let (mut returned, mut read) = (0, 0);
        let fills = |row: &FoundRow| {
            read += row.about.held;
            let is_returned = row.about.expires_at.is_none_or(|at| at > now);
            returned += if is_returned { row.about.held } else { 0 };
            returned >= bytes_max.into() || read >= CHUNK_BYTES_MAX.into()
        };
        if let Some(last) = self.rows.iter().position(fills) {
            self.end_before(last + 1);
        }
    }

    /// Fills a chunk.
    fn fill<P>(
        &self,
        chunk: &mut RowCollector<P>,
        now: Timestamp,
        with_partition: bool,
        position: impl Fn(&FoundRow) -> P,
    ) {
        for one in &self.rows {
            match one.row_ref(with_partition) {
                Some(row) => {
                    if !chunk.visit(row, one.bytes_read(row), now, || position(one)) {
                        return;
                    }
                }
                None => chunk.pass(position(one)),
            }
        }
        if self.has_more {
            chunk.cut();
        }
    }
}

impl BucketEngine {
    /// Reads the values that stand apart, of rows that a chunk of so many bytes takes. A row that has changed since it was
    /// read ends the rows before it, so that they stay one snapshot; if it is the first, it is the only one, as it is now.
    async fn read_apart(
        &self,
        bucket: BucketId,
        walked: &mut ChunkRows,
        bytes_max: u32,
        now: Timestamp,
    ) -> Result<(), ClusterError> {
        if !walked.rows.iter().any(|row| row.about.is_apart()) {
            return Ok(());
        }
        walked.end_at(bytes_max, now);
        let apart = walked.rows.iter().filter(|row| row.about.is_apart());
        let places: Vec<StoredPlace> = apart.map(|row| row.place.clone()).collect();
        let read = self.rows_at(bucket, &places, false).await?.into_iter();
        let mut read: HashMap<StoredPlace, FoundRow> =
            read.map(|row| (row.place.clone(), row)).collect();
        for at in 0..walked.rows.len() {
            let row = &mut walked.rows[at];
            if !row.about.is_apart() {
                continue;
            }
            let now = read.remove(&row.place);
            if now
                .as_ref()
                .is_some_and(|now| now.about.version == row.about.version)
            {
                row.value = now.map(|now| now.value).unwrap_or_default();
            } else if at > 0 {
                walked.end_before(at);
                break;
            } else {
                match now {
                    Some(now) => *row = now,
                    None => row.about.version = None,
                }
                walked.end_before(1);
                break;
            }
        }
        Ok(())
    }
}
