//! Admission of work by a committer, and reclaiming of space step by step.
//!
//! Each commit includes one step of the sweeper (expired rows) and one step of the purge (rows of fenced namespaces);
//! an idle committer continues until nothing is left. The invariants: the committer never begins work for a fenced
//! namespace, work of a run of a load after a later run, work past its deadline, or withdrawn work. Reclaiming never
//! fails a write twice in a row, because it pauses after a commit that failed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use umbo_store::StoreError;
use umbo_types::{NamespaceId, Timestamp};

use super::Committer;
use crate::committer::attempt::AppliedChanges;
use crate::committer::chores::Chores;
use crate::committer::limits::{IDLE_WAKE, RETRY_AFTER, ROWS_MAX_WITHOUT_ROOM};
use crate::committer::writer::{Left, Swept};
use crate::shard::ShardCounters;
use crate::work::QueuedWork;

/// Rows that the sweeper reclaims in a commit without requests.
const SWEPT_ROWS_IDLE: usize = 256;
/// Minimum number of rows that the sweeper reclaims in a commit with requests.
const SWEPT_ROWS_BUSY: usize = 64;
/// Commits from one count of the remaining expired rows to the next; in between the number is estimated.
const COMMITS_PER_COUNT: u64 = 64;
/// Rows of fenced namespaces that are reclaimed in a commit without requests: a few milliseconds of work,
/// because a request may arrive meanwhile.
const PURGED_ROWS_IDLE: u32 = 1_024;
/// Rows of fenced namespaces that are reclaimed in a commit with requests.
const PURGED_ROWS_BUSY: u32 = 64;

impl Committer {
    /// Observes the time of day.
    pub(super) fn look_at_clock(&mut self) {
        let (wall, now) = (self.clock.wall(), self.clock.monotonic());
        if self.believed_clock.observe(wall, now) {
            tracing::warn!(
                file = %self.file.path.display(),
                "the clock has jumped ahead: expired rows are not reclaimed for ten minutes, or until it \
                 goes back"
            );
        }
    }

    /// Returns the believed time of day. Rows are reclaimed and changes are due by it.
    pub(super) fn believed_time(&self) -> Timestamp {
        self.believed_clock
            .time(self.clock.wall(), self.clock.monotonic())
    }

    /// Raises the fences that the work contains, and admits the rest. Work that is past its deadline, not due yet,
    /// withdrawn, for a fenced namespace or of a run that was overtaken is answered and left out.
    pub(super) fn admit(&mut self, work: Vec<QueuedWork>) -> Vec<QueuedWork> {
        for piece in &work {
            if let QueuedWork::Raise(raise) = piece {
                self.is_behind |= self.fences.raise(&raise.copy.fenced);
                self.is_behind |= self.datasets.adopt(&raise.copy);
            }
        }
        // One dataset decides all the work of a commit, so an epoch that one part knows is valid for all parts.
        for (dataset, epoch) in work.iter().filter_map(QueuedWork::epoch) {
            self.is_behind |= self.datasets.learn(dataset, epoch);
        }
        let shard = self.file.shard();
        let monotonic = self.clock.monotonic();
        let mut admitted = Vec::with_capacity(work.len());
        for mut piece in work {
            let run = piece.run();
            let mut named = piece.namespace().into_iter().chain(run.map(|run| run.load));
            let fenced = named.find(|&id| self.fences.holds(id));
            if piece.is_withdrawn() {
                let withdrawn = &self.shard.counters.withdrawn;
                withdrawn.fetch_add(1, Ordering::Relaxed);
            } else if piece.deadline().is_some_and(|at| at.has_passed(monotonic)) {
                piece.refuse(StoreError::DeadlinePassed { shard });
            } else if piece
                .not_before()
                .is_some_and(|at| self.believed_time() < at)
            {
                piece.refuse(StoreError::TooEarly { shard });
            } else if let Some(namespace) = fenced {
                piece.refuse(StoreError::NamespaceGone { shard, namespace });
            } else if run.is_some_and(|run| !self.runs.admits(run)) {
                piece.refuse(StoreError::Overtaken { shard });
            } else {
                if let Some(run) = run {
                    // The commit of the work stores it too.
                    self.is_behind |= self.runs.begin(run, |load| self.fences.holds(load));
                }
                if !self.datasets.groups.is_empty() {
                    piece.assign(&self.datasets.groups);
                }
                admitted.push(piece);
            }
        }
        admitted
    }

    /// Returns whether reclaiming is due.
    pub(super) fn is_chore_due(&self) -> bool {
        self.chores_wait() == Some(Duration::ZERO)
    }

    /// Returns how long to wait until reclaiming may be due, or `None` if nothing is in sight.
    pub(super) fn chores_wait(&self) -> Option<Duration> {
        if self.is_behind {
            return Some(Duration::ZERO);
        }
        let purging = self.datasets.to_purge(&self.fences);
        let is_purging = self.datasets.has_written || self.spared.has_any_to_purge(purging);
        let is_expired = self.next_due().is_some_and(|at| at <= self.believed_time());
        let now = self.disk_now();
        let is_due = is_purging
            || self.spared.is_over(now)
            || (is_expired && !self.spared.is_sweeper_held(now));
        match self.next_due() {
            None if !is_purging && !self.spared.is_any() => None,
            _ if is_due && !self.are_chores_held() => Some(Duration::ZERO),
            _ => Some(IDLE_WAKE),
        }
    }

    /// Returns when the next row expires or upload is due.
    fn next_due(&self) -> Option<Timestamp> {
        let due = [self.next_expiry, self.next_upload_due];
        due.into_iter().flatten().min()
    }

    /// Returns the bounds of reclaiming in the next commit.
    pub(super) fn chores(&self, is_idle: bool) -> Chores {
        let mut chores = self.all_chores(is_idle);
        if self.spared.is_sweeper_held(self.disk_now()) {
            chores.sweep_until = None;
        }
        chores
    }

    fn all_chores(&self, is_idle: bool) -> Chores {
        if self.are_chores_held() {
            return Chores::default();
        }
        let (swept_rows_min, purged_rows_max) = if !self.has_room {
            (SWEPT_ROWS_BUSY, ROWS_MAX_WITHOUT_ROOM)
        } else if is_idle {
            (SWEPT_ROWS_IDLE, PURGED_ROWS_IDLE)
        } else {
            (SWEPT_ROWS_BUSY, PURGED_ROWS_BUSY)
        };
        Chores {
            sweep_until: Some(self.believed_time()),
            swept_rows_min,
            counts_expired: self.progress.sequence.is_multiple_of(COMMITS_PER_COUNT),
            purged_rows_max,
        }
    }

    /// Counts a commit for the shard's status.
    pub(super) fn count_commit(&self, work: &[QueuedWork], changes: &AppliedChanges) {
        let purging = self.datasets.to_purge_count(&self.fences);
        let counters = &self.shard.counters;
        let mut sizes = self.shard.sizes();
        if let Some(sizes) = sizes.as_mut() {
            for applied in &changes.applied {
                applied.sizes.take_from(sizes);
            }
            for size in &changes.sizes {
                sizes.remove(&size.namespace);
                if size.rows > 0 {
                    sizes.insert(size.namespace, *size);
                }
                // The file does not have the rows of the memtable.
                self.logged.sizes.add_one_to(sizes, size.namespace);
            }
        }
        counters.note_swept(&changes.swept);
        counters.purging.store(purging, Ordering::Relaxed);
        counters.note_namespaces(work, changes.purged.namespace_max);
        counters.commits.fetch_add(1, Ordering::Relaxed);
        counters
            .mutations
            .fetch_add(changes.mutations, Ordering::Relaxed);
    }

    /// Pauses reclaiming after a failed commit, because reclaiming may be the cause.
    pub(super) fn hold_chores(&mut self) {
        self.chores_held_until = Some(self.disk_now() + RETRY_AFTER);
    }

    /// Records when the next row expires, if a commit has read the index.
    pub(super) fn note_next_expiry(&mut self, chores: Chores, swept: &Swept, now: Timestamp) {
        self.next_upload_due = swept.next_upload_due;
        if chores.sweep_until.is_some() {
            self.next_expiry = swept.next_expiry;
        } else {
            // The index was not read, and may have got its first entry.
            self.next_expiry.get_or_insert(now);
        }
    }

    pub(super) fn are_chores_held(&self) -> bool {
        self.chores_held_until
            .is_some_and(|until| self.disk_now() < until)
    }
}

impl ShardCounters {
    /// Records the rows that the sweeper has reclaimed and left.
    pub(super) fn note_swept(&self, swept: &Swept) {
        self.reclaimed.fetch_add(swept.rows(), Ordering::Relaxed);
        let expired = match swept.left {
            Left::Unseen => return,
            Left::Nothing => 0,
            Left::Counted(rows) => rows,
            // At least the row that was seen.
            Left::Uncounted => {
                let before = self.expired.load(Ordering::Relaxed);
                before.saturating_sub(swept.rows()).max(1)
            }
        };
        self.expired.store(expired, Ordering::Relaxed);
    }

    /// Records the namespaces that got rows by committed work. If the highest namespace with rows was looked up,
    /// records that instead.
    pub(crate) fn note_namespaces(&self, work: &[QueuedWork], found: Option<NamespaceId>) {
        if let Some(found) = found {
            self.namespace_max.store(found.0, Ordering::Relaxed);
        } else if let Some(written) = work.iter().filter_map(QueuedWork::namespace_max).max() {
            self.namespace_max.fetch_max(written.0, Ordering::Relaxed);
        }
    }
}
