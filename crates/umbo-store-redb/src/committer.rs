//! The only writer of a shard: takes queued work, commits it together, answers it.
//!
//! Group commit without a timer: while one commit waits for the disk, work for the next one gathers in the
//! queue. Owns the database and the version clock. The invariants: a snapshot is published before the work
//! that it holds is answered; work that was answered as durable is on the disk; work that was answered as
//! asynchronous is in the log, and on the disk within [`limits::FLUSH_AFTER`] unless the disk fails.

pub(crate) mod apply;
mod apply_place;
mod applying;
pub(crate) mod attempt;
mod chores;
mod compaction;
mod datasets;
mod failed;
mod finish;
mod idempotency;
mod isolation;
pub(crate) mod large;
pub(crate) mod limits;
mod log_group;
mod logged;
mod mirrors;
mod newest_stamps;
mod packing;
mod pauses;
pub(crate) mod plan;
mod reclaiming;
mod recovery;
mod room;
mod spared;
pub(crate) mod trace;
pub(crate) mod writer;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use redb::{Database, ReadableDatabase};
use umbo_store::{DatasetGroups, FencingTokens};
use umbo_types::{BelievedClock, Clock, Timestamp, Version, VersionClock};

use crate::committer::attempt::{AppliedChanges, prepare};
use crate::committer::chores::Chores;
use crate::committer::datasets::CommitterDatasets;
use crate::committer::failed::FailedCommit;
use crate::committer::limits::{COMMIT_MAX, IDLE_WAKE, RETRY_AFTER};
use crate::committer::logged::Logged;
use crate::committer::pauses::Compaction;
use crate::committer::spared::{LeftOut, Spared};
use crate::committer::trace::CommitTrace;
use crate::fences::Fences;
use crate::file_error::{FileError, guarded};
use crate::queue::TakenWork;
use crate::shard::OpenShard;
use crate::shard_file::ShardFile;
use crate::snapshot::ShardSnapshot;
use crate::tables::ShardProgress;
use crate::watched_file::committing;
use crate::work::{QueuedWork, WorkAnswer};

/// The writer of a shard. Runs on a separate thread, or in a simulation as a task.
pub(crate) struct Committer {
    file: ShardFile,
    shard: Arc<OpenShard>,
    clock: Arc<dyn Clock>,
    /// `None` while the file cannot be opened.
    database: Option<Arc<Database>>,
    versions: VersionClock,
    /// Progress record of the last commit.
    progress: ShardProgress,
    /// Sequence number of the last commit that is on the disk.
    durable_sequence: u64,
    /// Versions up to this one may be assigned without writing to the disk first.
    durable_ceiling: Version,
    logged: Logged,
    /// Namespaces whose rows the shard refuses and reclaims.
    fences: Fences,
    datasets: CommitterDatasets,
    /// The latest runs of loads that have written here.
    runs: FencingTokens,
    /// Whether the file lacks some of the fences, dataset groups or runs on the disk.
    is_behind: bool,
    /// Earliest expiry in the index.
    next_expiry: Option<Timestamp>,
    next_upload_due: Option<Timestamp>,
    spared: Spared,
    /// The believed time of day. Rows are reclaimed and changes are due by it.
    believed_clock: BelievedClock,
    /// Reclaiming pauses until then, because a commit has failed.
    chores_held_until: Option<Instant>,
    /// Whether commits may store rows. False while commits that make room need the reserve.
    has_room: bool,
    /// Whether rows were removed since a commit last found the disk full.
    has_freed: bool,
    compaction: Compaction,
    /// Error of the last commit, if it failed.
    trouble: Option<FileError>,
    reopened_at: Option<Instant>,
}

/// The state of an opened file, the starting point of a committer.
pub(crate) struct OpenedState {
    /// The database.
    pub(crate) database: Database,
    /// Progress record of the last commit.
    pub(crate) progress: ShardProgress,
    /// Namespaces whose rows the shard refuses and reclaims.
    pub(crate) fences: Fences,
    /// The datasets that take the same writes.
    pub(crate) groups: DatasetGroups,
    /// The latest runs of loads.
    pub(crate) runs: FencingTokens,
    /// Whether the file may have written keys of datasets that are being built.
    pub(crate) has_written: bool,
    /// Whether the file lacks some of the fences or groups.
    pub(crate) is_behind: bool,
    /// Earliest expiry in the index.
    pub(crate) next_expiry: Option<Timestamp>,
    /// When the first upload without references is due.
    pub(crate) next_upload_due: Option<Timestamp>,
}

impl Committer {
    /// Makes the committer of an opened file.
    pub(crate) fn new(
        file: ShardFile,
        shard: Arc<OpenShard>,
        clock: Arc<dyn Clock>,
        opened: OpenedState,
    ) -> Self {
        let OpenedState {
            database,
            progress,
            fences,
            groups,
            runs,
            has_written,
            is_behind,
            next_expiry,
            next_upload_due,
        } = opened;
        let purging = &shard.counters.purging;
        purging.store(fences.purging_count(), Ordering::Relaxed);
        // On a full disk it is refilled once there is room.
        let _ = file.disk.reserve.refill();
        // The clock may have jumped before the file was opened: start from the time of the last commit, if any.
        let believed = match progress.believed {
            Timestamp(0) => clock.wall(),
            believed => clock.wall().min(believed),
        };
        let believed_clock = BelievedClock::new(believed, clock.monotonic());
        let logged = Logged::new(file.has_log, file.opener.runner().apply_after());
        Self {
            file,
            shard,
            clock,
            logged,
            database: Some(Arc::new(database)),
            versions: VersionClock::after(progress.version_ceiling),
            durable_ceiling: progress.version_ceiling,
            durable_sequence: progress.sequence,
            progress,
            fences,
            datasets: CommitterDatasets::new(groups, has_written, progress.newest_stamp),
            runs,
            is_behind,
            next_expiry,
            next_upload_due,
            spared: Spared::default(),
            believed_clock,
            chores_held_until: None,
            has_room: true,
            has_freed: false,
            compaction: Compaction::default(),
            trouble: None,
            reopened_at: None,
        }
    }

    /// Returns the shard whose work it does.
    pub(crate) const fn shard(&self) -> &Arc<OpenShard> {
        &self.shard
    }

    /// Runs until the queue has been closed and emptied.
    pub(crate) fn run(mut self) {
        loop {
            let taken = self.shard.queue.take(self.wait(), COMMIT_MAX);
            if self.serve_taken(taken).is_break() {
                break;
            }
        }
        self.end();
    }

    /// Like [`Self::run`], but each commit takes the time of the simulated disk.
    #[cfg(feature = "simulation")]
    pub(crate) async fn run_as_task(mut self) {
        loop {
            let taken = self.shard.queue.taken(self.wait(), COMMIT_MAX).await;
            if !taken.work.is_empty() {
                tokio::time::sleep(self.file.opener.commit_time(&self.file.path)).await;
            }
            if self.serve_taken(taken).is_break() {
                break;
            }
        }
        self.end();
    }

    /// Serves the work that was taken from the queue. Breaks if the queue is closed and empty.
    fn serve_taken(&mut self, taken: TakenWork<QueuedWork>) -> ControlFlow<()> {
        if taken.was_nudged {
            self.reopen_for_readers();
        }
        if taken.is_finished {
            return ControlFlow::Break(());
        }
        self.serve(taken.work);
        self.compact_if_due();
        ControlFlow::Continue(())
    }

    fn end(self) {
        let shard = Arc::clone(&self.shard);
        self.finish();
        // Readers that wait for the file to be opened again stop waiting.
        shard.note_reopened();
    }

    /// Returns the current time of the runner. The bounds on the disk are measured in this time.
    fn disk_now(&self) -> Instant {
        self.file.opener.runner().now()
    }

    /// Returns how long to wait for work, or `None` for no limit.
    fn wait(&self) -> Option<Duration> {
        let now = self.disk_now();
        match self.trouble {
            Some(FileError::Full(_)) if self.is_chore_due() && !self.are_chores_held() => {
                return Some(Duration::ZERO);
            }
            Some(FileError::Full(_)) => return Some(IDLE_WAKE),
            Some(_) => return Some(RETRY_AFTER),
            None => {}
        }
        if self.logged.is_applying() {
            return self.logged.wait(now);
        }
        let is_awaited = self.compaction.is_pending() || !self.file.disk.reserve.is_whole();
        let wake = is_awaited.then_some(IDLE_WAKE);
        [self.chores_wait(), self.logged.wait(now), wake]
            .into_iter()
            .flatten()
            .min()
    }

    fn serve(&mut self, work: Vec<QueuedWork>) {
        self.look_at_clock();
        let now = self.clock.wall();
        let mut work = self.admit(work);
        self.tend_log();
        let is_stalled = self.logged.is_stalled();
        let is_troubled =
            self.trouble.is_some() || self.database.is_none() || !self.file.disk.reserve.is_whole();
        if !is_stalled && !is_troubled {
            match self.log_group(work, now) {
                Ok(()) => return,
                Err(left) => work = left,
            }
            if work.is_empty() && self.logged.is_applying() {
                return;
            }
        }
        if work.is_empty() && !is_stalled && !is_troubled && !self.is_chore_due() {
            return;
        }
        self.has_room = true;
        if is_troubled {
            match self.make_ready(&work) {
                Ok(()) => {}
                Err(failure @ FileError::Full(_)) => return self.serve_without_room(work, failure),
                Err(failure) => return self.refuse(work, &FailedCommit::before_commit(failure)),
            }
            // The step before may have taken long: deadlines may have passed.
            work = self.admit(work);
            if work.is_empty() && !is_stalled && self.trouble.is_none() && !self.is_chore_due() {
                return;
            }
        }
        self.commit_readable(work, now);
    }

    /// Commits and publishes. Returns the answers in the order of the work, and the duration of the commit.
    fn commit(
        &mut self,
        work: &[QueuedWork],
        now: Timestamp,
        left_out: &LeftOut,
    ) -> Result<(Vec<WorkAnswer>, Duration), FailedCommit> {
        let began = self.file.opener.now();
        (self.file.disk.reserve).set_open(work.iter().all(QueuedWork::is_reserved));
        let answers = self.commit_untimed(work, now, left_out);
        self.file.disk.reserve.set_open(true);
        let answers = answers?;
        let took = self.file.opener.now().saturating_duration_since(began);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let last = &self.shard.counters.last_commit_nanos;
        last.store(nanos, Ordering::Relaxed);
        Ok((answers, took))
    }

    fn commit_untimed(
        &mut self,
        work: &[QueuedWork],
        now: Timestamp,
        left_out: &LeftOut,
    ) -> Result<Vec<WorkAnswer>, FailedCommit> {
        let Some(database) = &self.database else {
            return Err(FailedCommit::before_commit(not_open()));
        };
        let trace = CommitTrace::default();
        let order = self.commit_input(work, now, left_out, &trace);
        let chores = order.chores;
        let (sequence, believed) = (self.progress.sequence + 1, self.believed_time());
        let stamps = &self.datasets.stamps;
        let needs_log = order.log_mark.needs_log(self.logged.is_needed());
        let record = |versions: &VersionClock| ShardProgress {
            sequence,
            version_ceiling: versions.last(),
            believed,
            is_closed: false,
            needs_log,
            newest_stamp: stamps.newest(),
        };
        self.file.disk.written.clear();
        let mut versions = self.versions;
        let prepared = prepare(database, &order, &mut versions, record);
        self.versions = versions;
        let prepared = prepared.map_err(|unprepared| FailedCommit::unprepared(unprepared, &trace));
        let (transaction, mut changes) = prepared?;
        let disk_now = self.disk_now();
        let committed = guarded(|| Ok(committing(changes.is_long, || transaction.commit())?));
        self.file.disk.written.clear();
        let committed = committed.and_then(|()| {
            let counters = &self.shard.counters;
            counters.note_sync(self.file.opener.runner().now() - disk_now);
            changes.applied = self.logged.note_commit(sequence);
            let snapshot = guarded(|| ShardSnapshot::of(&database.begin_read()?, &self.fences))?;
            let snapshot = snapshot.below(self.logged.overlay());
            self.shard.publish(snapshot, Some(&changes.changed));
            Ok(())
        });
        if let Err(failure) = committed {
            return Err(FailedCommit {
                begun: Some(sequence),
                answers: changes.answers,
                ..FailedCommit::before_commit(failure)
            });
        }
        self.progress = record(&self.versions);
        self.note_durable(sequence);
        Ok(self.note_changes(work, changes, (chores, now)))
    }

    /// Records what a commit has changed and reclaimed. Returns its answers.
    fn note_changes(
        &mut self,
        work: &[QueuedWork],
        changes: AppliedChanges,
        (chores, now): (Chores, Timestamp),
    ) -> Vec<WorkAnswer> {
        let (swept, purged) = (&changes.swept, &changes.purged);
        let is_upload_due = swept.next_upload_due != self.next_upload_due;
        self.note_freed(!changes.changed.is_empty() || is_upload_due);
        self.note_next_expiry(chores, swept, now);
        self.fences.note_purged(&purged.done);
        self.datasets.note_reclaimed(purged);
        self.count_commit(work, &changes);
        changes.answers
    }

    /// Records that the commit of this number and all earlier ones are on the disk.
    fn note_durable(&mut self, sequence: u64) {
        self.durable_ceiling = self.progress.version_ceiling;
        self.durable_sequence = sequence;
        if std::mem::take(&mut self.is_behind) {
            self.shard.note_fenced(Arc::clone(self.fences.fenced()));
            self.shard.note_groups(self.datasets.groups.clone());
        }
    }
}

fn not_open() -> FileError {
    FileError::Io("the file could not be opened again".to_owned())
}
