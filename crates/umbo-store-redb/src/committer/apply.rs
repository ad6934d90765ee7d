//! Commits the rows of a full memtable to the shard's file, while the committer goes on with the log.
//!
//! Such a commit has no work. It owns copies of the state that it needs, so that the committer goes on meanwhile. The
//! invariant: while one is under way, nothing else writes to the file.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use redb::{Database, ReadableDatabase};
use umbo_store::{DatasetGroups, FencingTokens, Outcome, StoreError};
use umbo_types::{ShardId, Timestamp, Version, VersionClock};

use crate::committer::apply_place::PLACES;
use crate::committer::attempt::{AppliedChanges, CommitInput, prepare};
use crate::committer::chores::Chores;
use crate::committer::datasets::CommitterDatasets;
use crate::committer::failed::FailedCommit;
use crate::committer::spared::Spared;
use crate::committer::trace::{CommitTrace, Culprit};
use crate::disk::Disk;
use crate::fences::Fences;
use crate::file_error::{FileError, guarded};
use crate::memtable::Overlay;
use crate::runner::Runner;
use crate::shard::OpenShard;
use crate::snapshot::ShardSnapshot;
use crate::tables::ShardProgress;
use crate::watched_file::committing;
use crate::write_log::LogMark;

/// How long an apply takes in a simulation: other work comes meanwhile.
#[cfg(feature = "simulation")]
const SIMULATED_TIME: Duration = Duration::from_millis(30);

/// A commit of rows of the log.
pub(crate) struct Apply {
    pub(super) shard: ShardId,
    pub(super) database: Arc<Database>,
    pub(super) disk: Arc<Disk>,
    /// The rows.
    pub(super) overlay: Overlay,
    /// The progress record, as of the last group among them.
    pub(super) progress: ShardProgress,
    pub(super) log_mark: LogMark,
    pub(super) fences: Fences,
    pub(super) datasets: CommitterDatasets,
    pub(super) spared: Spared,
    pub(super) chores: Chores,
    pub(super) now: Timestamp,
    pub(super) next_upload_due: Option<Timestamp>,
    pub(super) may_pack: bool,
    /// Rows that are stranded, as their places cannot be read.
    pub(super) unreadable: BTreeMap<Vec<u8>, StoreError>,
}

/// The result of such a commit.
pub(crate) struct Applied {
    pub(super) progress: ShardProgress,
    pub(super) chores: Chores,
    pub(super) now: Timestamp,
    /// The changes, and the state of the file after them.
    pub(super) outcome: Result<(AppliedChanges, ShardSnapshot), FailedCommit>,
}

/// An apply that has been started.
pub(super) enum RunningApply {
    Thread {
        thread: JoinHandle<Applied>,
        flags: Arc<ApplyFlags>,
    },
    /// In a simulation: it runs when the committer asks for its result, which is there at this instant.
    #[cfg(feature = "simulation")]
    Task(Box<Apply>, std::time::Instant),
}

#[derive(Debug, Default)]
pub(super) struct ApplyFlags {
    /// Whether the committer waits for the result.
    is_awaited: AtomicBool,
    has_ended: AtomicBool,
}

/// Tells the committer that an apply has ended, also if it has panicked.
struct EndOfApply {
    flags: Arc<ApplyFlags>,
    shard: Arc<OpenShard>,
}

impl Drop for EndOfApply {
    fn drop(&mut self) {
        self.flags.has_ended.store(true, Ordering::Release);
        self.shard.queue.wake();
    }
}

impl Apply {
    /// Makes the apply of the log of a file that is being opened. It reclaims nothing.
    pub(crate) fn at_opening(
        shard: ShardId,
        database: &Arc<Database>,
        disk: &Arc<Disk>,
        (overlay, progress): (Overlay, ShardProgress),
        (fences, groups): (Fences, DatasetGroups),
    ) -> Self {
        Self {
            shard,
            database: Arc::clone(database),
            disk: Arc::clone(disk),
            overlay,
            progress,
            log_mark: LogMark::Done,
            fences,
            datasets: CommitterDatasets::new(groups, false, Version(0)),
            spared: Spared::default(),
            chores: Chores::default(),
            now: Timestamp(0),
            next_upload_due: Some(Timestamp(0)),
            may_pack: false,
            unreadable: BTreeMap::new(),
        }
    }

    /// Starts the apply, which wakes the committer of the shard when it ends.
    pub(super) fn start(
        self,
        runner: Runner,
        shard: &Arc<OpenShard>,
    ) -> Result<RunningApply, FileError> {
        match runner {
            Runner::Threads => {
                let thread = std::thread::Builder::new().name("apply".to_owned());
                let flags = Arc::<ApplyFlags>::default();
                let end = EndOfApply {
                    flags: Arc::clone(&flags),
                    shard: Arc::clone(shard),
                };
                let thread = thread.spawn(move || {
                    let end = end;
                    let _place = PLACES.wait(&end.flags.is_awaited);
                    self.run()
                })?;
                Ok(RunningApply::Thread { thread, flags })
            }
            #[cfg(feature = "simulation")]
            Runner::Tasks => {
                let ends = runner.now() + SIMULATED_TIME;
                Ok(RunningApply::Task(Box::new(self), ends))
            }
        }
    }

    /// Commits the rows.
    fn run(self) -> Applied {
        Applied {
            outcome: self.commit(),
            progress: self.progress,
            chores: self.chores,
            now: self.now,
        }
    }

    /// Commits the rows, or returns why that failed. Nothing is left of the apply then.
    pub(crate) fn run_alone(mut self) -> Result<(), FileError> {
        for are_all_stranded in [false, true] {
            let Err(failed) = self.commit() else {
                return Ok(());
            };
            let culprit = failed.culprit.as_ref().and_then(Culprit::row);
            if culprit.is_none() || !failed.is_aborted {
                return Err(failed.failure);
            }
            self.strand(&failed.failure, are_all_stranded)?;
        }
        let committed = self.commit();
        committed.map(|_| ()).map_err(|failed| failed.failure)
    }

    /// Strands the rows whose places cannot be read, or all of them.
    fn strand(&mut self, failure: &FileError, are_all: bool) -> Result<(), FileError> {
        let snapshot = guarded(|| ShardSnapshot::of(&self.database.begin_read()?, &self.fences))?;
        let mut keys = snapshot.below(self.overlay.clone()).changed_keys();
        if !are_all {
            keys = snapshot
                .unreadable(keys.into_iter())
                .map(|(key, _)| key)
                .collect();
        }
        let error = StoreError::Io {
            shard: self.shard,
            reason: failure.to_string(),
            outcome: Outcome::NotApplied,
        };
        self.unreadable = keys.into_iter().map(|key| (key, error.clone())).collect();
        Ok(())
    }

    fn commit(&self) -> Result<(AppliedChanges, ShardSnapshot), FailedCommit> {
        let trace = CommitTrace::default();
        let order = CommitInput {
            shard: self.shard,
            work: &[],
            overlay: self.overlay.clone(),
            log_mark: self.log_mark,
            fences: &self.fences,
            datasets: &self.datasets,
            runs: &FencingTokens::default(),
            is_behind: false,
            chores: self.chores,
            now: self.now,
            next_upload_due: self.next_upload_due,
            idempotency_bytes_max: 0,
            unreadable: &self.unreadable,
            may_pack: self.may_pack,
            spared: &self.spared,
            trace: &trace,
        };
        self.disk.written.clear();
        let mut versions = VersionClock::after(self.progress.version_ceiling);
        let prepared = prepare(&self.database, &order, &mut versions, |_| self.progress);
        let prepared = prepared.map_err(|unprepared| FailedCommit::unprepared(unprepared, &trace));
        let (transaction, changes) = prepared?;
        let committed = guarded(|| Ok(committing(true, || transaction.commit())?));
        self.disk.written.clear();
        let snapshot = committed.and_then(|()| {
            guarded(|| ShardSnapshot::of(&self.database.begin_read()?, &self.fences))
        });
        match snapshot {
            Ok(snapshot) => Ok((changes, snapshot)),
            Err(failure) => Err(FailedCommit {
                begun: Some(self.progress.sequence),
                ..FailedCommit::before_commit(failure)
            }),
        }
    }
}

impl RunningApply {
    /// Returns whether the result is there.
    pub(super) fn is_finished(&self) -> bool {
        match self {
            Self::Thread { flags, .. } => flags.has_ended.load(Ordering::Acquire),
            #[cfg(feature = "simulation")]
            Self::Task(_, ends) => *ends <= Runner::Tasks.now(),
        }
    }

    /// Returns how long to wait for the result, or `None` if its end wakes the committer.
    pub(super) fn left(&self) -> Option<Duration> {
        match self {
            Self::Thread { .. } => None,
            #[cfg(feature = "simulation")]
            Self::Task(_, ends) => Some(ends.saturating_duration_since(Runner::Tasks.now())),
        }
    }

    /// Waits for the result.
    pub(super) fn finish(self) -> Applied {
        match self {
            Self::Thread { thread, flags } => {
                PLACES.note_awaited(&flags.is_awaited);
                let applied = thread.join();
                applied.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
            #[cfg(feature = "simulation")]
            Self::Task(apply, _) => apply.run(),
        }
    }
}
