//! What a committer does with work that needs an unreadable part of the file: it refuses that work, and
//! commits everything else.
//!
//! A transaction that met a failed read is aborted, never committed. The trace tells which change needed the
//! read; that change is left out, and the rest is tried again. While parts of the file are known to be
//! unreadable, each row to be changed is read first, so that repeated writes to one bad row cost the other
//! writes of their commits a read of their rows, but no second attempt. The invariant: work is refused here
//! only if it was not applied and a part of the file that it needs cannot be read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use umbo_store::{Outcome, StoreError};
use umbo_types::{NamespaceId, Timestamp};

use super::{Committer, FailedCommit, RETRY_AFTER};
use crate::committer::trace::Culprit;
use crate::file_error::FileError;
use crate::work::QueuedWork;

/// Most attempts at a commit before it is divided in halves. Each attempt costs the time to prepare the
/// commit.
const ATTEMPTS_MAX: usize = 8;
/// Most entries of the expiry index that the sweeper leaves out, each of the size of a key. One more stops
/// the sweeper for [`RETRY_AFTER`], after which it begins again without any.
const SPARED_ENTRIES_MAX: usize = 1_024;
/// Rows that are purged at once in a namespace with a bad page. A step that meets the page removes none, so
/// fewer than this many rows stay on either side of it.
const SPARING_ROWS: u32 = 64;
/// How long an unreadable row is not reclaimed. Each such row costs an attempt at a commit when its time is
/// over.
const SPARED_FOR: Duration = Duration::from_mins(1);

/// What a commit leaves out.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    /// Rows that are not changed, by physical key, and the error that their changes are answered with.
    pub(super) rows: BTreeMap<Vec<u8>, StoreError>,
    /// Whether reclaiming is left out this time.
    pub(super) are_chores: bool,
}

/// From which end of a namespace rows are removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the first.
    #[default]
    Forward,
    /// From the last.
    Backward,
}

/// Rows and namespaces that are not reclaimed because they cannot be read. They are tried again after
/// [`SPARED_FOR`].
#[derive(Debug, Default)]
pub(crate) struct Spared {
    /// Entries of the expiry index whose rows cannot be read.
    pub(crate) entries: BTreeSet<Vec<u8>>,
    /// When the sweeper continues, if the index itself cannot be read.
    sweeper_held_until: Option<Instant>,
    /// Fenced namespaces with unreadable rows: the end from which each is purged in small steps; none if both
    /// ends have been tried. At most as many as there are fences.
    namespaces: BTreeMap<NamespaceId, Option<Direction>>,
    /// When everything is tried again.
    until: Option<Instant>,
}

impl Spared {
    /// Returns whether the sweeper pauses.
    pub(super) fn is_sweeper_held(&self, now: Instant) -> bool {
        self.sweeper_held_until.is_some_and(|until| now < until)
    }

    /// Returns whether any of these namespaces is to be purged.
    pub(super) fn has_any_to_purge(&self, purging: &[NamespaceId]) -> bool {
        purging.iter().any(|&id| self.may_purge(id))
    }

    /// Returns whether purging a namespace may still remove rows.
    pub(super) fn may_purge(&self, namespace: NamespaceId) -> bool {
        self.namespaces.get(&namespace) != Some(&None)
    }

    /// Returns the end from which a namespace is purged, and the maximum number of rows of a step.
    pub(super) fn step_of(&self, namespace: NamespaceId, rows_max: u32) -> (Direction, u32) {
        match self.namespaces.get(&namespace) {
            None => (Direction::default(), rows_max),
            Some(direction) => (direction.unwrap_or_default(), rows_max.min(SPARING_ROWS)),
        }
    }

    fn spare_entry(&mut self, entry: Option<Vec<u8>>, now: Instant) {
        match entry {
            Some(entry) if self.entries.len() < SPARED_ENTRIES_MAX => {
                self.entries.insert(entry);
            }
            _ => {
                self.entries.clear();
                self.sweeper_held_until = Some(now + RETRY_AFTER);
            }
        }
        self.until.get_or_insert(now + SPARED_FOR);
    }

    fn spare_namespace(&mut self, namespace: NamespaceId, now: Instant) {
        let next = match self.namespaces.get(&namespace) {
            None => Some(Direction::Forward),
            Some(Some(Direction::Forward)) => Some(Direction::Backward),
            Some(_) => None,
        };
        self.namespaces.insert(namespace, next);
        self.until.get_or_insert(now + SPARED_FOR);
    }

    /// Returns whether anything is left out, or was until it is tried again.
    pub(super) fn is_any(&self) -> bool {
        self.until.is_some()
    }

    /// Returns whether [`SPARED_FOR`] is over, so that everything is tried again.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// Forgets everything once [`SPARED_FOR`] is over. Returns whether it has.
    fn expire(&mut self, now: Instant) -> bool {
        let is_over = self.is_over(now);
        if is_over {
            *self = Self::default();
        }
        is_over
    }
}

impl Committer {
    /// Commits work, except what needs an unreadable part of the file, and answers all of it.
    pub(super) fn commit_readable(&mut self, mut work: Vec<QueuedWork>, now: Timestamp) {
        let mut left_out = LeftOut::default();
        if self.file.disk.has_bad_ranges() {
            self.find_unreadable(&work, &mut left_out);
        }
        if self.spared.expire(self.file.disk.now()) {
            self.next_expiry = Some(now);
        }
        let mut last = None;
        for _ in 0..ATTEMPTS_MAX {
            let is_durable = self.must_be_durable(&work);
            let failed = match self.commit(&work, now, is_durable, &left_out) {
                Ok(answers) => {
                    self.note_success();
                    for (work, answer) in work.into_iter().zip(answers) {
                        work.answer(answer);
                    }
                    return;
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
            let is_first = last.is_none();
            self.leave_out(culprit, &failed.failure, &mut work, &mut left_out);
            if is_first {
                self.find_unreadable(&work, &mut left_out);
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

    /// Applies again the asynchronous writes that the file has lost, except those that need an unreadable
    /// part of it.
    pub(super) fn replay(&mut self) -> Result<(), FailedCommit> {
        let mut left_out = LeftOut {
            are_chores: true,
            ..LeftOut::default()
        };
        loop {
            let now = self.clock.wall();
            let Err(failed) = self.commit(&[], now, false, &left_out) else {
                return Ok(());
            };
            match &failed.culprit {
                Some(culprit @ Culprit::Replay(_)) if failed.is_aborted => {
                    let culprit = culprit.clone();
                    self.leave_out(culprit, &failed.failure, &mut Vec::new(), &mut left_out);
                }
                _ => return Err(failed),
            }
        }
    }

    /// Leaves out of the next attempt what needed the read that failed.
    fn leave_out(
        &mut self,
        culprit: Culprit,
        failure: &FileError,
        work: &mut Vec<QueuedWork>,
        left_out: &mut LeftOut,
    ) {
        match culprit {
            Culprit::Shared => {}
            Culprit::Replay(index) => {
                tracing::error!(
                    file = %self.file.path.display(),
                    reason = %failure,
                    "an asynchronous write is lost: it was not on the disk, and cannot be made again"
                );
                self.unflushed.changes.remove(index);
                self.shard
                    .counters
                    .lost_async
                    .fetch_add(1, Ordering::Relaxed);
            }
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

    /// Finds the rows that the work changes and that cannot be read.
    fn find_unreadable(&self, work: &[QueuedWork], left_out: &mut LeftOut) {
        for work in work {
            let QueuedWork::Write(write) = work else {
                continue;
            };
            for op in &write.ops {
                let read = self.shard.attempt(|snapshot, _| snapshot.probe(&op.key));
                if let Err(failure @ FileError::Unreadable(_)) = read {
                    let error = self.shard.error(failure, Outcome::NotApplied);
                    left_out.rows.insert(op.key.clone(), error);
                }
            }
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
