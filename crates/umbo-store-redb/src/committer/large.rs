//! Large values within a transaction: chunks, and the number of rows that refer to each upload.
//!
//! Owns the tables of uploads. A commit opens them when it needs them: a shard without large values has no such tables.
//! The invariants: in every committed state, the reference count of an upload equals the number of rows that refer to
//! it. An upload without references has exactly one entry among the due ones, `due (u64, big endian) | upload id`. Once
//! a chunk of an upload has been reclaimed, the upload is never reported as whole.
//!
//! Steps are taken before the rows of their commit are decided. So a later step of the commit does not change an upload
//! that a row of the commit asks for: a chunk is refused, and giving up waits until the references are settled.

use std::collections::{BTreeMap, BTreeSet};

use redb::{ReadableTable, Table, TableDefinition, WriteTransaction};
use umbo_store::{READ_GRACE, UPLOAD_IDLE, UploadState, UploadStep};
use umbo_types::{LargeRef, Timestamp, UploadId};

use crate::bad_read::unisolated;
use crate::chunk_codec::{CHUNKS, chunk_key, encode_chunk};
use crate::file_error::FileError;
use crate::row_codec;
use crate::tables::{expiry_entry, split_expiry_entry};

/// Upload id → its record. This table and the other two are absent in files that never had a large value.
const UPLOADS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("uploads");
/// Instant and id of each upload without references, in order.
const UPLOADS_DUE: TableDefinition<'static, &[u8], ()> = TableDefinition::new("uploads_due");
/// Chunks that a commit reclaims: 4 MiB, which takes a few milliseconds.
const SWEPT_CHUNKS_MAX: usize = 16;
const FORMAT: u8 = 1;

/// Changes of the reference counts of uploads by the rows that a transaction stores and removes.
#[derive(Debug, Default)]
pub(crate) struct References(BTreeMap<UploadId, i64>);

impl References {
    /// Counts an encoded row that was stored.
    pub(crate) fn add(&mut self, row: &[u8]) {
        self.count(row, 1);
    }

    /// Counts an encoded row that was removed or replaced.
    pub(crate) fn take(&mut self, row: &[u8]) {
        self.count(row, -1);
    }

    fn count(&mut self, row: &[u8], sign: i64) {
        if let Some(large) = row_codec::large(row) {
            *self.0.entry(large.upload).or_default() += sign;
        }
    }
}

/// The stored record of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StoredUpload {
    state: UploadState,
    /// When the upload is reclaimed, or `None` while rows refer to it.
    due: Option<Timestamp>,
}

impl StoredUpload {
    fn encode(self) -> Vec<u8> {
        let mut bytes = vec![FORMAT, u8::from(self.due.is_some())];
        bytes.extend_from_slice(&self.state.len.to_be_bytes());
        bytes.extend_from_slice(&self.state.references.to_be_bytes());
        bytes.extend_from_slice(&self.due.unwrap_or_default().0.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[FORMAT, has_due], rest) = bytes.split_first_chunk()? else {
            return None;
        };
        let (len, rest) = rest.split_first_chunk()?;
        let (references, rest) = rest.split_first_chunk()?;
        let due = Timestamp(u64::from_be_bytes(rest.try_into().ok()?));
        Some(Self {
            state: UploadState {
                len: u64::from_be_bytes(*len),
                references: u32::from_be_bytes(*references),
            },
            due: (has_due > 0).then_some(due),
        })
    }
}

/// The uploads of a shard within one transaction.
pub(crate) struct LargeWriter<'txn> {
    transaction: &'txn WriteTransaction,
    tables: Option<LargeTables<'txn>>,
    /// No upload is due before this instant; `None` if no upload will be due.
    next_due: Option<Timestamp>,
    /// Uploads that rows of the transaction ask for; a later step decides whether they get them.
    asked: BTreeSet<UploadId>,
    /// Uploads of `asked` that were given up after that.
    given_up: BTreeSet<UploadId>,
}

struct LargeTables<'txn> {
    uploads: Table<'txn, &'static [u8], &'static [u8]>,
    due: Table<'txn, &'static [u8], ()>,
    chunks: Table<'txn, &'static [u8], &'static [u8]>,
}

impl<'txn> LargeWriter<'txn> {
    /// Begins without opening a table.
    pub(crate) const fn new(
        transaction: &'txn WriteTransaction,
        next_due: Option<Timestamp>,
    ) -> Self {
        Self {
            transaction,
            tables: None,
            next_due,
            asked: BTreeSet::new(),
            given_up: BTreeSet::new(),
        }
    }

    fn tables(&mut self) -> Result<&mut LargeTables<'txn>, FileError> {
        let tables = match self.tables.take() {
            Some(tables) => tables,
            None => unisolated(|| {
                Ok::<_, redb::TableError>(LargeTables {
                    uploads: self.transaction.open_table(UPLOADS)?,
                    due: self.transaction.open_table(UPLOADS_DUE)?,
                    chunks: self.transaction.open_table(CHUNKS)?,
                })
            })?,
        };
        Ok(self.tables.insert(tables))
    }

    /// Returns whether a row may refer to an upload by this reference.
    pub(crate) fn is_whole(&mut self, large: &LargeRef) -> Result<bool, FileError> {
        let record = self.tables()?.record(large.upload)?;
        let is_whole = record.is_some_and(|record| record.state.is_whole(large));
        if is_whole {
            self.asked.insert(large.upload);
        }
        Ok(is_whole)
    }

    /// Takes a step of an upload that was sent to the shard. The shard may have given the upload up meanwhile.
    pub(crate) fn sent_step(
        &mut self,
        step: &UploadStep,
        now: Timestamp,
    ) -> Result<bool, FileError> {
        if let UploadStep::Append { upload, index, .. } = step
            && *index > 0
            && umbo_types::buggify!("upload-given-up")
        {
            // As after a long time without a chunk.
            self.tables()?.give_up(*upload, now)?;
            return Ok(false);
        }
        self.step(step, now)
    }

    /// Takes a step of an upload. Returns whether this was possible.
    pub(crate) fn step(&mut self, step: &UploadStep, now: Timestamp) -> Result<bool, FileError> {
        let is_asked = self.asked.contains(step.upload());
        match step {
            UploadStep::Append { .. } if is_asked => return Ok(false),
            UploadStep::Append {
                upload,
                index,
                bytes,
            } => {
                let tables = self.tables()?;
                let old = tables.record(*upload)?;
                let known = old.map(|record| record.state);
                let Some(state) = UploadState::append(known, *index, bytes.len()) else {
                    return Ok(false);
                };
                let key = chunk_key(*upload, *index);
                tables
                    .chunks
                    .insert(&key[..], &encode_chunk(&key, bytes)[..])?;
                let due = Some(now.saturating_add(UPLOAD_IDLE));
                tables.replace(*upload, old, StoredUpload { state, due })?;
            }
            UploadStep::Abandon(upload) if is_asked => {
                self.given_up.insert(*upload);
            }
            UploadStep::Abandon(upload) => self.tables()?.give_up(*upload, now)?,
        }
        Ok(true)
    }

    /// Changes the reference counts of uploads by the rows that were stored and removed since the last call. An upload
    /// without remaining references is kept for reads that have begun.
    pub(crate) fn settle(
        &mut self,
        references: &References,
        now: Timestamp,
    ) -> Result<(), FileError> {
        for (&upload, &change) in references.0.iter().filter(|(_, change)| **change != 0) {
            let tables = self.tables()?;
            let Some(old) = tables.record(upload)? else {
                // Only damage can remove the record of an upload that a row refers to.
                tracing::error!(%upload, "a row refers to a large value that is missing");
                continue;
            };
            let references = i64::from(old.state.references).saturating_add(change);
            let references = u32::try_from(references).unwrap_or(0);
            let due = (references == 0).then(|| now.saturating_add(READ_GRACE));
            let state = UploadState {
                references,
                ..old.state
            };
            tables.replace(upload, Some(old), StoredUpload { state, due })?;
        }
        for upload in std::mem::take(&mut self.given_up) {
            self.tables()?.give_up(upload, now)?;
        }
        Ok(())
    }

    /// Reclaims a bounded number of chunks of uploads that are due. Without an instant, reclaims nothing. Returns when
    /// the next upload is due.
    pub(crate) fn sweep(
        &mut self,
        until: Option<Timestamp>,
    ) -> Result<Option<Timestamp>, FileError> {
        if let Some(until) = until
            && (self.tables.is_some() || self.next_due.is_some_and(|due| due <= until))
        {
            let tables = self.tables()?;
            let mut room = SWEPT_CHUNKS_MAX;
            while room > 0 && tables.sweep_first(until, &mut room)? {}
        }
        match &self.tables {
            Some(tables) => next_due(&tables.due),
            None => Ok(self.next_due),
        }
    }
}

/// Returns the record of an upload that is reclaimed at once and is never reported as whole.
const fn spent(now: Timestamp) -> StoredUpload {
    StoredUpload {
        state: UploadState {
            len: 0,
            references: 0,
        },
        due: Some(now),
    }
}

/// Returns when the first upload is due. An invalid entry is due at once, so that the sweeper removes it.
fn next_due(due: &impl ReadableTable<&'static [u8], ()>) -> Result<Option<Timestamp>, FileError> {
    let first = due.first()?;
    Ok(
        first
            .map(|(entry, _)| split_expiry_entry(entry.value()).map_or(Timestamp(0), |(at, _)| at)),
    )
}

/// Returns when the first upload of a committed state is due.
pub(crate) fn first_due(
    transaction: &redb::ReadTransaction,
) -> Result<Option<Timestamp>, FileError> {
    match transaction.open_table(UPLOADS_DUE) {
        Ok(due) => next_due(&due),
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl LargeTables<'_> {
    fn record(&self, upload: UploadId) -> Result<Option<StoredUpload>, FileError> {
        let record = self.uploads.get(&upload.0[..])?;
        record
            .map(|record| {
                StoredUpload::decode(record.value())
                    .ok_or_else(|| FileError::Damaged(format!("the record of upload {upload}")))
            })
            .transpose()
    }

    /// Reclaims an upload soon unless rows refer to it.
    fn give_up(&mut self, upload: UploadId, now: Timestamp) -> Result<(), FileError> {
        match self.record(upload)? {
            Some(old) if old.state.references == 0 => self.replace(upload, Some(old), spent(now)),
            _ => Ok(()),
        }
    }

    fn replace(
        &mut self,
        upload: UploadId,
        old: Option<StoredUpload>,
        new: StoredUpload,
    ) -> Result<(), FileError> {
        self.uploads.insert(&upload.0[..], &new.encode()[..])?;
        let old_due = old.and_then(|old| old.due);
        if old_due == new.due {
            return Ok(());
        }
        if let Some(at) = old_due {
            self.due.remove(&expiry_entry(at, &upload.0)[..])?;
        }
        if let Some(at) = new.due {
            self.due.insert(&expiry_entry(at, &upload.0)[..], ())?;
        }
        Ok(())
    }

    /// Reclaims chunks of the first upload that is due. Returns whether an upload was due.
    fn sweep_first(&mut self, until: Timestamp, room: &mut usize) -> Result<bool, FileError> {
        let entry = self.due.first()?.map(|(entry, _)| entry.value().to_vec());
        let Some(entry) = entry else {
            return Ok(false);
        };
        let split = split_expiry_entry(&entry);
        if split.is_some_and(|(at, _)| at > until) {
            return Ok(false);
        }
        let upload = split.and_then(|(_, upload)| upload.try_into().ok());
        let Some(upload) = upload.map(UploadId) else {
            self.due.remove(&entry[..])?;
            return Ok(true);
        };
        let bounds = (chunk_key(upload, 0), chunk_key(upload, u32::MAX));
        let keys: Vec<Vec<u8>> = self
            .chunks
            .range::<&[u8]>(&bounds.0[..]..&bounds.1[..])?
            .take(*room)
            .map(|chunk| Ok(chunk?.0.value().to_vec()))
            .collect::<Result<_, FileError>>()?;
        for key in &keys {
            self.chunks.remove(&key[..])?;
        }
        let is_done = keys.len() < *room;
        *room -= keys.len();
        if is_done {
            self.uploads.remove(&upload.0[..])?;
            self.due.remove(&entry[..])?;
        } else {
            let (at, _) = split.unwrap_or_default();
            self.uploads
                .insert(&upload.0[..], &spent(at).encode()[..])?;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_hostile_ones_are_none() {
        for due in [None, Some(Timestamp(9))] {
            let state = UploadState {
                len: 7,
                references: 2,
            };
            let record = StoredUpload { state, due };
            let bytes = record.encode();
            assert_eq!(StoredUpload::decode(&bytes), Some(record));
            for len in 0..bytes.len() {
                assert_eq!(StoredUpload::decode(&bytes[..len]), None);
            }
        }
    }
}
