//! Storing encoded rows in files that are not in use, for a repair and a restore.
//!
//! The invariants are the same as in the committer. Each row with an expiry is in the expiry index. The sizes are the
//! sums over the rows. The reference count of an upload is the number of rows that refer to it. No version up to the
//! newest row is given again.

use redb::{Database, ReadableTable as _};
use umbo_types::{LargeRef, Timestamp, Version};

use crate::committer::large::{LargeWriter, References};
use crate::file_error::FileError;
use crate::row_codec::{self, RowHead};
use crate::shard_file::begin_write;
use crate::sizes::SizeChanges;
use crate::tables::{EXPIRY, META, ROWS, ShardProgress, UNKNOWN_STAMP, expiry_entry};

/// Stores rows by key, except rows that are already stored in the same or a newer version. Of two rows of one key it
/// stores the newer one. `upload` adds the chunks of a large value that is not stored yet. Returns how many rows were
/// stored.
pub(crate) fn store_rows<'r>(
    target: &Database,
    rows: impl IntoIterator<Item = (&'r [u8], &'r [u8])>,
    mut upload: impl FnMut(&LargeRef, &mut LargeWriter<'_>) -> Result<(), FileError>,
    now: Timestamp,
) -> Result<u64, FileError> {
    let mut change = BesideRows::default();
    let mut count = 0;
    let transaction = begin_write(target)?;
    {
        let mut stored = transaction.open_table(ROWS)?;
        let mut expiry = transaction.open_table(EXPIRY)?;
        let mut large = LargeWriter::new(&transaction, None);
        for (key, row) in rows {
            let head = head_of(row)?;
            let old = stored.get(key)?.map(|old| old.value().to_vec());
            if let Some(old) = &old {
                let old_head = head_of(old)?;
                if old_head.version >= head.version {
                    continue;
                }
                change.take(key, old);
                if let Some(at) = old_head.expires_at {
                    expiry.remove(&expiry_entry(at, key)[..])?;
                }
            }
            if let Some(value) = row_codec::large(row) {
                if !large.is_whole(&value)? {
                    upload(&value, &mut large)?;
                }
                if !large.is_whole(&value)? {
                    let upload = value.upload;
                    return Err(FileError::Damaged(format!(
                        "large value {upload} is incomplete"
                    )));
                }
            }
            stored.insert(key, row)?;
            if let Some(at) = head.expires_at {
                expiry.insert(&expiry_entry(at, key)[..], ())?;
            }
            change.add(key, row);
            change.newest = change.newest.max(head.version);
            count += 1;
        }
        large.settle(&change.references, now)?;
        change.record(&transaction)?;
    }
    transaction.commit()?;
    Ok(count)
}

pub(crate) fn head_of(row: &[u8]) -> Result<RowHead, FileError> {
    row_codec::decode_head(row).map_err(|damage| FileError::Damaged(damage.to_string()))
}

/// Changes of a transaction in addition to the rows.
#[derive(Default)]
pub(crate) struct BesideRows {
    sizes: SizeChanges,
    pub(crate) references: References,
    newest: Version,
}

impl BesideRows {
    /// Counts a row that was stored.
    pub(crate) fn add(&mut self, key: &[u8], row: &[u8]) {
        self.sizes.add(key, row);
        self.references.add(row);
    }

    /// Counts a row that was removed or replaced.
    pub(crate) fn take(&mut self, key: &[u8], row: &[u8]) {
        self.sizes.take(key, row);
        self.references.take(row);
    }

    /// Records the sizes, and that no version up to the newest one is given again.
    pub(crate) fn record(&self, transaction: &redb::WriteTransaction) -> Result<(), FileError> {
        let mut meta = transaction.open_table(META)?;
        self.sizes.record(&mut meta)?;
        let mut progress = ShardProgress::read(&meta)?;
        progress.version_ceiling = progress.version_ceiling.max(self.newest);
        progress.sequence += 1;
        progress.newest_stamp = UNKNOWN_STAMP;
        progress.write(&mut meta)?;
        Ok(())
    }
}
