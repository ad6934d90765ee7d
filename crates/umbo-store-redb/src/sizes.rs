//! The sizes of the namespaces in a shard: rows, and bytes of keys and rows as stored, including large values.
//!
//! Owns their records among the metadata of the file, one a namespace, and a marker that they are kept. Every commit
//! that changes rows changes them in the same transaction, so they are exact, also after a crash. A stranded row counts
//! once it is in its place. The invariant: with the marker, the records are the sums over the row table.
//! A file of a version that kept no sizes has no marker; its rows are counted once, when it is opened.

use std::collections::BTreeMap;
use std::ops::{AddAssign, Neg};

use redb::{ReadTransaction, ReadableTable, Table, WriteTransaction};
use umbo_store::NamespaceSize;
use umbo_types::NamespaceId;

use crate::bad_read::unisolated;
use crate::file_error::FileError;
use crate::key_codec;
use crate::row_codec;
use crate::tables::{META, ROWS};

/// Name of the marker.
pub(crate) const META_SIZES: &str = "sizes";
/// Names of the records are this prefix and the id of the namespace in hexadecimal.
const PREFIX: &str = "size/";
/// First name beyond them.
const BEYOND_PREFIX: &str = "size0";
/// Prefix of the names of the sizes of idempotency records by namespace, which are always kept.
const IDEMPOTENCY_PREFIX: &str = "idempotency/";
const FORMAT: u8 = 1;

type Meta<'txn> = Table<'txn, &'static str, &'static [u8]>;
/// Sizes by namespace.
pub(crate) type Sizes = BTreeMap<NamespaceId, NamespaceSize>;

/// Rows and bytes that a transaction adds to each namespace and takes from it; idempotency records apart from rows.
#[derive(Debug, Default)]
pub(crate) struct SizeChanges {
    rows: BTreeMap<NamespaceId, SizeChange>,
    records: BTreeMap<NamespaceId, SizeChange>,
}

/// Rows and bytes that one row adds to its namespace, or that several changes add.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SizeChange {
    rows: i64,
    bytes: i64,
    saved: i64,
}

impl SizeChange {
    /// Returns the size of a row that is stored under `key`.
    pub(crate) fn of(key: &[u8], row: &[u8]) -> Self {
        let beside = row_codec::large(row).map_or(0, |large| large.len as usize);
        Self {
            rows: 1,
            bytes: signed(key.len() + row.len() + beside),
            saved: signed(row_codec::saved_len(row)),
        }
    }

    fn add_to(self, size: &mut NamespaceSize) {
        size.rows = size.rows.saturating_add_signed(self.rows);
        size.bytes = size.bytes.saturating_add_signed(self.bytes);
        size.bytes_saved = size.bytes_saved.saturating_add_signed(self.saved);
    }
}

impl AddAssign for SizeChange {
    fn add_assign(&mut self, other: Self) {
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.saved += other.saved;
    }
}

impl Neg for SizeChange {
    type Output = Self;

    fn neg(self) -> Self {
        Self {
            rows: -self.rows,
            bytes: -self.bytes,
            saved: -self.saved,
        }
    }
}

impl SizeChanges {
    /// Counts a row that was stored under `key`.
    pub(crate) fn add(&mut self, key: &[u8], row: &[u8]) {
        self.count(key, SizeChange::of(key, row));
    }

    /// Counts a row that was removed from under `key`.
    pub(crate) fn take(&mut self, key: &[u8], row: &[u8]) {
        self.count(key, -SizeChange::of(key, row));
    }

    /// Counts a change of the size of the row under `key`.
    pub(crate) fn count(&mut self, key: &[u8], change: SizeChange) {
        let changes = if key_codec::is_record(key) {
            &mut self.records
        } else {
            &mut self.rows
        };
        if let Some(namespace) = key_codec::namespace_of(key) {
            *changes.entry(namespace).or_default() += change;
        }
    }

    /// Adds other changes.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (changes, others) in [
            (&mut self.rows, &other.rows),
            (&mut self.records, &other.records),
        ] {
            for (&namespace, change) in others {
                *changes.entry(namespace).or_default() += *change;
            }
        }
    }

    /// Adds the changes to sizes.
    pub(crate) fn add_to(&self, sizes: &mut Sizes) {
        for (&namespace, change) in &self.rows {
            change_size(sizes, namespace, *change);
        }
    }

    /// Takes the changes from sizes again.
    pub(crate) fn take_from(&self, sizes: &mut Sizes) {
        for (&namespace, change) in &self.rows {
            change_size(sizes, namespace, -*change);
        }
    }

    /// Adds the changes of one namespace to sizes.
    pub(crate) fn add_one_to(&self, sizes: &mut Sizes, namespace: NamespaceId) {
        if let Some(change) = self.rows.get(&namespace) {
            change_size(sizes, namespace, *change);
        }
    }

    /// Returns the bytes of idempotency records that a namespace has, with the changes.
    pub(crate) fn idempotency_bytes(
        &self,
        meta: &impl ReadableTable<&'static str, &'static [u8]>,
        namespace: NamespaceId,
    ) -> Result<u64, FileError> {
        let record = meta.get(&name_of(IDEMPOTENCY_PREFIX, namespace)[..])?;
        let [_, bytes, _] = record
            .and_then(|record| decode(record.value()))
            .unwrap_or_default();
        let change = self
            .records
            .get(&namespace)
            .map_or(0, |change| change.bytes);
        Ok(bytes.saturating_add_signed(change))
    }

    /// Changes the sizes of idempotency records. A size that cannot be decoded begins anew from 0: then the bound on
    /// idempotency records is reached later.
    pub(crate) fn record_idempotency(&self, meta: &mut Meta<'_>) -> Result<(), FileError> {
        for (&namespace, change) in &self.records {
            let name = name_of(IDEMPOTENCY_PREFIX, namespace);
            let before = meta.get(&name[..])?;
            let before = before.and_then(|record| decode(record.value()));
            let [rows, bytes, _] = before.unwrap_or_default();
            let mut size = NamespaceSize {
                namespace,
                rows,
                bytes,
                bytes_saved: 0,
            };
            change.add_to(&mut size);
            size.bytes_saved = 0;
            if size.rows == 0 {
                meta.remove(&name[..])?;
            } else {
                meta.insert(&name[..], &encode(size)[..])?;
            }
        }
        Ok(())
    }

    /// Changes the records, and returns the changed sizes; empty in a file without the marker. If a record cannot be
    /// decoded, removes the marker, so that the next opening counts the rows.
    pub(crate) fn record(&self, meta: &mut Meta<'_>) -> Result<Vec<NamespaceSize>, FileError> {
        if self.rows.is_empty() || meta.get(META_SIZES)?.is_none() {
            return Ok(Vec::new());
        }
        let mut changed = Vec::with_capacity(self.rows.len());
        for (&namespace, change) in &self.rows {
            let name = name_of(PREFIX, namespace);
            let before = meta.get(&name[..])?;
            let before = before.map_or(Some([0; 3]), |record| decode(record.value()));
            let Some([rows, bytes, saved]) = before else {
                meta.remove(META_SIZES)?;
                return Ok(Vec::new());
            };
            let mut size = NamespaceSize {
                namespace,
                rows,
                bytes,
                bytes_saved: saved,
            };
            change.add_to(&mut size);
            if size.rows == 0 {
                meta.remove(&name[..])?;
            } else {
                meta.insert(&name[..], &encode(size)[..])?;
            }
            changed.push(size);
        }
        Ok(changed)
    }
}

fn change_size(sizes: &mut Sizes, namespace: NamespaceId, change: SizeChange) {
    let size = sizes.entry(namespace).or_insert(NamespaceSize {
        namespace,
        rows: 0,
        bytes: 0,
        bytes_saved: 0,
    });
    change.add_to(size);
    if size.rows == 0 {
        sizes.remove(&namespace);
    }
}

/// Marks a file that has no rows yet.
pub(crate) fn mark(meta: &mut Meta<'_>) -> Result<(), FileError> {
    meta.insert(META_SIZES, &[FORMAT][..])?;
    Ok(())
}

/// Reads the records. Returns `None` if the file has no marker, or if a record cannot be decoded.
pub(crate) fn read(transaction: &ReadTransaction) -> Result<Option<Sizes>, FileError> {
    let meta = transaction.open_table(META)?;
    if meta.get(META_SIZES)?.is_none() {
        return Ok(None);
    }
    let mut sizes = BTreeMap::new();
    for entry in meta.range(PREFIX..BEYOND_PREFIX)? {
        let (name, record) = entry?;
        let id = name.value().strip_prefix(PREFIX);
        let id = id.and_then(|id| u32::from_str_radix(id, 16).ok());
        let (Some(id), Some([rows, bytes, bytes_saved])) = (id, decode(record.value())) else {
            return Ok(None);
        };
        let namespace = NamespaceId(id);
        let size = NamespaceSize {
            namespace,
            rows,
            bytes,
            bytes_saved,
        };
        sizes.insert(namespace, size);
    }
    Ok(Some(sizes))
}

/// Counts all rows, and marks the file, within a transaction. Reads the whole row table.
pub(crate) fn recount(transaction: &WriteTransaction) -> Result<Sizes, FileError> {
    let mut changes = SizeChanges::default();
    let rows = unisolated(|| transaction.open_table(ROWS))?;
    for entry in rows.iter()? {
        let (key, row) = entry?;
        changes.add(key.value(), row.value());
    }
    let mut meta = unisolated(|| transaction.open_table(META))?;
    meta.retain_in(PREFIX..BEYOND_PREFIX, |_, _| false)?;
    mark(&mut meta)?;
    let sizes = changes.record(&mut meta)?.into_iter();
    Ok(sizes.map(|size| (size.namespace, size)).collect())
}

/// Rows are far shorter than the longest signed length.
fn signed(len: usize) -> i64 {
    (len as u64).cast_signed()
}

fn name_of(prefix: &str, namespace: NamespaceId) -> String {
    format!("{prefix}{:08x}", namespace.0)
}

/// Encodes a record. It contains the bytes that compression saves only if they are not 0, so that files without
/// compressed values equal files of earlier versions.
fn encode(size: NamespaceSize) -> Vec<u8> {
    let mut record = vec![FORMAT];
    record.extend_from_slice(&size.rows.to_be_bytes());
    record.extend_from_slice(&size.bytes.to_be_bytes());
    if size.bytes_saved > 0 {
        record.extend_from_slice(&size.bytes_saved.to_be_bytes());
    }
    record
}

/// Decodes rows, bytes and saved bytes, or returns `None` if the record is not valid.
fn decode(record: &[u8]) -> Option<[u64; 3]> {
    let (&[FORMAT], rest) = record.split_first_chunk()? else {
        return None;
    };
    let (rows, rest) = rest.split_first_chunk()?;
    let (bytes, rest) = rest.split_first_chunk()?;
    let saved = match rest {
        [] => [0; 8],
        saved => saved.try_into().ok()?,
    };
    Some([*rows, *bytes, saved].map(u64::from_be_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back() {
        let size = NamespaceSize {
            namespace: NamespaceId(7),
            rows: 3,
            bytes: u64::MAX,
            bytes_saved: 0,
        };
        assert_eq!(decode(&encode(size)), Some([3, u64::MAX, 0]));
        assert_eq!(encode(size).len(), 17, "as it was before");
        let size = NamespaceSize {
            bytes_saved: 9,
            ..size
        };
        assert_eq!(decode(&encode(size)), Some([3, u64::MAX, 9]));
        for record in [&[][..], &[FORMAT], &[2; 17], &[FORMAT; 16], &[FORMAT; 18]] {
            assert_eq!(decode(record), None);
        }
    }

    #[test]
    fn names_are_within_their_bounds() {
        for id in [0, 1, u32::MAX] {
            let name = name_of(PREFIX, NamespaceId(id));
            assert!((PREFIX..BEYOND_PREFIX).contains(&&name[..]), "{name}");
        }
        assert!(!(PREFIX..BEYOND_PREFIX).contains(&META_SIZES));
        assert!(!(PREFIX..BEYOND_PREFIX).contains(&IDEMPOTENCY_PREFIX));
    }
}
