//! Restoring a backup into the shards of a new data folder. The number of shards may differ.
//!
//! Works on the files of a folder that is not in use. Rows keep their versions and expiries. Each goes to its shard by
//! the new map; rows of shards on other nodes are left to those nodes. The invariant: a stored row is exactly the row
//! that was read from the backed-up shard.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use redb::Database;
use umbo_store::{RecordsCopy, UploadStep};
use umbo_types::{LargeRef, ShardId, Timestamp, limits};

use crate::backup::{BackupEntry, EntryReader};
use crate::chunk_codec::{chunk_key, decode_chunk};
use crate::committer::large::LargeWriter;
use crate::error::{OpenError, folder_error};
use crate::file_error::{FileError, guarded};
use crate::folder_lock::FolderLock;
use crate::hand_over::plain_file;
use crate::manifest::shard_files_in;
use crate::opener::Opener;
use crate::plain_files::PlainFiles;
use crate::repair::{Places, manifest};
use crate::row_codec;
use crate::shard_file;
use crate::stored_rows::store_rows;

/// Bytes of rows and large values that are stored in one commit of a shard: some tenths of a second of work.
const COMMIT_BYTES: usize = 32 << 20;
/// The same for all shards that wait for a commit, so that hundreds of shards take no more memory.
const WAITING_BYTES: usize = 512 << 20;

/// Why a backup could not be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The folder cannot be opened.
    #[error(transparent)]
    Folder(#[from] OpenError),
    /// A shard could not store its rows.
    #[error("shard {shard}: {reason}")]
    Shard {
        /// The shard.
        shard: ShardId,
        /// Why.
        reason: String,
    },
    /// The bytes are not a backup.
    #[error("this is not a backup of a shard: {0}")]
    NoBackup(String),
}

/// Numbers of restored rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RestoredRows {
    /// Rows that were stored.
    pub rows: u64,
    /// Rows of shards that are not in the folder, and of namespaces that are not in the records.
    pub left_out: u64,
}

/// A row, with the chunks of its large value.
struct BackupRow {
    key: Bytes,
    row: Bytes,
    chunks: Vec<Bytes>,
}

/// Puts the rows of a stream together with their chunks, and checks both.
#[derive(Default)]
struct BackupReader {
    entries: EntryReader,
    /// A row whose chunks have not all been read, and its value.
    begun: Option<(BackupRow, LargeRef)>,
}

impl BackupReader {
    fn next(&mut self) -> Result<Option<BackupRow>, String> {
        loop {
            match (self.entries.next()?, &mut self.begun) {
                (None, _) => return Ok(None),
                (Some(BackupEntry::Row(key, row)), None) => {
                    let read = row_codec::decode(&key, &row).map_err(|damage| damage.to_string());
                    read?;
                    let large = row_codec::large(&row);
                    let row = BackupRow {
                        key,
                        row,
                        chunks: Vec::new(),
                    };
                    let Some(large) = large else {
                        return Ok(Some(row));
                    };
                    self.begun = Some((row, large));
                }
                (Some(BackupEntry::Chunk(key, chunk)), Some((row, large))) => {
                    let index = row.chunks.len() as u32;
                    if key[..] != chunk_key(large.upload, index)[..] {
                        return Err("a chunk does not belong to the row before it".to_owned());
                    }
                    let chunk = decode_chunk(&key, &chunk).map_err(|damage| damage.to_string())?;
                    row.chunks.push(chunk);
                    let len = row.chunks.len() as u64 * limits::LARGE_CHUNK_LEN as u64;
                    if len >= large.len {
                        return Ok(self.begun.take().map(|(row, _)| row));
                    }
                }
                (Some(BackupEntry::Row(..)), Some(_)) => {
                    return Err("a large value is cut short".to_owned());
                }
                (Some(BackupEntry::Chunk(..)), None) => {
                    return Err("a chunk has no row".to_owned());
                }
            }
        }
    }

    fn check_end(&self) -> Result<(), String> {
        if self.entries.is_empty() && self.begun.is_none() {
            return Ok(());
        }
        Err("it is cut short".to_owned())
    }
}

/// Reads the stream of a backup of a shard without restoring it.
#[derive(Default)]
pub struct BackupCheck {
    reader: BackupReader,
    rows: u64,
}

impl BackupCheck {
    /// Reads bytes of the stream.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), RestoreError> {
        self.reader.entries.push(bytes);
        while self
            .reader
            .next()
            .map_err(RestoreError::NoBackup)?
            .is_some()
        {
            self.rows += 1;
        }
        Ok(())
    }

    /// Returns the number of rows in the stream. Fails if the stream is not complete.
    pub fn end(self) -> Result<u64, RestoreError> {
        self.reader.check_end().map_err(RestoreError::NoBackup)?;
        Ok(self.rows)
    }
}

/// Rows that wait for a commit of their shard.
#[derive(Default)]
struct WaitingRows {
    rows: Vec<BackupRow>,
    bytes: usize,
}

/// A data folder that a backup is restored into.
pub struct Restore {
    _lock: FolderLock,
    places: Places,
    records: RecordsCopy,
    shards: BTreeMap<ShardId, (Database, WaitingRows)>,
    reader: BackupReader,
    now: Timestamp,
    restored: RestoredRows,
}

impl Restore {
    /// Opens the files of a folder that has shards and is not in use. `records` has the placement of datasets.
    /// Namespaces that it fences are left out.
    pub fn begin(
        folder: &Path,
        records: RecordsCopy,
        now: Timestamp,
    ) -> Result<Self, RestoreError> {
        let plain_files: Arc<dyn Opener> = Arc::new(PlainFiles);
        Self::begin_with(folder, records, now, &plain_files)
    }

    /// Like [`Restore::begin`], for a folder whose shard files are reached through `opener`, as in a simulation.
    #[cfg(feature = "simulation")]
    pub fn begin_simulated(
        folder: &Path,
        records: RecordsCopy,
        now: Timestamp,
        opener: &Arc<dyn Opener>,
    ) -> Result<Self, RestoreError> {
        Self::begin_with(folder, records, now, opener)
    }

    fn begin_with(
        folder: &Path,
        records: RecordsCopy,
        now: Timestamp,
        opener: &Arc<dyn Opener>,
    ) -> Result<Self, RestoreError> {
        let lock = FolderLock::take(folder)?;
        let manifest = manifest(folder)?;
        let mut places = Places::new(manifest.shard_map);
        places.learn(&records.datasets);
        let mut shards = BTreeMap::new();
        for (shard, _) in shard_files_in(folder).map_err(folder_error("read", folder))? {
            let file = plain_file(folder, manifest.store_id, shard, opener);
            let database = file.open().map_err(of_shard(shard))?.database;
            shards.insert(shard, (database, WaitingRows::default()));
        }
        Ok(Self {
            _lock: lock,
            places,
            records,
            shards,
            reader: BackupReader::default(),
            now,
            restored: RestoredRows::default(),
        })
    }

    /// Restores bytes of the stream of a shard's backup. The streams come one after the other.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), RestoreError> {
        let commit_bytes = COMMIT_BYTES.min(WAITING_BYTES / self.shards.len().max(1));
        self.reader.entries.push(bytes);
        while let Some(row) = self.reader.next().map_err(RestoreError::NoBackup)? {
            let owner = self.places.owner(&row.key, &self.records.fenced);
            let Some((shard, own)) =
                owner.and_then(|shard| Some((shard, self.shards.get_mut(&shard)?)))
            else {
                self.restored.left_out += 1;
                continue;
            };
            let chunks: usize = row.chunks.iter().map(Bytes::len).sum();
            own.1.bytes += row.key.len() + row.row.len() + chunks;
            own.1.rows.push(row);
            if own.1.bytes >= commit_bytes {
                self.restored.rows += store(own, self.now).map_err(of_shard(shard))?;
            }
        }
        Ok(())
    }

    /// Checks that the stream of a shard is complete.
    pub fn end_shard(&self) -> Result<(), RestoreError> {
        self.reader.check_end().map_err(RestoreError::NoBackup)
    }

    /// Stores the remaining rows, and closes the files.
    pub fn end(mut self) -> Result<RestoredRows, RestoreError> {
        for (shard, mut own) in std::mem::take(&mut self.shards) {
            self.restored.rows += store(&mut own, self.now).map_err(of_shard(shard))?;
            shard_file::close(own.0).map_err(of_shard(shard))?;
        }
        Ok(self.restored)
    }
}

fn of_shard(shard: ShardId) -> impl FnOnce(FileError) -> RestoreError {
    move |failure| RestoreError::Shard {
        shard,
        reason: failure.to_string(),
    }
}

fn store(
    (database, waiting): &mut (Database, WaitingRows),
    now: Timestamp,
) -> Result<u64, FileError> {
    let WaitingRows { rows, .. } = std::mem::take(waiting);
    let mut chunks: BTreeMap<_, _> = rows
        .iter()
        .filter_map(|row| Some((row_codec::large(&row.row)?.upload, &row.chunks)))
        .collect();
    let upload = |value: &LargeRef, large: &mut LargeWriter<'_>| {
        for (index, bytes) in (0..).zip(chunks.remove(&value.upload).into_iter().flatten()) {
            let step = UploadStep::Append {
                upload: value.upload,
                index,
                bytes: bytes.clone(),
            };
            large.step(&step, now)?;
        }
        Ok(())
    };
    let stored = rows.iter().map(|row| (&row.key[..], &row.row[..]));
    guarded(|| store_rows(database, stored, upload, now))
}
