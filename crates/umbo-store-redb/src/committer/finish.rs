//! The orderly end of a committer: everything is in its file, which says that it was closed.

use std::sync::Arc;

use redb::Database;

use super::Committer;
use crate::file_error::{FileError, guarded};
use crate::shard_file::{begin_write, close};
use crate::tables::{META, ShardProgress};
use crate::write_log::LogMark;

impl Committer {
    /// Takes the database, which no apply uses.
    pub(super) fn take_database(&mut self) -> Option<Database> {
        self.database.take().and_then(Arc::into_inner)
    }

    /// Writes everything to the disk, records that the shard was closed, and closes the file.
    pub(super) fn finish(mut self) {
        self.end_apply();
        if self.is_behind || !self.logged.is_empty() {
            self.logged.stop();
            self.serve(Vec::new());
        }
        let progress = ShardProgress {
            sequence: self.progress.sequence + 1,
            version_ceiling: self.versions.last(),
            believed: self.believed_time(),
            is_closed: true,
            needs_log: false,
            newest_stamp: self.datasets.stamps.newest(),
        };
        let is_needed = !self.progress.is_closed && self.logged.is_empty();
        let Some(database) = self.take_database() else {
            return;
        };
        let recorded = if is_needed {
            guarded(|| write_progress(&database, progress))
        } else {
            Ok(())
        };
        self.shard.backup.end();
        let closed = close(database);
        if let Err(failure) = recorded.and(closed) {
            tracing::warn!(
                file = %self.file.path.display(),
                reason = %failure,
                "the shard could not be closed in order; it recovers when it is opened next"
            );
        }
    }
}

fn write_progress(database: &Database, progress: ShardProgress) -> Result<(), FileError> {
    let transaction = begin_write(database)?;
    let mut meta = transaction.open_table(META)?;
    progress.write(&mut meta)?;
    LogMark::Done.write(&mut meta)?;
    drop(meta);
    Ok(transaction.commit()?)
}
