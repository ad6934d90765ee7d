//! Reading: one committed state of one shard, and bounded walks over it.
//!
//! Owns every read of a reader. A snapshot is the shard's row table at its last commit; the
//! committer replaces it after each commit and a reader holds it for one call only, so no reader
//! pins an old state. The invariant: an expired or damaged row is never returned.

use std::ops::{Bound, RangeInclusive};

use bytes::Bytes;
use redb::{ReadOnlyTable, ReadTransaction, ReadableTable, ReadableTableMetadata};
use umbo_routing::Slot;
use umbo_store::{Page, RangeRequest, RowBatch, RowRef, ScanPosition};
use umbo_types::limits::{CHUNK_BYTES_MAX, CHUNK_ROWS_MAX};
use umbo_types::{Clock, Key, NamespaceId, PartitionKey, Row, ShardId, SortKey, Timestamp};

use crate::failure::Failure;
use crate::key_codec;
use crate::row_codec::{self, RowView};
use crate::tables::ROWS;

/// Most rows that one chunk visits, so that a run of expired rows or of rows outside the segment
/// does not hold a snapshot for long.
const VISITED_ROWS_MAX: u32 = 4 * CHUNK_ROWS_MAX;
/// Most room made for the rows of a chunk before their number is known.
const RESERVED_ROWS_MAX: usize = 128;
const RESERVED_BYTES_MAX: usize = 64 << 10;
/// Rows of a partition outside the segment that a scan steps over before it seeks beyond them.
const SKIPPED_ROWS_BEFORE_SEEK: u32 = 16;

/// A committed state of a shard.
pub(crate) struct Snapshot {
    rows: ReadOnlyTable<&'static [u8], &'static [u8]>,
}

/// What one call may return at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    rows: u32,
    bytes: usize,
    keys_only: bool,
}

impl Limits {
    /// Lowers what was asked for to what a chunk may hold.
    pub(crate) fn of(rows_max: u32, bytes_max: u32, keys_only: bool) -> Self {
        Self {
            rows: rows_max.clamp(1, CHUNK_ROWS_MAX),
            bytes: bytes_max.min(CHUNK_BYTES_MAX) as usize,
            keys_only,
        }
    }
}

/// Which rows of a shard a scan wants, after which physical key.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    /// The shard, for the position.
    pub(crate) shard: ShardId,
    /// Namespace.
    pub(crate) namespace: NamespaceId,
    /// Slots.
    pub(crate) slots: RangeInclusive<u16>,
    /// Last key visited.
    pub(crate) after: Option<Key>,
}

/// Rows gathered so far, and where to go on once no more fit.
#[derive(Debug)]
pub(crate) struct Chunk<P> {
    rows: RowBatch,
    bytes: usize,
    visited: u32,
    limits: Limits,
    /// Last row visited; only known once the chunk is full.
    last: Option<P>,
    is_cut: bool,
}

impl<P> Chunk<P> {
    /// Begins an empty chunk.
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            rows: RowBatch::default(),
            bytes: 0,
            visited: 0,
            limits,
            last: None,
            is_cut: false,
        }
    }

    /// Says whether a row was turned away.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns the rows, and where to go on if any row was turned away.
    pub(crate) fn finish(self) -> (RowBatch, Option<P>) {
        (self.rows, self.last.filter(|_| self.is_cut))
    }

    /// Says whether the next row may be visited; notes that there was one where it may not.
    fn has_room(&mut self) -> bool {
        self.is_cut = self.is_full();
        !self.is_cut
    }

    /// Counts a row as visited, and keeps its position if it was the last one.
    fn visited(&mut self, position: impl FnOnce() -> Result<P, Failure>) -> Result<(), Failure> {
        self.visited += 1;
        if self.is_full() {
            self.last = Some(position()?);
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.visited >= VISITED_ROWS_MAX
            || self.rows.len() >= self.limits.rows as usize
            || (self.bytes >= self.limits.bytes && !self.rows.is_empty())
    }

    fn push(&mut self, partition: &[u8], sort: &[u8], row: RowView<'_>) {
        let value = if self.limits.keys_only {
            &[]
        } else {
            row.value
        };
        let row_bytes = partition.len() + sort.len() + value.len();
        if self.rows.is_empty() {
            // Rows of one partition tend to be alike; a guess that is wrong only costs a copy.
            let rows = (self.limits.rows as usize).min(RESERVED_ROWS_MAX);
            let bytes = (rows * row_bytes).min(self.limits.bytes);
            self.rows.reserve(rows, bytes.min(RESERVED_BYTES_MAX));
        }
        self.bytes += row_bytes;
        self.rows.push(RowRef {
            partition,
            sort,
            value,
            value_len: row.value.len() as u32,
            content_type: row.content_type,
            content_encoding: row.content_encoding,
            version: row.head.version,
            expires_at: row.head.expires_at,
        });
    }
}

impl Snapshot {
    /// Takes the state that a transaction sees.
    pub(crate) fn of(transaction: &ReadTransaction) -> Result<Self, Failure> {
        Ok(Self {
            rows: transaction.open_table(ROWS)?,
        })
    }

    /// Returns the number of rows, expired ones included.
    pub(crate) fn row_count(&self) -> Result<u64, Failure> {
        Ok(self.rows.len()?)
    }

    /// Reads one row.
    pub(crate) fn get(&self, key: &[u8], clock: &dyn Clock) -> Result<Option<Row>, Failure> {
        // The trait's method ties the guard to the table, which keeps the transaction alive.
        let Some(guard) = ReadableTable::get(&self.rows, key)? else {
            return Ok(None);
        };
        let row = row_codec::decode(key, guard.value())?;
        // Most rows stay: the clock is read only for one that does not.
        let is_visible = row.head.expires_at.is_none() || row.head.is_visible(clock.wall());
        Ok(is_visible.then(|| row.to_row()))
    }

    /// Reads one chunk of a range.
    pub(crate) fn range(&self, request: &RangeRequest, now: Timestamp) -> Result<Page, Failure> {
        let limits = Limits::of(request.rows_max, request.bytes_max, request.keys_only);
        let mut chunk = Chunk::new(limits);
        if request.range.is_empty() {
            return Ok(Page::default());
        }
        let (first, beyond) =
            key_codec::sort_bounds(request.namespace, &request.partition, &request.range);
        let prefix_len = first.len() - request.range.start.len();
        let mut walk = ReadableTable::range::<&[u8]>(&self.rows, &first[..]..&beyond[..])?;
        let mut next = || {
            if request.reverse {
                walk.next_back()
            } else {
                walk.next()
            }
        };
        while let Some(entry) = next() {
            let (key, row) = entry?;
            if !chunk.has_room() {
                break;
            }
            let key = key.value();
            let sort = key.get(prefix_len..).ok_or_else(malformed_key)?;
            let row = row_codec::decode(key, row.value())?;
            if row.head.is_visible(now) {
                chunk.push(&[], sort, row);
            }
            chunk.visited(|| Ok(Bytes::copy_from_slice(sort)))?;
        }
        let (rows, resume_after) = chunk.finish();
        Ok(Page { rows, resume_after })
    }

    /// Adds rows of a segment to a chunk until the segment's part of this shard is exhausted or
    /// the chunk is cut.
    pub(crate) fn scan(
        &self,
        segment: &Segment,
        now: Timestamp,
        chunk: &mut Chunk<ScanPosition>,
    ) -> Result<(), Failure> {
        let (mut from, to) = key_codec::namespace_bounds(segment.namespace);
        if let Some(after) = &segment.after {
            from = Bound::Excluded(key_codec::encode(segment.namespace, after).0);
        }
        while let Some(beyond) = self.scan_until_seek(segment, now, chunk, (&from, &to))? {
            from = Bound::Included(beyond);
        }
        Ok(())
    }

    /// Walks until there is nothing more to do, or returns the key to go on at where the rows
    /// before it are not wanted.
    fn scan_until_seek(
        &self,
        segment: &Segment,
        now: Timestamp,
        chunk: &mut Chunk<ScanPosition>,
        bounds: (&Bound<Vec<u8>>, &Bound<Vec<u8>>),
    ) -> Result<Option<Vec<u8>>, Failure> {
        let bounds = (
            bounds.0.as_ref().map(Vec::as_slice),
            bounds.1.as_ref().map(Vec::as_slice),
        );
        let mut current: Option<Partition> = None;
        for entry in ReadableTable::range::<&[u8]>(&self.rows, bounds)? {
            let (key, row) = entry?;
            if !chunk.has_room() {
                return Ok(None);
            }
            let key = key.value();
            let partition = match current.take() {
                Some(partition) if key.starts_with(&partition.prefix) => partition,
                _ => Partition::of(segment, key)?,
            };
            let partition = current.insert(partition);
            let sort = &key[partition.prefix.len()..];
            if partition.is_wanted {
                let row = row_codec::decode(key, row.value())?;
                if row.head.is_visible(now) {
                    chunk.push(partition.key.as_bytes(), sort, row);
                }
            } else {
                partition.skipped += 1;
            }
            chunk.visited(|| {
                let sort = SortKey::new(Bytes::copy_from_slice(sort));
                Ok(ScanPosition {
                    shard: segment.shard,
                    key: Key {
                        partition: partition.key.clone(),
                        sort: sort.map_err(|_| malformed_key())?,
                    },
                })
            })?;
            if partition.skipped >= SKIPPED_ROWS_BEFORE_SEEK {
                return Ok(Some(key_codec::beyond_partition(&partition.prefix)));
            }
        }
        Ok(None)
    }
}

/// The partition that a scan is in, so that its slot is computed once.
struct Partition {
    prefix: Vec<u8>,
    key: PartitionKey,
    is_wanted: bool,
    skipped: u32,
}

impl Partition {
    fn of(segment: &Segment, key: &[u8]) -> Result<Self, Failure> {
        let parts = key_codec::decode(key).ok_or_else(malformed_key)?;
        let partition =
            PartitionKey::new(parts.partition.into_owned()).map_err(|_| malformed_key())?;
        let slot = Slot::of(segment.namespace, &partition);
        Ok(Self {
            prefix: key[..parts.prefix_len].to_vec(),
            key: partition,
            is_wanted: segment.slots.contains(&slot.index()),
            skipped: 0,
        })
    }
}

fn malformed_key() -> Failure {
    Failure::Damaged("a key is malformed".to_owned())
}
