//! When a memtable is applied, and what a committer does with the result.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Committer;
use crate::committer::apply::{Applied, Apply, RunningApply};
use crate::committer::failed::FailedCommit;
use crate::committer::limits::FLUSH_AFTER;
use crate::committer::logged::Logged;
use crate::memtable::Overlay;
use crate::tables::ShardProgress;
use crate::write_log::{LogMark, WriteLog};

impl Committer {
    /// Takes the result of an apply that has ended, and starts the next apply if it is due.
    pub(super) fn tend_log(&mut self) {
        let is_finished = |apply: &RunningApply| apply.is_finished();
        if self.logged.applying.as_ref().is_some_and(is_finished) {
            self.end_apply();
        }
        let now = self.disk_now();
        if Logged::is_due(self.logged.unsynced_since, FLUSH_AFTER, now)
            && let Err(failure) = self.sync_log()
        {
            self.give_up_log(&failure);
        }
        let is_due = Logged::is_due(self.logged.since, self.logged.apply_after, now);
        // Rows whose log has failed are not left to memory. Rows that have expired or are behind a fence are reclaimed
        // while the log takes groups.
        let is_early = self.logged.log.is_none() || (self.is_chore_due() && !self.is_behind);
        if is_due || is_early || self.logged.is_large() {
            self.begin_apply();
        }
        self.shard.backlog.note(self.logged.row_held());
    }

    /// Freezes the memtable and starts to apply it, unless another one is being applied.
    pub(super) fn begin_apply(&mut self) {
        let Some(database) = self.database.as_ref().map(Arc::clone) else {
            return;
        };
        let is_possible = self.logged.is_enabled && self.trouble.is_none();
        if !is_possible || self.logged.frozen.is_some() || self.logged.rows == 0 {
            return;
        }
        // A record in the other segment may say that these are on the disk.
        let is_synced = self.logged.log.as_ref().is_none_or(WriteLog::is_synced);
        if !is_synced && let Err(failure) = self.sync_log() {
            self.give_up_log(&failure);
        }
        let frozen = self.logged.renew();
        // Without a log the memtables get no further row.
        let log = self.logged.log.as_ref();
        let log_mark = log.map_or(LogMark::Done, |_| LogMark::Unchanged);
        let apply = Apply {
            shard: self.file.shard(),
            database,
            disk: Arc::clone(&self.file.disk),
            overlay: Overlay::new(vec![frozen.table()]),
            progress: ShardProgress {
                needs_log: log_mark.needs_log(true),
                ..self.progress
            },
            log_mark,
            fences: self.fences.clone(),
            datasets: self.datasets.without_stamps(),
            spared: self.spared.clone(),
            chores: self.chores(true),
            now: self.clock.wall(),
            next_upload_due: self.next_upload_due,
            may_pack: !self.file.disk.has_bad_ranges(),
            unreadable: BTreeMap::new(),
        };
        self.logged.frozen = Some(frozen);
        let snapshot = self.shard.snapshot().below(self.logged.overlay());
        self.shard.publish(snapshot, Some(&[]));
        self.file.disk.reserve.set_open(false);
        match apply.start(self.file.opener.runner(), &self.shard) {
            Ok(apply) => self.logged.applying = Some(apply),
            Err(failure) => self.recover(Vec::new(), FailedCommit::before_commit(failure)),
        }
    }

    /// Waits for the apply under way, if there is one, and takes its result.
    pub(super) fn end_apply(&mut self) {
        if let Some(failed) = self.take_applied() {
            if !failed.is_aborted || failed.culprit.is_none() {
                return self.recover(Vec::new(), failed);
            }
            // The rows are committed with the next work then.
            tracing::warn!(
                file = %self.file.path.display(),
                reason = %failed.failure,
                "acknowledged rows whose place in the file cannot be read are kept apart until it can be"
            );
        }
    }

    /// Like [`Self::end_apply`], but returns its failure.
    pub(super) fn take_applied(&mut self) -> Option<FailedCommit> {
        let Applied {
            progress,
            chores,
            now,
            outcome,
        } = self.logged.applying.take()?.finish();
        self.file.disk.reserve.set_open(true);
        let (mut changes, mut snapshot) = match outcome {
            Ok(applied) => applied,
            Err(failed) => return Some(failed),
        };
        self.durable_sequence = progress.sequence;
        changes.applied.extend(self.logged.frozen.take());
        if !progress.needs_log {
            self.logged.needed = None;
        }
        snapshot.fence(&self.fences);
        let snapshot = snapshot.below(self.logged.overlay());
        self.shard.publish(snapshot, Some(&changes.changed));
        // The groups that have replaced a reclaimed row meanwhile have counted it as taken, as the file has.
        let logged = &mut self.logged;
        for (key, size) in &changes.swept.sizes {
            if logged.active.has(key, logged.last) {
                logged.sizes.count(key, *size);
            }
        }
        self.note_changes(&[], changes, (chores, now));
        None
    }
}
