//! What a committer does when a commit fails: find out what is on the disk, and go on.
//!
//! After any I/O error redb refuses everything until the file is opened again, which `quick_repair`
//! makes a matter of a millisecond. The number of the last commit in the file then says whether
//! the failed one was applied; opening has written and synced the header that says so, so what is
//! applied then is durable. Readers stay on the old snapshot until there is a new one.

use std::fs::File;
use std::io::{self, Write as _};
use std::time::Instant;

use umbo_store::{Outcome, ShardState};

use super::{Committer, Failed, IDLE_WAKE, Unflushed};
use crate::failure::{Failure, guarded};
use crate::shard_file::OpenedFile;
use crate::work::Work;

/// Least room on a full disk for another commit to be tried.
const ROOM_MIN: usize = 1 << 20;

impl Committer {
    /// Makes sure that there is a database and, after the disk was full, that there is room, so
    /// that hopeless commits do not cost the readers their cache.
    pub(super) fn make_ready(&mut self, work: &[Work]) -> Result<(), Failure> {
        if let Some(Failure::Full(_)) = self.trouble {
            let bytes: usize = work.iter().map(|work| work.size().bytes).sum();
            self.probe_room(ROOM_MIN + 4 * bytes)?;
        }
        if self.database.is_none() {
            self.reopen()?;
        }
        Ok(())
    }

    /// Finds out what became of a failed commit, and answers.
    pub(super) fn recover(&mut self, work: Vec<Work>, failed: Failed) {
        tracing::error!(
            file = %self.file.path.display(),
            reason = %failed.failure,
            "a commit failed"
        );
        let is_kept = failed.begun == Some(self.unflushed.sequence);
        if let Err(reopening) = self.reopen() {
            tracing::error!(
                file = %self.file.path.display(),
                reason = %reopening,
                "the shard could not be opened again"
            );
            return self.refuse(work, &failed);
        }
        // A commit that is in the file now is durable, one whose changes will be made again is as
        // good as done: only the way there was rough.
        let is_applied = is_kept || failed.begun == Some(self.progress.sequence);
        if self.unflushed.is_lost {
            self.replay();
        }
        if !is_applied {
            return self.refuse(work, &failed);
        }
        self.note_success();
        for (work, answer) in work.into_iter().zip(failed.answers) {
            work.answer(answer);
        }
    }

    /// Makes asynchronous changes visible again. Where that fails they stay waiting.
    fn replay(&mut self) {
        if let Err(failed) = self.commit(&[], self.clock.wall(), false) {
            tracing::error!(
                file = %self.file.path.display(),
                reason = %failed.failure,
                "asynchronous writes are not visible until the shard writes again"
            );
            if let Err(failure) = self.reopen() {
                self.trouble = Some(failure);
            }
        }
    }

    /// Answers work that was not applied, or of which that is not known.
    pub(super) fn refuse(&mut self, work: Vec<Work>, failed: &Failed) {
        let outcome = match (failed.begun, &self.database) {
            (Some(_), None) => Outcome::Unknown,
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

    /// Notes that the shard writes again.
    pub(super) fn note_success(&mut self) {
        if self.trouble.take().is_some() {
            self.shard.set_state(ShardState::Available);
            tracing::info!(file = %self.file.path.display(), "the shard writes again");
        }
    }

    /// Opens the file again because a read has failed, but not over and over.
    pub(super) fn reopen_for_readers(&mut self) {
        let is_early = self.reopened_at.is_some_and(|at| at.elapsed() < IDLE_WAKE);
        if !is_early && let Err(failure) = self.reopen() {
            self.refuse(Vec::new(), &Failed::before_commit(failure));
        }
        self.shard.note_reopened();
    }

    /// Closes the database and opens it again.
    fn reopen(&mut self) -> Result<(), Failure> {
        self.reopened_at = Some(Instant::now());
        let database = self.database.take();
        guarded(|| {
            drop(database);
            Ok(())
        })?;
        let OpenedFile {
            database,
            snapshot,
            progress,
            next_expiry,
            ..
        } = self.file.open()?;
        self.shard.publish(snapshot);
        self.shard.note_reopened();
        self.database = Some(database);
        // A newer durable commit holds the asynchronous ones before it; otherwise they are gone.
        if progress.sequence > self.durable_sequence {
            self.unflushed = Unflushed::default();
        }
        self.unflushed.note_loss();
        self.durable_sequence = progress.sequence;
        self.progress = progress;
        self.durable_ceiling = progress.version_ceiling;
        self.next_expiry = next_expiry;
        Ok(())
    }

    /// Tries whether the disk takes this many bytes.
    fn probe_room(&self, bytes: usize) -> Result<(), Failure> {
        let path = self.file.path.with_extension("probe");
        let probe = || -> io::Result<()> {
            let mut file = File::create(&path)?;
            let block = vec![0x5A; 64 << 10];
            for _ in 0..bytes.div_ceil(block.len()) {
                file.write_all(&block)?;
            }
            file.sync_data()
        };
        let probed = probe();
        // What is left of a probe is in the way of nothing but the next one, which replaces it.
        let _ = std::fs::remove_file(&path);
        probed.map_err(Failure::from)
    }
}
