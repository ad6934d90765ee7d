//! Reads of one committed state of one shard, and bounded walks over it.
//!
//! Owns every read of a reader. A snapshot is the shard's row table at its last commit. The committer replaces it after
//! each commit, and a reader holds it for one call only, so no reader pins an old state. The invariant: expired rows,
//! damaged rows and rows of fenced namespaces are never returned.

mod merged;
mod stored;

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bytes::Bytes;
use redb::{ReadOnlyTable, ReadTransaction, ReadableTable, ReadableTableMetadata, TableError};
use umbo_routing::Slot;
use umbo_store::{ChunkRequest, IdRange, RangeRequest, RowRef, RowSink, ScanRequest, Touched};
use umbo_types::limits::{CHUNK_BYTES_MAX, CHUNK_ROWS_MAX};
use umbo_types::{Clock, Key, NamespaceId, PartitionKey, Row, SortKey, Timestamp};

use crate::bad_read::isolated;
use crate::chunk_codec::{CHUNKS, chunk_key, decode_chunk};
use crate::fences::Fences;
use crate::file_error::FileError;
use crate::key_codec;
use crate::memtable::Overlay;
use crate::row_codec::{self, RowView};
use crate::sizes::SizeChanges;
use crate::stranded;
use crate::tables::{IDEMPOTENCY, META, ROWS, namespace_max};

/// The position to continue after if a row did not fit, and the work of the walk.
pub(crate) type Walked<P> = (Option<P>, Touched);

/// Most rows that one chunk visits, so that a run of expired rows or of rows outside the segment
/// does not hold a snapshot for long.
const VISITED_ROWS_MAX: u32 = 4 * CHUNK_ROWS_MAX;
/// Most room made for the rows of a chunk before their number is known.
const RESERVED_ROWS_MAX: usize = 128;
const RESERVED_BYTES_MAX: usize = 64 << 10;
/// Rows of a partition outside the segment that a scan steps over before it seeks beyond them.
const SKIPPED_ROWS_BEFORE_SEEK: u32 = 16;

/// A committed state of a shard's file, with the changes that the file does not have yet.
pub(crate) struct ShardSnapshot {
    /// `None` while the file is compacted.
    tables: Option<Arc<Tables>>,
    row_count: u64,
    /// Fenced namespaces, whose rows are not read, in ascending order.
    fenced: Arc<[IdRange]>,
    /// Rows of the file that the table does not have.
    stranded: Overlay,
    /// Acknowledged changes that the table does not have, with the stranded rows.
    overlay: Overlay,
}

/// The tables of a committed state. The file cannot be compacted while any is held.
struct Tables {
    rows: ReadOnlyTable<&'static [u8], &'static [u8]>,
    /// Chunks of large values, or `None` in a file that never had one.
    chunks: Option<ReadOnlyTable<&'static [u8], &'static [u8]>>,
    /// Idempotency records, or `None` in a file that never had a commit.
    records: Option<ReadOnlyTable<&'static [u8], &'static [u8]>>,
    meta: ReadOnlyTable<&'static str, &'static [u8]>,
}

impl Tables {
    /// Returns the table that a key belongs to: of rows, or of idempotency records.
    fn of(&self, key: &[u8]) -> Option<&ReadOnlyTable<&'static [u8], &'static [u8]>> {
        if key_codec::is_record(key) {
            self.records.as_ref()
        } else {
            Some(&self.rows)
        }
    }
}

/// The bounds of one call.
#[derive(Debug, Clone, Copy)]
struct Limits {
    rows: u32,
    bytes: usize,
    keys_only: bool,
}

impl Limits {
    /// Lowers the requested bounds to the bounds of a chunk.
    fn of(rows_max: u32, bytes_max: u32, keys_only: bool) -> Self {
        Self {
            rows: rows_max.clamp(1, CHUNK_ROWS_MAX),
            bytes: bytes_max.min(CHUNK_BYTES_MAX) as usize,
            keys_only,
        }
    }
}

/// The rows of a shard that a scan reads.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) request: ScanRequest,
    /// The namespace that determines the slots of its partitions.
    pub(crate) placed_as: NamespaceId,
}

/// Passes on the rows of a chunk. Once no more rows fit, keeps the position to continue at.
struct ChunkBuilder<'r, P> {
    rows: &'r mut dyn RowSink,
    /// Rows passed on.
    taken: u32,
    bytes: usize,
    touched: Touched,
    visited: u32,
    limits: Limits,
    /// Last row visited; only known once the chunk is full.
    last: Option<P>,
    /// Whether no row may follow the last one visited.
    is_full: bool,
    is_cut: bool,
}

impl<'r, P> ChunkBuilder<'r, P> {
    /// Begins an empty chunk, whose rows go to `rows`.
    fn new(limits: Limits, rows: &'r mut dyn RowSink) -> Self {
        Self {
            rows,
            taken: 0,
            bytes: 0,
            touched: Touched::default(),
            visited: 0,
            limits,
            last: None,
            is_full: false,
            is_cut: false,
        }
    }

    /// Returns the position to continue at if a row did not fit, and the rows and bytes that were read.
    fn finish(self) -> Walked<P> {
        (self.last.filter(|_| self.is_cut), self.touched)
    }

    /// Returns whether the next row may be visited; records that there is one if it may not.
    fn has_room(&mut self) -> bool {
        self.is_cut = self.is_full;
        !self.is_cut
    }

    /// Counts a row as visited, and keeps its position if it was the last one.
    #[inline]
    fn visited(
        &mut self,
        position: impl FnOnce() -> Result<P, FileError>,
    ) -> Result<(), FileError> {
        self.visited += 1;
        self.is_full = self.visited >= VISITED_ROWS_MAX
            || self.taken >= self.limits.rows
            || (self.bytes >= self.limits.bytes && self.taken > 0)
            || self.touched.bytes >= u64::from(CHUNK_BYTES_MAX);
        if self.is_full {
            self.last = Some(position()?);
        }
        Ok(())
    }

    /// Counts a row that was read, and adds it if it is visible. A value is read with its row even if only keys are
    /// wanted, because the checksum of the row covers it.
    #[inline]
    fn read(&mut self, partition: &[u8], sort: &[u8], row: RowView<'_>, now: Timestamp) {
        let mut found = RowRef {
            partition,
            sort,
            value: row.value,
            form: row.form,
            value_len: row.plain_len as u32,
            content_type: row.content_type,
            content_encoding: row.content_encoding,
            version: row.head.version,
            expires_at: row.head.expires_at,
        };
        self.touched += Touched {
            rows: 1,
            bytes: found.stored_bytes(),
        };
        if !row.head.is_visible(now) {
            return;
        }
        if self.limits.keys_only {
            found.value = &[];
        }
        // The bytes that a reader gets are counted, so that a chunk of small frames does not become a chunk of large
        // values.
        let row_bytes = found.returned_bytes();
        if self.taken == 0 {
            self.reserve(row_bytes);
        }
        self.taken += 1;
        self.bytes += row_bytes;
        self.rows.push(found);
    }

    /// Makes room for the likely number of rows of the size of the first one.
    #[cold]
    fn reserve(&mut self, row_bytes: usize) {
        // Rows of one partition tend to be similar in size; a wrong estimate only costs a copy.
        let rows = (self.limits.rows as usize).min(RESERVED_ROWS_MAX);
        let bytes = (rows * row_bytes).min(self.limits.bytes);
        self.rows.reserve(rows, bytes.min(RESERVED_BYTES_MAX));
    }

    /// Counts a row that was stepped over.
    fn skip(&mut self, key: &[u8]) {
        self.touched.bytes += key.len() as u64;
    }
}

impl ShardSnapshot {
    /// Captures the state that a transaction sees, behind the shard's fences.
    pub(crate) fn of(transaction: &ReadTransaction, fences: &Fences) -> Result<Self, FileError> {
        let rows = transaction.open_table(ROWS)?;
        let optional = |table| match transaction.open_table(table) {
            Ok(table) => Ok(Some(table)),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(error),
        };
        let tables = Tables {
            chunks: optional(CHUNKS)?,
            records: optional(IDEMPOTENCY)?,
            meta: transaction.open_table(META)?,
            rows,
        };
        let stranded = stranded::read(transaction)?;
        Ok(Self {
            row_count: tables.rows.len()?,
            tables: Some(Arc::new(tables)),
            fenced: Arc::clone(fences.fenced()),
            overlay: stranded.clone(),
            stranded,
        })
    }

    /// Returns the same state of the file below other changes.
    pub(crate) fn below(&self, overlay: Overlay) -> Self {
        Self {
            tables: self.tables.clone(),
            row_count: self.row_count,
            fenced: Arc::clone(&self.fenced),
            stranded: self.stranded.clone(),
            overlay: overlay.over(&self.stranded),
        }
    }

    /// Returns the same state without its tables; reads of it wait.
    pub(crate) fn paused(&self) -> Self {
        Self {
            tables: None,
            row_count: self.row_count,
            fenced: Arc::clone(&self.fenced),
            stranded: self.stranded.clone(),
            overlay: self.overlay.clone(),
        }
    }

    /// Returns whether a reader holds the tables of this state, which its only owner asks.
    pub(crate) fn is_read(self: &Arc<Self>) -> bool {
        let is_shared = |tables: &Arc<Tables>| Arc::strong_count(tables) > 1;
        Arc::strong_count(self) > 1 || self.tables.as_ref().is_some_and(is_shared)
    }

    /// Returns whether reads of its tables have to wait.
    pub(crate) const fn is_paused(&self) -> bool {
        self.tables.is_none()
    }

    fn tables(&self) -> Result<&Tables, FileError> {
        self.tables.as_deref().ok_or(FileError::Paused)
    }

    /// Returns the keys of the changes that the table does not have.
    pub(crate) fn changed_keys(&self) -> Vec<Vec<u8>> {
        self.overlay.keys()
    }

    /// Returns whether the row of a key is changed since the state of the table.
    pub(crate) fn is_changed(&self, key: &[u8]) -> bool {
        self.overlay.get(key, |_| ()).is_some()
    }

    /// Replaces the fences of the state.
    pub(crate) fn fence(&mut self, fences: &Fences) {
        self.fenced = Arc::clone(fences.fenced());
    }

    /// Returns the highest namespace that has rows, whether fenced or not.
    pub(crate) fn namespace_max(&self) -> Result<NamespaceId, FileError> {
        namespace_max(&self.tables()?.rows)
    }

    /// Refuses to read a namespace that is fenced.
    pub(crate) fn check(&self, namespace: NamespaceId) -> Result<(), FileError> {
        if IdRange::any_has(&self.fenced, namespace) {
            return Err(FileError::Gone(namespace));
        }
        Ok(())
    }

    /// Returns the number of rows, expired ones included.
    pub(crate) const fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Returns each of some keys whose place in the table cannot be read, with the reason. May wait for the disk.
    pub(crate) fn unreadable(
        &self,
        keys: impl Iterator<Item = Vec<u8>>,
    ) -> impl Iterator<Item = (Vec<u8>, FileError)> {
        keys.filter_map(|key| {
            let read = isolated(|| match self.tables()?.of(&key) {
                Some(table) => Ok(ReadableTable::get(table, &key[..])?.is_some()),
                None => Ok(false),
            });
            let failure = read.err()?;
            matches!(failure, FileError::Unreadable(_)).then_some((key, failure))
        })
    }

    /// Reads one row of a namespace.
    pub(crate) fn get(
        &self,
        namespace: NamespaceId,
        key: &[u8],
        clock: &dyn Clock,
    ) -> Result<Option<Row>, FileError> {
        self.check(namespace)?;
        self.stored(key, |row| {
            let Some(row) = row else {
                return Ok(None);
            };
            let row = row_codec::decode(key, row)?;
            // Most rows have no expiry: the clock is read only for a row that has one.
            let is_visible = row.head.expires_at.is_none() || row.head.is_visible(clock.wall());
            Ok(is_visible.then(|| row.to_row()))
        })
    }

    /// Returns the bytes of the idempotency records that a namespace has in the file, and more in the memtables.
    pub(crate) fn idempotency_bytes(
        &self,
        namespace: NamespaceId,
        more: &SizeChanges,
    ) -> Result<u64, FileError> {
        more.idempotency_bytes(&self.tables()?.meta, namespace)
    }

    /// Reads a chunk of a large value, or returns `None` if it has been reclaimed.
    pub(crate) fn chunk(&self, request: &ChunkRequest) -> Result<Option<Bytes>, FileError> {
        self.check(request.namespace)?;
        let Some(chunks) = &self.tables()?.chunks else {
            return Ok(None);
        };
        let key = chunk_key(request.large.upload, request.index);
        let stored = ReadableTable::get(chunks, &key[..])?;
        stored
            .map(|stored| decode_chunk(&key, stored.value()))
            .transpose()
    }

    /// Reads one chunk of a range, and passes its rows to `rows`. Returns the sort key to continue after if a row did
    /// not fit, and the rows and bytes that were read.
    pub(crate) fn range(
        &self,
        request: &RangeRequest,
        now: Timestamp,
        rows: &mut dyn RowSink,
    ) -> Result<Walked<Bytes>, FileError> {
        self.check(request.namespace)?;
        let limits = Limits::of(request.rows_max, request.bytes_max, request.keys_only);
        let mut chunk = ChunkBuilder::new(limits, rows);
        if request.range.is_empty() {
            return Ok(chunk.finish());
        }
        let (first, beyond) =
            key_codec::sort_bounds(request.namespace, &request.partition, &request.range);
        let prefix_len = first.len() - request.range.start.len();
        let bounds = (Bound::Included(&first[..]), Bound::Excluded(&beyond[..]));
        self.walk(bounds, request.reverse, |key, row| {
            if !chunk.has_room() {
                return Ok(ControlFlow::Break(()));
            }
            let sort = key.get(prefix_len..).ok_or_else(malformed_key)?;
            chunk.read(&[], sort, row_codec::decode(key, row)?, now);
            chunk.visited(|| Ok(Bytes::copy_from_slice(sort)))?;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(chunk.finish())
    }

    /// Reads one chunk of a segment, and passes its rows to `rows`. Returns the key to continue after if a row did not
    /// fit, and the rows and bytes that were read.
    pub(crate) fn scan(
        &self,
        segment: &Segment,
        now: Timestamp,
        rows: &mut dyn RowSink,
    ) -> Result<Walked<Key>, FileError> {
        let request = &segment.request;
        self.check(request.namespace)?;
        let limits = Limits::of(request.rows_max, request.bytes_max, request.keys_only);
        let mut chunk = ChunkBuilder::new(limits, rows);
        let (mut from, to) = key_codec::namespace_bounds(request.namespace);
        if let Some(after) = &request.after {
            from = Bound::Excluded(key_codec::encode(request.namespace, after).0);
        }
        while let Some(beyond) = self.scan_until_seek(segment, now, &mut chunk, (&from, &to))? {
            from = Bound::Included(beyond);
        }
        Ok(chunk.finish())
    }

    /// Walks until there is nothing more to do, or returns the key to continue at if the rows before it are not wanted.
    fn scan_until_seek(
        &self,
        segment: &Segment,
        now: Timestamp,
        chunk: &mut ChunkBuilder<'_, Key>,
        bounds: (&Bound<Vec<u8>>, &Bound<Vec<u8>>),
    ) -> Result<Option<Vec<u8>>, FileError> {
        let bounds = (
            bounds.0.as_ref().map(Vec::as_slice),
            bounds.1.as_ref().map(Vec::as_slice),
        );
        let mut current: Option<ScanPartition> = None;
        let ended = self.walk(bounds, false, |key, row| {
            if !chunk.has_room() {
                return Ok(ControlFlow::Break(None));
            }
            let partition = match current.take() {
                Some(partition) if key.starts_with(&partition.prefix) => partition,
                _ => ScanPartition::of(segment, key)?,
            };
            let partition = current.insert(partition);
            let sort = &key[partition.prefix.len()..];
            if partition.is_wanted {
                let row = row_codec::decode(key, row)?;
                chunk.read(partition.key.as_bytes(), sort, row, now);
            } else {
                chunk.skip(key);
                partition.skipped += 1;
            }
            chunk.visited(|| {
                let sort = SortKey::new(Bytes::copy_from_slice(sort));
                Ok(Key {
                    partition: partition.key.clone(),
                    sort: sort.map_err(|_| malformed_key())?,
                })
            })?;
            Ok(if partition.skipped >= SKIPPED_ROWS_BEFORE_SEEK {
                ControlFlow::Break(Some(key_codec::beyond_partition(&partition.prefix)))
            } else {
                ControlFlow::Continue(())
            })
        })?;
        Ok(ended.flatten())
    }
}

/// The partition that a scan is in, so that its slot is computed once.
struct ScanPartition {
    prefix: Vec<u8>,
    key: PartitionKey,
    is_wanted: bool,
    skipped: u32,
}

impl ScanPartition {
    fn of(segment: &Segment, key: &[u8]) -> Result<Self, FileError> {
        let parts = key_codec::decode(key).ok_or_else(malformed_key)?;
        let partition =
            PartitionKey::new(parts.partition.into_owned()).map_err(|_| malformed_key())?;
        let slot = Slot::of(segment.placed_as, &partition);
        Ok(Self {
            prefix: key[..parts.prefix_len].to_vec(),
            key: partition,
            is_wanted: segment.request.slots.contains(&slot.index()),
            skipped: 0,
        })
    }
}

fn malformed_key() -> FileError {
    FileError::Damaged("a key is malformed".to_owned())
}

#[cfg(test)]
mod tests {
    use redb::{Database, ReadableDatabase, TableDefinition};
    use umbo_store::{ManualClock, RowBatch, SortRange};
    use umbo_types::{Value, Version};

    use super::*;
    use crate::memtable::ChangedRow;
    use crate::row_codec::RowHead;

    const NAMESPACE: NamespaceId = NamespaceId(7);

    fn at(partition: &'static str) -> Key {
        Key::new(partition, "").unwrap()
    }

    fn encoded(key: &[u8], value: &'static str) -> Vec<u8> {
        let (mut row, head) = (Vec::new(), head());
        row_codec::encode(&mut row, key, head, &Value::new(value, "", "").unwrap());
        row
    }

    fn head() -> RowHead {
        RowHead {
            version: Version(1),
            expires_at: None,
            as_of: None,
        }
    }

    fn change(partition: &'static str, value: Option<&'static str>) -> (Box<[u8]>, ChangedRow) {
        let (key, _) = key_codec::encode(NAMESPACE, &at(partition));
        let row = value.map(|value| encoded(&key, value).into());
        (key.into(), row)
    }

    fn record(partition: &'static str) -> (Box<[u8]>, ChangedRow) {
        let (key, prefix_len) = key_codec::encode(NAMESPACE, &at(partition));
        let key = key_codec::idempotency_key(&key[..prefix_len], b"id");
        let row = encoded(&key, "record");
        (key.into(), Some(row.into()))
    }

    fn snapshot(database: &Database, fences: &Fences) -> ShardSnapshot {
        ShardSnapshot::of(&database.begin_read().unwrap(), fences).unwrap()
    }

    fn database(folder: &tempfile::TempDir) -> Database {
        const ROWS: TableDefinition<'static, &[u8], &[u8]> = crate::tables::ROWS;
        let database = Database::create(folder.path().join("rows")).unwrap();
        let transaction = database.begin_write().unwrap();
        {
            let mut rows = transaction.open_table(ROWS).unwrap();
            for partition in ["a", "b", "c"] {
                let (key, _) = key_codec::encode(NAMESPACE, &at(partition));
                rows.insert(&key[..], &encoded(&key, "stored")[..]).unwrap();
            }
            transaction.open_table(META).unwrap();
        }
        transaction.commit().unwrap();
        database
    }

    fn get(snapshot: &ShardSnapshot, partition: &'static str) -> Option<Bytes> {
        let clock = ManualClock::new(Timestamp(5));
        let (key, _) = key_codec::encode(NAMESPACE, &at(partition));
        let row = snapshot.get(NAMESPACE, &key, &clock).unwrap();
        row.map(|row| row.value.bytes)
    }

    #[test]
    fn what_the_table_lacks_is_read_and_never_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let database = database(&folder);
        let changes = [
            change("0", None),
            change("0", Some("first")),
            change("b", Some("older")),
            change("b", Some("newer")),
            change("c", None),
            record("b"),
        ];
        let snapshot = snapshot(&database, &Fences::default());
        let snapshot = snapshot.below(Overlay::of(changes.into_iter()));
        assert_eq!(get(&snapshot, "a").as_deref(), Some(&b"stored"[..]));
        assert_eq!(get(&snapshot, "b").as_deref(), Some(&b"newer"[..]));
        assert_eq!(get(&snapshot, "c"), None);
        assert_eq!(get(&snapshot, "0").as_deref(), Some(&b"first"[..]));
        for (partition, rows) in [("a", 1), ("b", 1), ("c", 0), ("d", 0)] {
            for reverse in [false, true] {
                let request = RangeRequest {
                    namespace: NAMESPACE,
                    partition: at(partition).partition,
                    range: SortRange::default(),
                    reverse,
                    rows_max: 10,
                    bytes_max: 1_000,
                    keys_only: false,
                };
                let mut read = RowBatch::default();
                snapshot.range(&request, Timestamp(5), &mut read).unwrap();
                assert_eq!(read.len(), rows, "{partition}");
            }
        }
        for (namespace, rows) in [(NAMESPACE, 3), (NamespaceId(8), 0)] {
            let request = ScanRequest {
                namespace,
                slots: 0..=umbo_types::limits::SLOTS - 1,
                after: None,
                rows_max: 10,
                bytes_max: 1_000,
                keys_only: false,
            };
            let segment = Segment {
                request,
                placed_as: NAMESPACE,
            };
            let mut read = RowBatch::default();
            snapshot.scan(&segment, Timestamp(5), &mut read).unwrap();
            assert_eq!(read.len(), rows, "{namespace}");
        }
    }

    #[test]
    fn nothing_of_a_fenced_namespace_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let database = database(&folder);
        let mut fences = Fences::default();
        fences.raise(&[NAMESPACE.into()]);
        let state = snapshot(&database, &fences);
        let (key, _) = key_codec::encode(NAMESPACE, &at("a"));
        let read = state.get(NAMESPACE, &key, &ManualClock::new(Timestamp(5)));
        assert_eq!(read.unwrap_err(), FileError::Gone(NAMESPACE));
        assert_eq!(state.namespace_max().unwrap(), NAMESPACE);
    }
}
