//! The one writer of a shard: takes what waits, commits it together, answers.
//!
//! Group commit without a timer: while one commit waits for the disk the next one's work gathers
//! in the queue. Owns the database and the version clock. The invariants: a snapshot is published
//! before the work that it holds is answered; what was answered as durable is on the disk; what
//! was answered as asynchronous is made again if redb loses it to a failure, and is on the disk
//! within [`FLUSH_AFTER`] unless the disk fails.

pub(crate) mod attempt;
pub(crate) mod plan;
mod recovery;
pub(crate) mod writer;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use redb::{Database, ReadableDatabase};
use umbo_store::StoreError;
use umbo_types::{Clock, Timestamp, Version, VersionClock};

use crate::committer::attempt::{Order, Prepared, prepare};
use crate::committer::writer::Change;
use crate::failure::{Failure, guarded};
use crate::queue::Size;
use crate::shard::Shard;
use crate::shard_file::{ShardFile, begin_write};
use crate::snapshot::Snapshot;
use crate::tables::{META, META_PROGRESS, Progress};
use crate::work::{Answer, Work};

/// Most work in one commit.
const COMMIT_MAX: Size = Size {
    mutations: 8_192,
    bytes: 8 << 20,
};
/// Longest time that an asynchronous write is not on the disk.
const FLUSH_AFTER: Duration = Duration::from_millis(50);
/// Most bytes of asynchronous writes that are not on the disk.
const UNFLUSHED_BYTES_MAX: usize = 8 << 20;
/// How often an idle committer looks at the clock for rows that have expired.
const IDLE_WAKE: Duration = Duration::from_secs(1);
/// How often an idle committer tries a file again that has failed.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// Rows that the sweeper reclaims in a commit that nobody waits for.
const SWEPT_ROWS_IDLE: usize = 256;
/// Rows that the sweeper reclaims in a commit that somebody waits for.
const SWEPT_ROWS_BUSY: usize = 64;
/// Versions reserved for asynchronous writes, in microseconds of the version clock: a version
/// that was given is never given again, even if its row was lost with the power.
const RESERVED_VERSIONS: u64 = 1_000_000;

/// Asynchronous writes that are not on the disk yet.
#[derive(Debug, Default)]
struct Unflushed {
    changes: Vec<Change>,
    bytes: usize,
    since: Option<Instant>,
    /// Number of the last commit among them; 0 where the database holds none.
    sequence: u64,
    /// Whether the database does not hold them any more.
    is_lost: bool,
}

impl Unflushed {
    /// Says whether it is time for a durable commit.
    fn is_due(&self) -> bool {
        self.bytes >= UNFLUSHED_BYTES_MAX
            || self
                .since
                .is_some_and(|since| since.elapsed() >= FLUSH_AFTER)
    }

    /// Returns the changes to make again.
    fn lost(&self) -> &[Change] {
        if self.is_lost { &self.changes } else { &[] }
    }

    /// Notes a commit, with the changes that it made if they are not on the disk.
    fn note_commit(&mut self, is_durable: bool, sequence: u64, changes: Vec<Change>) {
        if is_durable || self.is_lost {
            *self = Self::default();
        }
        if is_durable {
            return;
        }
        self.bytes += changes.iter().map(Change::bytes).sum::<usize>();
        self.changes.extend(changes);
        self.sequence = sequence;
        // The flush bound is about the disk, so it is measured in real time.
        self.since.get_or_insert_with(Instant::now);
    }

    /// Notes that the file was opened again without these changes.
    fn note_loss(&mut self) {
        self.is_lost = !self.changes.is_empty();
        // Numbers of lost commits are given again.
        self.sequence = 0;
    }
}

/// The writer of a shard; runs on a thread of its own.
pub(crate) struct Committer {
    file: ShardFile,
    shard: Arc<Shard>,
    clock: Arc<dyn Clock>,
    /// None while the file cannot be opened.
    database: Option<Database>,
    versions: VersionClock,
    /// Of the last commit.
    progress: Progress,
    /// Number of the last commit that is on the disk.
    durable_sequence: u64,
    /// Versions up to here may be given without writing to the disk first.
    durable_ceiling: Version,
    unflushed: Unflushed,
    /// Earliest expiry in the index.
    next_expiry: Option<Timestamp>,
    /// Why the last commit failed.
    trouble: Option<Failure>,
    reopened_at: Option<Instant>,
}

/// Why a commit failed, and what is known of it.
struct Failed {
    failure: Failure,
    /// Number of the commit, where redb had begun to write it.
    begun: Option<u64>,
    /// What to answer if it was applied after all.
    answers: Vec<Answer>,
}

impl Failed {
    fn before_commit(failure: Failure) -> Self {
        Self {
            failure,
            begun: None,
            answers: Vec::new(),
        }
    }
}

impl Committer {
    /// Makes the committer of a file that was opened.
    pub(crate) fn new(
        file: ShardFile,
        shard: Arc<Shard>,
        clock: Arc<dyn Clock>,
        database: Database,
        progress: Progress,
        next_expiry: Option<Timestamp>,
    ) -> Self {
        Self {
            file,
            shard,
            clock,
            database: Some(database),
            versions: VersionClock::after(progress.version_ceiling),
            durable_ceiling: progress.version_ceiling,
            durable_sequence: progress.sequence,
            progress,
            unflushed: Unflushed::default(),
            next_expiry,
            trouble: None,
            reopened_at: None,
        }
    }

    /// Runs until the queue has been closed and emptied.
    pub(crate) fn run(mut self) {
        loop {
            let taken = self.shard.queue.take(self.wait(), COMMIT_MAX);
            if taken.was_nudged {
                self.reopen_for_readers();
            }
            if taken.is_finished {
                break;
            }
            self.serve(taken.work);
        }
        let shard = Arc::clone(&self.shard);
        self.finish();
        // Readers that wait for the file to be opened again wait no longer.
        shard.note_reopened();
    }

    /// Returns how long to wait for work; none for as long as it takes.
    fn wait(&self) -> Option<Duration> {
        let flush = self
            .unflushed
            .since
            .map(|since| FLUSH_AFTER.saturating_sub(since.elapsed()));
        match self.trouble {
            Some(Failure::Full(_)) => return Some(IDLE_WAKE),
            Some(_) => return Some(RETRY_AFTER),
            None => {}
        }
        let sweep = self.next_expiry.map(|at| {
            if at <= self.clock.wall() {
                Duration::ZERO
            } else {
                IDLE_WAKE
            }
        });
        match (flush, sweep) {
            (Some(flush), Some(sweep)) => Some(flush.min(sweep)),
            (flush, sweep) => flush.or(sweep),
        }
    }

    fn serve(&mut self, work: Vec<Work>) {
        let monotonic = self.clock.monotonic();
        let (work, late): (Vec<_>, Vec<_>) = work
            .into_iter()
            .partition(|work| !work.deadline().is_some_and(|at| at.has_passed(monotonic)));
        for work in late {
            let shard = self.file.shard();
            work.refuse(StoreError::DeadlinePassed { shard });
        }
        let now = self.clock.wall();
        let is_sweep_due = self.next_expiry.is_some_and(|at| at <= now);
        if work.is_empty() && !is_sweep_due && !self.unflushed.is_due() && self.trouble.is_none() {
            return;
        }
        if let Err(failure) = self.make_ready(&work) {
            return self.refuse(work, &Failed::before_commit(failure));
        }
        let is_durable = self.must_be_durable(&work);
        match self.commit(&work, now, is_durable) {
            Ok(answers) => {
                self.note_success();
                for (work, answer) in work.into_iter().zip(answers) {
                    work.answer(answer);
                }
            }
            Err(failed) => self.recover(work, failed),
        }
    }

    /// Commits and publishes. The answers are in the order of the work.
    fn commit(
        &mut self,
        work: &[Work],
        now: Timestamp,
        is_durable: bool,
    ) -> Result<Vec<Answer>, Failed> {
        let Some(database) = &self.database else {
            return Err(Failed::before_commit(not_open()));
        };
        let order = Order {
            shard: self.file.shard(),
            work,
            replay: self.unflushed.lost(),
            is_durable,
            swept_rows_max: if work.is_empty() {
                SWEPT_ROWS_IDLE
            } else {
                SWEPT_ROWS_BUSY
            },
            now,
        };
        let is_all_sync = self.unflushed.since.is_none() && work.iter().all(Work::is_sync);
        let (sequence, durable) = (self.progress.sequence + 1, self.durable_ceiling);
        let record = |versions: &VersionClock| Progress {
            sequence,
            version_ceiling: match (is_durable, is_all_sync) {
                (false, _) => durable,
                (true, true) => versions.last(),
                (true, false) => Version(versions.last().0.saturating_add(RESERVED_VERSIONS)),
            },
            is_closed: false,
        };
        let versions = &mut self.versions;
        let prepared = guarded(|| prepare(database, &order, versions, record));
        let Prepared {
            transaction,
            answers,
            mutations,
            log,
            swept,
        } = prepared.map_err(Failed::before_commit)?;
        let committed = guarded(|| Ok(transaction.commit()?)).and_then(|()| {
            self.unflushed.note_commit(is_durable, sequence, log);
            self.shard
                .publish(guarded(|| Snapshot::of(&database.begin_read()?))?);
            Ok(())
        });
        if let Err(failure) = committed {
            return Err(Failed {
                failure,
                begun: Some(sequence),
                answers,
            });
        }
        self.progress = record(&self.versions);
        if is_durable {
            self.durable_ceiling = self.progress.version_ceiling;
            self.durable_sequence = sequence;
        }
        self.next_expiry = swept.next_expiry;
        let counters = &self.shard.counters;
        counters.commits.fetch_add(1, Ordering::Relaxed);
        counters.mutations.fetch_add(mutations, Ordering::Relaxed);
        counters.reclaimed.fetch_add(swept.rows, Ordering::Relaxed);
        Ok(answers)
    }

    /// Says whether a commit of this work must be on the disk before it is answered.
    fn must_be_durable(&self, work: &[Work]) -> bool {
        let mut highest = self.versions.last().0;
        for work in work {
            if let Work::Write(write) = work {
                highest = highest.max(write.proposed.0);
                highest = highest.saturating_add(write.ops.len() as u64);
            }
        }
        work.is_empty()
            || work.iter().any(Work::is_sync)
            || self.unflushed.is_due()
            || highest > self.durable_ceiling.0
    }

    /// Brings everything to the disk, notes that the shard was closed, and lets go of the file.
    fn finish(mut self) {
        if !self.unflushed.changes.is_empty() {
            self.serve(Vec::new());
        }
        let progress = Progress {
            sequence: self.progress.sequence + 1,
            version_ceiling: self.versions.last(),
            is_closed: true,
        };
        let is_needed = !self.progress.is_closed && self.unflushed.lost().is_empty();
        let database = self.database.take();
        let closed = guarded(|| {
            if let Some(database) = database
                && is_needed
            {
                write_progress(&database, progress)?;
            }
            Ok(())
        });
        if let Err(failure) = closed {
            tracing::warn!(
                file = %self.file.path.display(),
                reason = %failure,
                "the shard could not be closed in order; it recovers when it is opened next"
            );
        }
    }
}

fn write_progress(database: &Database, progress: Progress) -> Result<(), Failure> {
    let transaction = begin_write(database, redb::Durability::Immediate)?;
    transaction
        .open_table(META)?
        .insert(META_PROGRESS, &progress.encode()[..])?;
    Ok(transaction.commit()?)
}

fn not_open() -> Failure {
    Failure::Io("the file could not be opened again".to_owned())
}
