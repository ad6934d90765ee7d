//! The sizes of the namespaces in a shard: rows, and bytes of keys and rows as stored, including large values.
//!
//! Owns their records among the metadata of the file, one a namespace, and a marker that they are kept. Every commit
//! that changes rows changes them in the same transaction, so they are exact: after a crash too, and when a commit is
//! lost and its changes are applied again. The invariant: with the marker, the records are the sums over the row table.
//! A file of a version that kept no sizes has no marker; its rows are counted once, when it is opened.

use std::collections::BTreeMap;

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

/// Rows and bytes that a transaction adds to each namespace and takes from it.
#[derive(Debug, Default)]
pub(crate) struct SizeChanges(BTreeMap<NamespaceId, SizeChange>);

#[derive(Debug, Default)]
struct SizeChange {
    rows: i64,
    bytes: i64,
    saved: i64,
}

impl SizeChanges {
    /// Counts a row that was stored under `key`.
    pub(crate) fn add(&mut self, key: &[u8], row: &[u8]) {
        self.count(key, row, 1);
    }

    /// Counts a row that was removed from under `key`.
    pub(crate) fn take(&mut self, key: &[u8], row: &[u8]) {
        self.count(key, row, -1);
    }

    fn count(&mut self, key: &[u8], row: &[u8], sign: i64) {
        if let Some(namespace) = key_codec::namespace_of(key) {
            let change = self.0.entry(namespace).or_default();
            change.rows += sign;
            let beside = row_codec::large(row).map_or(0, |large| large.len as usize);
            change.bytes += sign * signed(key.len() + row.len() + beside);
            change.saved += sign * signed(row_codec::saved_len(row));
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
        let change = self.0.get(&namespace).map_or(0, |change| change.bytes);
        Ok(bytes.saturating_add_signed(change))
    }

    /// Changes the sizes of idempotency records. A size that cannot be decoded begins anew from 0: then the bound on
    /// idempotency records is reached later.
    pub(crate) fn record_idempotency(&self, meta: &mut Meta<'_>) -> Result<(), FileError> {
        for (&namespace, change) in &self.0 {
            let name = name_of(IDEMPOTENCY_PREFIX, namespace);
            let before = meta.get(&name[..])?;
            let before = before.and_then(|record| decode(record.value()));
            let [rows, bytes, _] = before.unwrap_or_default();
            let size = NamespaceSize {
                namespace,
                rows: rows.saturating_add_signed(change.rows),
                bytes: bytes.saturating_add_signed(change.bytes),
                bytes_saved: 0,
            };
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
        if self.0.is_empty() || meta.get(META_SIZES)?.is_none() {
            return Ok(Vec::new());
        }
        let mut changed = Vec::with_capacity(self.0.len());
        for (&namespace, change) in &self.0 {
            let name = name_of(PREFIX, namespace);
            let before = meta.get(&name[..])?;
            let before = before.map_or(Some([0; 3]), |record| decode(record.value()));
            let Some([rows, bytes, saved]) = before else {
                meta.remove(META_SIZES)?;
                return Ok(Vec::new());
            };
            let size = NamespaceSize {
                namespace,
                rows: rows.saturating_add_signed(change.rows),
                bytes: bytes.saturating_add_signed(change.bytes),
                bytes_saved: saved.saturating_add_signed(change.saved),
            };
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
