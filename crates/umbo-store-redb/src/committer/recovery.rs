//! Recovery of a committer after a failed commit: it finds out which commit is on the disk, and continues.
//!
//! After any I/O error redb refuses everything until the file is opened again. This takes about a millisecond with
//! `quick_repair`. The sequence number of the last commit in the file then tells whether the failed commit was applied.
//! Opening has written and synced the header with that number, so a commit that is found applied is durable. Readers
//! stay on the old snapshot until then.

use std::sync::Arc;

use umbo_store::{Outcome, ShardState};

use super::Committer;
use crate::committer::failed::FailedCommit;
use crate::committer::limits::IDLE_WAKE;
use crate::file_error::FileError;
use crate::memtable::Frozen;
use crate::shard_file::{OpenedFile, close};
use crate::snapshot::ShardSnapshot;
use crate::tables::ShardProgress;
use crate::work::{QueuedWork, answer_all};

impl Committer {
    /// Makes sure that the database is open and that there is room, so that hopeless commits do not cost the
    /// readers their cache.
    pub(super) fn make_ready(&mut self, work: &[QueuedWork]) -> Result<(), FileError> {
        self.make_room(work)?;
        if self.database.is_none() {
            self.reopen()?;
        }
        Ok(())
    }

    /// Finds out whether a failed commit was applied, and answers its work.
    pub(super) fn recover(&mut self, work: Vec<QueuedWork>, failed: FailedCommit) {
        tracing::error!(
            file = %self.file.path.display(),
            reason = %failed.failure,
            "a commit failed"
        );
        let is_for_want_of_room = matches!(failed.failure, FileError::Full(_))
            && !work.iter().all(QueuedWork::is_reserved);
        if is_for_want_of_room {
            self.has_freed = false;
        } else {
            self.hold_chores();
        }
        let snapshot = match self.open_again() {
            Ok(snapshot) => snapshot,
            Err(reopening) => {
                tracing::error!(
                    file = %self.file.path.display(),
                    reason = %reopening,
                    "the shard could not be opened again"
                );
                return self.refuse(work, &failed);
            }
        };
        // A commit that is in the file now is durable: for its callers it has succeeded.
        let is_applied = failed.begun == Some(self.durable_sequence);
        if is_applied {
            self.note_success();
        }
        self.show(&snapshot);
        if !is_applied && is_for_want_of_room {
            return self.serve_without_room(work, failed.failure);
        }
        if !is_applied {
            return self.refuse(work, &failed);
        }
        answer_all(work, failed.answers, None);
    }

    /// Publishes the file that was opened again.
    fn show(&self, snapshot: &ShardSnapshot) {
        let snapshot = snapshot.below(self.logged.overlay());
        self.shard.publish(snapshot, None);
        self.shard.note_reopened();
    }

    /// Answers work that was not applied, or whose outcome is unknown.
    pub(super) fn refuse(&mut self, work: Vec<QueuedWork>, failed: &FailedCommit) {
        let outcome = match (failed.begun, &self.database) {
            (Some(_), None) => Outcome::Unknown,
            _ if self.logged.is_in_doubt() => Outcome::Unknown,
            _ => Outcome::NotApplied,
        };
        let reason = self.file.blame(&failed.failure);
        self.trouble = Some(failed.failure.clone());
        self.shard.set_state(match self.database {
            Some(_) => ShardState::ReadOnly(reason),
            None => ShardState::Unavailable(reason),
        });
        for work in work {
            work.refuse(self.shard.error(failed.failure.clone(), outcome));
        }
    }

    /// Records that the shard writes again.
    pub(super) fn note_success(&mut self) {
        if self.trouble.take().is_some() {
            self.shard.set_state(ShardState::Available);
            tracing::info!(file = %self.file.path.display(), "the shard writes again");
        }
    }

    /// Opens the file again because a read has failed, at most once per [`IDLE_WAKE`].
    pub(super) fn reopen_for_readers(&mut self) {
        let now = self.disk_now();
        let is_early = self
            .reopened_at
            .is_some_and(|at| now.saturating_duration_since(at) < IDLE_WAKE);
        if !is_early && let Err(failure) = self.reopen() {
            self.refuse(Vec::new(), &FailedCommit::before_commit(failure));
        }
        self.shard.note_reopened();
    }

    /// Closes the database, opens it again and publishes it.
    pub(super) fn reopen(&mut self) -> Result<(), FileError> {
        let snapshot = self.open_again()?;
        self.show(&snapshot);
        Ok(())
    }

    /// Closes the database and opens it again. Returns its state, without the rows of the memtables.
    fn open_again(&mut self) -> Result<ShardSnapshot, FileError> {
        self.reopened_at = Some(self.disk_now());
        // Its rows stay in memory.
        drop(self.take_applied());
        // An open backup would read the file while others write it.
        self.shard.backup.end();
        if let Some(database) = self.take_database()
            && let Err(failure) = close(database)
        {
            // As expected after a failed commit; the opening below recovers the file.
            tracing::warn!(
                file = %self.file.path.display(),
                reason = %failure,
                "the shard could not be closed in order before it is opened again"
            );
        }
        let OpenedFile {
            database,
            mut snapshot,
            progress,
            fences,
            groups,
            runs,
            has_written,
            next_expiry,
            next_upload_due,
            sizes,
            ..
        } = self.file.open()?;
        self.shard.note_fenced(Arc::clone(fences.fenced()));
        self.fences = fences;
        self.is_behind = self.fences.raise(&self.file.kept.fenced());
        // Groups and runs from after the file's last commit are recorded again.
        self.is_behind |= groups != self.datasets.groups || runs != self.runs;
        self.datasets.has_written |= has_written;
        snapshot.fence(&self.fences);
        self.database = Some(Arc::new(database));
        self.durable_sequence = progress.sequence;
        if progress.sequence > self.progress.sequence {
            self.logged.note_commit(progress.sequence);
        }
        // An apply may have failed after its commit.
        let is_applied = |frozen: &mut Frozen| frozen.last <= progress.sequence;
        drop(self.logged.frozen.take_if(is_applied));
        *self.shard.sizes() = sizes;
        let logged = self.logged.all_sizes();
        self.shard.change_sizes(|sizes| logged.add_to(sizes));
        // The numbers of groups in the log are not used again.
        self.progress = ShardProgress {
            sequence: progress.sequence.max(self.progress.sequence),
            ..progress
        };
        self.durable_ceiling = progress.version_ceiling;
        self.next_expiry = next_expiry;
        self.next_upload_due = next_upload_due;
        Ok(snapshot)
    }
}
