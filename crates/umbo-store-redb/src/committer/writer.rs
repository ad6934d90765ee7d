//! Changes of rows within a transaction, with the expiry index kept in step.
//!
//! Owns every change of the row table and of the index. Idempotency records are rows of a separate table with the same
//! kind of index, and this module owns their changes too. The invariants: after [`RowWriter::settle_index`] the index
//! names exactly the rows that have an expiry, apart from entries without a row, left by damage, which
//! [`RowWriter::sweep`] removes; and every row that comes or goes is counted in [`SizeChanges`].

use std::collections::BTreeSet;
use std::ops::{Bound, RangeBounds};

use bytes::Bytes;
use redb::{ReadableTable, Table, WriteTransaction};
use umbo_types::{NamespaceId, Timestamp};

use crate::bad_read::unisolated;
use crate::committer::chores::Chores;
use crate::committer::idempotency::StoredRecord;
use crate::committer::large::References;
use crate::committer::plan::Base;
use crate::committer::spared::{Direction, Spared};
use crate::committer::trace::CommitTrace;
use crate::file_error::FileError;
use crate::key_codec;
use crate::memtable::KeyBounds;
use crate::row_cache;
use crate::row_codec::{self, RowHead};
use crate::sizes::{SizeChange, SizeChanges};
use crate::tables::{
    EXPIRY, ExpiryTable, IDEMPOTENCY, IDEMPOTENCY_EXPIRY, ROWS, RowTable, expiry_entry,
    namespace_max, next_expiry, split_expiry_entry,
};

/// Most namespaces that one step of the purge visits if they have no rows at all.
const PURGED_IDS_MAX: usize = 256;
/// Most expired rows that are counted at once; that takes a few milliseconds.
const EXPIRED_COUNTED_MAX: usize = 65_536;

/// The result of the removal of a range.
#[derive(Debug, Default)]
pub(crate) struct RemovedRows {
    /// Rows removed, visible or not.
    pub(crate) rows: u64,
    /// Visible rows among them.
    pub(crate) visible_rows: u64,
    /// Bytes of the sort keys and values of the visible rows.
    pub(crate) visible_bytes: u64,
    /// Sort key of the last row removed, if rows remain.
    pub(crate) resume_after: Option<Bytes>,
    /// Whether rows remain.
    pub(crate) has_more: bool,
}

/// The result of one step of the sweeper.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    /// Keys of the rows and the idempotency records reclaimed, and what each took.
    pub(crate) sizes: Vec<(Vec<u8>, SizeChange)>,
    /// Expiry of the next row in the index.
    pub(crate) next_expiry: Option<Timestamp>,
    /// When the next upload without references is due.
    pub(crate) next_upload_due: Option<Timestamp>,
    /// Expired rows that are left.
    pub(crate) left: Left,
}

impl Swept {
    /// Returns the number of rows reclaimed.
    pub(crate) fn rows(&self) -> u64 {
        let keys = self.sizes.iter().map(|(key, _)| key);
        keys.filter(|key| !key_codec::is_record(key)).count() as u64
    }

    /// Adds a step of the sweeper among the idempotency records, which do not count as rows.
    pub(crate) fn with_records(mut self, records: Self) -> Self {
        let next = [self.next_expiry, records.next_expiry];
        self.next_expiry = next.into_iter().flatten().min();
        self.sizes.extend(records.sizes);
        self
    }
}

/// Expired rows that a step of the sweeper left for later steps.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) enum Left {
    /// Not looked up.
    #[default]
    Unseen,
    /// None.
    Nothing,
    /// At least one.
    Uncounted,
    /// Number of the expired rows left; a lower bound if it equals [`EXPIRED_COUNTED_MAX`].
    Counted(u64),
}

/// The result of one step of the purge.
#[derive(Debug, Default)]
pub(crate) struct Purged {
    /// Namespaces that have no rows left.
    pub(crate) done: Vec<NamespaceId>,
    /// Highest namespace that has rows; looked up only if `done` is not empty.
    pub(crate) namespace_max: Option<NamespaceId>,
    /// Namespaces without rows, but with idempotency records that are in effect.
    pub(crate) held: Vec<NamespaceId>,
    /// Whether more written keys of datasets are to be forgotten, or `None` if the purge did not try.
    pub(crate) has_more_written: Option<bool>,
}

/// The tables of a shard within one transaction, either of rows or of idempotency records.
pub(crate) struct RowWriter<'txn> {
    pub(super) rows: Table<'txn, &'static [u8], &'static [u8]>,
    expiry: Table<'txn, &'static [u8], ()>,
    index_gone: Vec<Vec<u8>>,
    index_new: Vec<Vec<u8>>,
    /// Hashes of the keys of all rows that were replaced or removed; see [`row_cache`].
    changed: Vec<u64>,
    sizes: SizeChanges,
    /// References to uploads, of the rows that came and went.
    references: References,
    /// Keys of rows that must not be changed; see [`crate::stranded`].
    stranded: BTreeSet<Vec<u8>>,
    pub(super) trace: &'txn CommitTrace,
}

impl<'txn> RowWriter<'txn> {
    /// Opens the tables of rows.
    pub(crate) fn of(
        transaction: &'txn WriteTransaction,
        trace: &'txn CommitTrace,
    ) -> Result<Self, FileError> {
        Self::of_tables(transaction, (ROWS, EXPIRY), trace)
    }

    /// Opens the tables of idempotency records.
    pub(crate) fn of_records(
        transaction: &'txn WriteTransaction,
        trace: &'txn CommitTrace,
    ) -> Result<Self, FileError> {
        let tables = (IDEMPOTENCY, IDEMPOTENCY_EXPIRY);
        Self::of_tables(transaction, tables, trace)
    }

    fn of_tables(
        transaction: &'txn WriteTransaction,
        (rows, expiry): (RowTable, ExpiryTable),
        trace: &'txn CommitTrace,
    ) -> Result<Self, FileError> {
        Ok(Self {
            rows: unisolated(|| transaction.open_table(rows))?,
            expiry: unisolated(|| transaction.open_table(expiry))?,
            index_gone: Vec::new(),
            index_new: Vec::new(),
            changed: Vec::new(),
            sizes: SizeChanges::default(),
            references: References::default(),
            stranded: BTreeSet::new(),
            trace,
        })
    }

    /// Returns the hashes of the keys of all rows that were replaced or removed, and how the sizes of namespaces have
    /// changed.
    pub(crate) fn into_changes(self) -> (Vec<u64>, SizeChanges) {
        (self.changed, self.sizes)
    }

    /// Reads the input of a condition on a row, and the input of an increment if `is_counter`.
    pub(crate) fn base(&self, key: &[u8], is_counter: bool) -> Result<Base, FileError> {
        self.trace.row(key);
        let row = self.rows.get(key)?;
        let row = row.as_ref().map(redb::AccessGuard::value);
        Ok(Base::of(key, row, is_counter))
    }

    /// Reads an idempotency record.
    pub(crate) fn record(&self, key: &[u8], now: Timestamp) -> Result<StoredRecord, FileError> {
        self.trace.row(key);
        let row = self.rows.get(key)?;
        let row = row.as_ref().map(redb::AccessGuard::value);
        Ok(StoredRecord::read(key, row, now))
    }

    /// Returns how the sizes of namespaces have changed so far.
    pub(crate) const fn size_changes(&self) -> &SizeChanges {
        &self.sizes
    }

    /// Returns how the references to uploads have changed since the last call.
    pub(crate) fn take_references(&mut self) -> References {
        std::mem::take(&mut self.references)
    }

    /// Stores a row and returns the row that it replaces.
    pub(crate) fn put(
        &mut self,
        key: &[u8],
        head: RowHead,
        row: &[u8],
    ) -> Result<Option<RowHead>, FileError> {
        self.trace.row(key);
        self.check((Bound::Included(key), Bound::Included(key)))?;
        let counts = (&mut self.sizes, &mut self.references);
        let old = replaced(counts, key, self.rows.insert(key, row)?);
        self.note_put(key, head, row, old);
        Ok(old)
    }

    /// Records a stored row, and the row that it replaced.
    pub(super) fn note_put(&mut self, key: &[u8], head: RowHead, row: &[u8], old: Option<RowHead>) {
        // Only existing rows are cached.
        if old.is_some() {
            self.changed.push(row_cache::hash_of(key));
        }
        self.sizes.add(key, row);
        self.references.add(row);
        let old_expiry = old.and_then(|head| head.expires_at);
        if old_expiry != head.expires_at {
            self.forget_expiry(old_expiry, key);
            if let Some(at) = head.expires_at {
                self.index_new.push(expiry_entry(at, key));
            }
        }
    }

    /// Removes a row and returns it.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Result<Option<RowHead>, FileError> {
        self.trace.row(key);
        self.check((Bound::Included(key), Bound::Included(key)))?;
        self.changed.push(row_cache::hash_of(key));
        let counts = (&mut self.sizes, &mut self.references);
        let old = replaced(counts, key, self.rows.remove(key)?);
        self.forget_expiry(old.and_then(|head| head.expires_at), key);
        Ok(old)
    }

    /// Records that a row is stranded: nothing else may change it.
    pub(crate) fn note_stranded(&mut self, key: &[u8]) {
        self.stranded.insert(key.to_vec());
    }

    /// Refuses to change stranded rows.
    fn check(&self, bounds: KeyBounds<'_>) -> Result<(), FileError> {
        if self
            .stranded
            .iter()
            .any(|key| RangeBounds::<[u8]>::contains(&bounds, &key[..]))
        {
            let reason = "the place of a row in the file cannot be read";
            return Err(FileError::Unreadable(reason.to_owned()));
        }
        Ok(())
    }

    /// Makes a change of the log: a row, or `None` for a removal.
    pub(crate) fn apply_logged(&mut self, key: &[u8], row: Option<&[u8]>) -> Result<(), FileError> {
        match row {
            Some(row) => self.put(key, row_codec::decode_head(row)?, row)?,
            None => self.remove(key)?,
        };
        Ok(())
    }

    /// Removes the first rows between two keys, including damaged ones.
    pub(crate) fn remove_range(
        &mut self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        prefix_len: usize,
        rows_max: u32,
        now: Timestamp,
    ) -> Result<RemovedRows, FileError> {
        self.remove_first(bounds, (prefix_len, Direction::Forward), rows_max, now)
    }

    /// Returns the key of the row with this number (1 is the first) between two keys, if there are rows after it.
    pub(crate) fn nth_beyond(
        &self,
        (start, end): (&[u8], &[u8]),
        number: u32,
    ) -> Result<Option<Vec<u8>>, FileError> {
        let mut nth = None;
        for (at, entry) in (1..).zip(self.rows.range::<&[u8]>(start..end)?) {
            let (key, _) = entry?;
            if at == number {
                nth = Some(key.value().to_vec());
            }
            if at > number {
                return Ok(nth);
            }
        }
        Ok(None)
    }

    fn remove_first(
        &mut self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        (prefix_len, direction): (usize, Direction),
        rows_max: u32,
        now: Timestamp,
    ) -> Result<RemovedRows, FileError> {
        self.check(bounds)?;
        let mut removed = RemovedRows::default();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut rows = self.rows.range::<&[u8]>(bounds)?;
        let mut next = || match direction {
            Direction::Forward => rows.next(),
            Direction::Backward => rows.next_back(),
        };
        while let Some(entry) = next() {
            if keys.len() >= rows_max as usize {
                removed.has_more = true;
                break;
            }
            let (key, row) = entry?;
            let key = key.value().to_vec();
            if let Ok(row) = row_codec::decode(&key, row.value())
                && row.head.is_visible(now)
            {
                removed.visible_rows += 1;
                let sort_len = key.len().saturating_sub(prefix_len);
                removed.visible_bytes += (sort_len + row.plain_len) as u64;
            }
            keys.push(key);
        }
        // The iterator holds pages that are about to be removed.
        drop(rows);
        for key in &keys {
            self.remove(key)?;
        }
        removed.rows = keys.len() as u64;
        if removed.has_more {
            let sort = |key: Vec<u8>| key.get(prefix_len..).map(Bytes::copy_from_slice);
            removed.resume_after = keys.pop().and_then(sort);
        }
        Ok(removed)
    }

    /// Updates the index to match the changes so far, in order of the index.
    pub(crate) fn settle_index(&mut self) -> Result<(), FileError> {
        let mut gone = std::mem::take(&mut self.index_gone);
        let mut new = std::mem::take(&mut self.index_new);
        gone.sort_unstable();
        new.sort_unstable();
        let key_of = |entry| split_expiry_entry(entry).map_or(&[][..], |(_, key)| key);
        for entry in &gone {
            self.trace.row(key_of(entry));
            self.expiry.remove(&entry[..])?;
        }
        for entry in &new {
            self.trace.row(key_of(entry));
            self.expiry.insert(&entry[..], ())?;
        }
        Ok(())
    }

    /// Removes expired rows and their index entries, except spared ones, in proportion to the mutations of
    /// the commit. Does not touch the file if nothing is to be swept.
    pub(crate) fn sweep(
        &mut self,
        chores: &Chores,
        mutations: u64,
        spared: &BTreeSet<Vec<u8>>,
    ) -> Result<Swept, FileError> {
        let mut swept = Swept::default();
        let Some(until) = chores.sweep_until else {
            return Ok(swept);
        };
        self.trace.sweep(&[]);
        let beyond = until.0.saturating_add(1).to_be_bytes();
        let rows_max = chores.swept_rows_max(mutations);
        let mut due: Vec<Vec<u8>> = Vec::new();
        for entry in self.expiry.range::<&[u8]>(..&beyond[..])? {
            if due.len() >= rows_max {
                break;
            }
            let entry = entry?.0;
            if !spared.contains(entry.value()) {
                due.push(entry.value().to_vec());
            }
        }
        let mut keys: Vec<(&[u8], Timestamp)> = due
            .iter()
            .filter_map(|entry| split_expiry_entry(entry).map(|(at, key)| (key, at)))
            .collect();
        keys.sort_unstable();
        for (key, at) in keys {
            self.trace.sweep(&expiry_entry(at, key));
            // The row may be damaged, and the index with it: reclaim only a row that matches its entry.
            let due_size = self.rows.get(key)?.and_then(|row| {
                let head = row_codec::decode_head(row.value()).ok()?;
                (head.expires_at == Some(at)).then(|| SizeChange::of(key, row.value()))
            });
            if let Some(size) = due_size {
                self.changed.push(row_cache::hash_of(key));
                let counts = (&mut self.sizes, &mut self.references);
                replaced(counts, key, self.rows.remove(key)?);
                swept.sizes.push((key.to_vec(), size));
            }
        }
        self.trace.sweep(&[]);
        for entry in &due {
            self.expiry.remove(&entry[..])?;
        }
        swept.next_expiry = next_expiry(&self.expiry, spared)?;
        swept.left = match swept.next_expiry {
            Some(next) if next <= until && chores.counts_expired => {
                let left = self.expiry.range::<&[u8]>(..&beyond[..])?;
                Left::Counted(left.take(EXPIRED_COUNTED_MAX).count() as u64)
            }
            Some(next) if next <= until => Left::Uncounted,
            _ => Left::Nothing,
        };
        Ok(swept)
    }

    /// Removes up to `rows_max` rows of fenced namespaces, one namespace after the other.
    pub(crate) fn purge(
        &mut self,
        purging: impl Iterator<Item = NamespaceId>,
        rows_max: u32,
        now: Timestamp,
        spared: &Spared,
    ) -> Result<Purged, FileError> {
        let mut purged = Purged::default();
        let mut room = rows_max;
        let purging = purging.filter(|&id| spared.may_purge(id));
        for namespace in purging.take(PURGED_IDS_MAX) {
            if room == 0 {
                break;
            }
            self.trace.purge(namespace);
            let (from, to) = key_codec::namespace_bounds(namespace);
            let bounds = (
                from.as_ref().map(Vec::as_slice),
                to.as_ref().map(Vec::as_slice),
            );
            let (direction, step) = spared.step_of(namespace, room);
            let removed = self.remove_first(bounds, (0, direction), step, now)?;
            if removed.has_more {
                break;
            }
            room -= removed.rows as u32;
            purged.done.push(namespace);
        }
        self.settle_index()?;
        if !purged.done.is_empty() {
            purged.namespace_max = Some(namespace_max(&self.rows)?);
        }
        Ok(purged)
    }

    fn forget_expiry(&mut self, expires_at: Option<Timestamp>, key: &[u8]) {
        if let Some(at) = expires_at {
            self.index_gone.push(expiry_entry(at, key));
        }
    }
}

/// Counts a row that was replaced or removed, and returns its head. A damaged row counts as a row without expiry: the
/// replacement repairs the damage.
fn replaced(
    (sizes, references): (&mut SizeChanges, &mut References),
    key: &[u8],
    old: Option<redb::AccessGuard<'_, &'static [u8]>>,
) -> Option<RowHead> {
    old.map(|row| {
        sizes.take(key, row.value());
        references.take(row.value());
        row_codec::decode_head(row.value()).unwrap_or(RowHead {
            version: umbo_types::Version(0),
            expires_at: None,
            as_of: None,
        })
    })
}
