//! The log of a file that was not closed: its rows get into the file before anything else is done with it.

use std::sync::Arc;

use crate::committer::apply::Apply;
use crate::file_error::{FileError, guarded};
use crate::memtable::Overlay;
use crate::shard_file::{OpenedFile, ShardFile};
use crate::tables::ShardProgress;
use crate::write_log::{LostGroups, read_records};

impl ShardFile {
    /// Opens the file, and commits the rows of the log that it needs to be complete. It needs no log then.
    pub(crate) fn recovered(&self) -> Result<OpenedFile, FileError> {
        self.recovered_without(LostGroups::Refuse)
    }

    /// Like [`Self::recovered`], and drops acknowledged groups that cannot be read if so asked.
    pub(crate) fn recovered_without(
        &self,
        lost_groups: LostGroups,
    ) -> Result<OpenedFile, FileError> {
        let opened = self.open()?;
        let Some(log) = opened.needed_log else {
            return Ok(opened);
        };
        let OpenedFile {
            database,
            progress,
            fences,
            groups,
            was_repaired,
            ..
        } = opened;
        let after = (log, progress.sequence);
        let records = read_records(&self.opener, &self.path, after, lost_groups)?;
        let last = records.last().map_or(progress, |record| record.progress);
        // The file has every group then, and one more commit.
        let last = ShardProgress {
            sequence: last.sequence + 1,
            needs_log: false,
            ..last
        };
        let count = records.len();
        let overlay = Overlay::of(records.into_iter().flat_map(|record| {
            let changes = record.changes.into_iter();
            changes.map(|change| (change.key, change.row))
        }));
        let database = Arc::new(database);
        let (rows, state) = ((overlay, last), (fences, groups));
        Apply::at_opening(self.shard(), &database, &self.disk, rows, state).run_alone()?;
        let file = self.path.display();
        tracing::info!(%file, groups = count, "a shard has got the rows of its log");
        let database = Arc::into_inner(database);
        let database = database.ok_or_else(|| FileError::Io("its log is applied".to_owned()))?;
        guarded(|| self.opened(database, was_repaired))
    }
}
