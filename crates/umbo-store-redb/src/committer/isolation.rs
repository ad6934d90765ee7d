//! Work that needs an unreadable part of the file: a committer refuses that work, and commits everything else.
//!
//! A transaction that met a failed read is aborted, never committed. The trace names the change that needed the read.
//! That change is left out, and the rest is tried again. While parts of the file are known to be unreadable, each row
//! to be changed is read first. So repeated writes to one bad row cost the other writes of their commits a read of
//! their rows, but no second attempt. A row of the log, which was acknowledged, is stranded instead of refused:
//! [`crate::stranded`]. The invariant: work is refused here only if it was not applied and a part of the file that it
//! needs cannot be read.

use umbo_store::Outcome;
use umbo_types::Timestamp;

use super::Committer;
use crate::committer::attempt::CommitInput;
use crate::committer::failed::FailedCommit;
use crate::committer::spared::LeftOut;
use crate::committer::trace::{CommitTrace, Culprit};
use crate::file_error::FileError;
use crate::work::{QueuedWork, answer_all};

/// Most attempts at a commit before it is divided in halves. Each attempt costs the time to prepare the commit.
const ATTEMPTS_MAX: usize = 8;
impl Committer {
    /// Returns the input of a commit of this work, without the rows that are left out.
    pub(super) fn commit_input<'a>(
        &'a self,
        work: &'a [QueuedWork],
        now: Timestamp,
        left_out: &'a LeftOut,
        trace: &'a CommitTrace,
    ) -> CommitInput<'a> {
        let chores = (!left_out.are_chores).then(|| self.chores(work.is_empty()));
        CommitInput {
            shard: self.file.shard(),
            work,
            overlay: self.logged.overlay(),
            log_mark: self.logged.mark(),
            fences: &self.fences,
            datasets: &self.datasets,
            runs: &self.runs,
            is_behind: self.is_behind,
            chores: chores.unwrap_or_default(),
            now,
            next_upload_due: self.next_upload_due,
            idempotency_bytes_max: self.file.idempotency_bytes_max,
            unreadable: &left_out.rows,
            may_pack: !self.file.disk.has_bad_ranges(),
            spared: &self.spared,
            trace,
        }
    }

    /// Commits work, except work that needs an unreadable part of the file, and answers all of it.
    pub(super) fn commit_readable(&mut self, mut work: Vec<QueuedWork>, now: Timestamp) {
        self.end_apply();
        let mut left_out = LeftOut::default();
        if self.file.disk.has_bad_ranges() {
            self.find_unreadable(&work, &mut left_out);
        }
        if self.spared.expire(self.file.disk.now()) {
            self.next_expiry = Some(now);
        }
        let mut last = None;
        for _ in 0..ATTEMPTS_MAX {
            let failed = match self.commit(&work, now, &left_out) {
                Ok((answers, took)) => {
                    if self.has_room {
                        self.note_success();
                    }
                    return answer_all(work, answers, Some(took));
                }
                Err(failed) => failed,
            };
            let Some(culprit) = failed.culprit.clone() else {
                return self.recover(work, failed);
            };
            if !failed.is_aborted && self.reopen().is_err() {
                return self.recover(work, failed);
            }
            if culprit == Culprit::Shared {
                return self.refuse(work, &failed);
            }
            let is_logged = culprit.row().is_some_and(|key| self.is_logged(key));
            self.leave_out(culprit, &failed.failure, &mut work, &mut left_out);
            if last.is_none() {
                self.find_unreadable(&work, &mut left_out);
            } else if is_logged {
                // A removal may need the page next to its own.
                self.leave_out_logged(&failed.failure, &mut left_out);
            }
            last = Some(failed);
        }
        let Some(failed) = last else { return };
        if work.len() < 2 {
            return self.refuse_unreadable(work, &failed);
        }
        let rest = work.split_off(work.len() / 2);
        self.commit_readable(work, now);
        self.commit_readable(rest, now);
    }

    /// Leaves the work that needed the failed read out of the next attempt.
    fn leave_out(
        &mut self,
        culprit: Culprit,
        failure: &FileError,
        work: &mut Vec<QueuedWork>,
        left_out: &mut LeftOut,
    ) {
        match culprit {
            // After packed rows, the unreadable ranges are known, so the next attempt puts row by row.
            Culprit::Shared | Culprit::Pack => {}
            Culprit::Removal(index) => {
                let error = self.shard.error(failure.clone(), Outcome::NotApplied);
                work.remove(index).refuse(error);
            }
            Culprit::Row(key) => {
                let error = self.shard.error(failure.clone(), Outcome::NotApplied);
                left_out.rows.insert(key, error);
            }
            Culprit::Purge(namespace) => {
                tracing::warn!(
                    file = %self.file.path.display(),
                    reason = %failure,
                    %namespace,
                    "some rows of a removed namespace are not reclaimed"
                );
                self.spared.spare_namespace(namespace, self.file.disk.now());
                left_out.are_chores = true;
            }
            Culprit::Sweep(entry) => {
                tracing::warn!(
                    file = %self.file.path.display(),
                    reason = %failure,
                    "an expired row is not reclaimed"
                );
                self.spared.spare_entry(entry, self.file.disk.now());
                left_out.are_chores = true;
            }
        }
    }

    /// Finds the rows that the work and the log change and that cannot be read.
    fn find_unreadable(&self, work: &[QueuedWork], left_out: &mut LeftOut) {
        let writes = work.iter().filter_map(QueuedWork::as_write);
        let keys = writes.flat_map(|write| write.ops.iter().map(|op| op.key.clone()));
        let snapshot = self.shard.snapshot();
        for (key, failure) in snapshot.unreadable(keys.chain(snapshot.changed_keys())) {
            let error = self.shard.error(failure, Outcome::NotApplied);
            left_out.rows.insert(key, error);
        }
    }

    fn is_logged(&self, key: &[u8]) -> bool {
        self.shard.snapshot().is_changed(key)
    }

    /// Strands every row that the file does not have in its place.
    fn leave_out_logged(&self, failure: &FileError, left_out: &mut LeftOut) {
        let error = self.shard.error(failure.clone(), Outcome::NotApplied);
        for key in self.shard.snapshot().changed_keys() {
            left_out.rows.insert(key, error.clone());
        }
    }

    fn refuse_unreadable(&self, work: Vec<QueuedWork>, failed: &FailedCommit) {
        for work in work {
            work.refuse(
                self.shard
                    .error(failed.failure.clone(), Outcome::NotApplied),
            );
        }
    }
}
