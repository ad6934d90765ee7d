//! One commit as one transaction: all its changes, up to but not including the commit itself.
//!
//! The order within a transaction: changes that an earlier failure has undone, the work in order of arrival,
//! one step of the purge and one of the sweeper, the records of fences, of sizes and of progress.

use std::collections::BTreeMap;
use std::ops::Bound;

use redb::{Database, Durability, WriteTransaction};
use umbo_store::{Deleted, NamespaceSize, StoreError};
use umbo_types::{ShardId, Timestamp, VersionClock};

use crate::bad_read::{isolated, unisolated};
use crate::committer::chores::Chores;
use crate::committer::plan::{CommitPlan, RowEffect};
use crate::committer::spared::Spared;
use crate::committer::trace::CommitTrace;
use crate::committer::writer::{LoggedChange, Purged, RowWriter, Swept};
use crate::fences::{Fences, META_FENCES};
use crate::file_error::{FileError, guarded};
use crate::key_codec;
use crate::row_codec;
use crate::shard_file::begin_write;
use crate::tables::{META, META_PROGRESS, ShardProgress};
use crate::work::{DeleteRange, QueuedWork, REMOVED_ROWS_MAX, WorkAnswer, Write};

/// The input of a commit.
pub(crate) struct CommitInput<'a> {
    /// The shard, for errors.
    pub(crate) shard: ShardId,
    /// The work, in order of arrival.
    pub(crate) work: &'a [QueuedWork],
    /// Changes to apply again first.
    pub(crate) replay: &'a [LoggedChange],
    /// Fenced namespaces: the work has no rows of theirs, and none of their changes are applied again.
    pub(crate) fences: &'a Fences,
    /// Whether the fences are to be recorded.
    pub(crate) is_behind: bool,
    /// Whether the commit must be on the disk.
    pub(crate) is_durable: bool,
    /// What to reclaim.
    pub(crate) chores: Chores,
    /// Time of day.
    pub(crate) now: Timestamp,
    /// Rows that cannot be read, by physical key, and the error that their changes are answered with.
    pub(crate) unreadable: &'a BTreeMap<Vec<u8>, StoreError>,
    /// Rows and namespaces that are not reclaimed for now.
    pub(crate) spared: &'a Spared,
    /// Records each step.
    pub(crate) trace: &'a CommitTrace,
}

/// A transaction that is ready to be committed.
pub(crate) struct Prepared {
    pub(crate) transaction: WriteTransaction,
    /// Answers in the order of the work.
    pub(crate) answers: Vec<WorkAnswer>,
    /// Mutations that take effect.
    pub(crate) mutations: u64,
    /// Changes made, if the commit is not to be durable.
    pub(crate) log: Vec<LoggedChange>,
    /// Hashes of the keys of all changed rows.
    pub(crate) changed: Vec<u64>,
    /// Sizes of the namespaces whose rows were changed.
    pub(crate) sizes: Vec<NamespaceSize>,
    pub(crate) swept: Swept,
    pub(crate) purged: Purged,
}

/// A failure before the commit, after which there is nothing to commit.
pub(crate) struct Unprepared {
    pub(crate) failure: FileError,
    /// Whether the transaction was aborted properly; the database is still usable then.
    pub(crate) is_aborted: bool,
}

impl Unprepared {
    /// Returns whether one part of the file could not be read while the rest can be.
    pub(crate) fn is_unreadable(&self) -> bool {
        matches!(self.failure, FileError::Unreadable(_))
    }
}

/// The result of the changes of a transaction.
struct AppliedChanges {
    answers: Vec<WorkAnswer>,
    mutations: u64,
    log: Vec<LoggedChange>,
    changed: Vec<u64>,
    sizes: Vec<NamespaceSize>,
    swept: Swept,
    purged: Purged,
}

/// Applies all changes of a commit in a transaction, or aborts it. `progress` returns the progress record to
/// store with them, once the versions are known.
pub(crate) fn prepare(
    database: &Database,
    order: &CommitInput<'_>,
    versions: &mut VersionClock,
    progress: impl FnOnce(&VersionClock) -> ShardProgress,
) -> Result<Prepared, Unprepared> {
    let durability = if order.is_durable {
        Durability::Immediate
    } else {
        Durability::None
    };
    let begun = guarded(|| begin_write(database, durability));
    let transaction = begun.map_err(|failure| Unprepared {
        failure,
        is_aborted: false,
    })?;
    // The transaction outlives an unwinding, so that it is aborted and not merely abandoned: after an
    // abandoned one redb would walk the whole file at the next opening.
    match isolated(|| change(&transaction, order, versions, progress)) {
        Ok(AppliedChanges {
            answers,
            mutations,
            log,
            changed,
            sizes,
            swept,
            purged,
        }) => Ok(Prepared {
            transaction,
            answers,
            mutations,
            log,
            changed,
            sizes,
            swept,
            purged,
        }),
        Err(failure) => Err(Unprepared {
            failure,
            is_aborted: guarded(|| Ok(transaction.abort()?)).is_ok(),
        }),
    }
}

fn change(
    transaction: &WriteTransaction,
    order: &CommitInput<'_>,
    versions: &mut VersionClock,
    progress: impl FnOnce(&VersionClock) -> ShardProgress,
) -> Result<AppliedChanges, FileError> {
    let trace = order.trace;
    let mut writer = RowWriter::of(transaction, !order.is_durable, trace)?;
    for (index, change) in order.replay.iter().enumerate() {
        // Changes that were acknowledged before their namespace was fenced are dropped with the namespace.
        if !key_codec::namespace_of(&change.key).is_some_and(|id| order.fences.holds(id)) {
            trace.replay(index);
            writer.replay(change)?;
            writer.settle_index()?;
        }
    }
    let mut answers = Vec::with_capacity(order.work.len());
    let mut mutations = 0;
    // Consecutive writes are planned together.
    let runs = order
        .work
        .chunk_by(|one, next| as_write(one).is_some() && as_write(next).is_some());
    for run in runs {
        trace.work(answers.len(), as_write(&run[0]).is_some());
        mutations += apply(&mut writer, order, run, versions, &mut answers)?;
        writer.settle_index()?;
    }
    let purging = order.fences.purging();
    let purged_rows_max = order.chores.purged_rows_max;
    let purged = writer.purge(purging, purged_rows_max, order.now, order.spared)?;
    let swept = writer.sweep(&order.chores, mutations, &order.spared.entries)?;
    trace.shared();
    let (log, changed, sizes) = writer.into_changes();
    let mut meta = unisolated(|| transaction.open_table(META))?;
    if order.is_behind || !purged.done.is_empty() {
        let mut fences = order.fences.clone();
        fences.note_purged(&purged.done);
        meta.insert(META_FENCES, &fences.encode()[..])?;
    }
    let sizes = sizes.record(&mut meta)?;
    meta.insert(META_PROGRESS, &progress(versions).encode()[..])?;
    drop(meta);
    Ok(AppliedChanges {
        answers,
        mutations,
        log,
        changed,
        sizes,
        swept,
        purged,
    })
}

/// Applies one piece of work, or consecutive writes. Returns the number of mutations that take effect.
fn apply(
    writer: &mut RowWriter<'_>,
    order: &CommitInput<'_>,
    run: &[QueuedWork],
    versions: &mut VersionClock,
    answers: &mut Vec<WorkAnswer>,
) -> Result<u64, FileError> {
    match &run[0] {
        QueuedWork::Write(_) => apply_writes(writer, order, run, versions, answers),
        QueuedWork::DeleteRange(delete) => {
            let (deleted, rows) = apply_removal(writer, delete, order.now)?;
            answers.push(WorkAnswer::DeleteRange(deleted));
            Ok(rows)
        }
        QueuedWork::Raise(_) => {
            answers.push(WorkAnswer::Raised);
            Ok(0)
        }
    }
}

fn apply_removal(
    writer: &mut RowWriter<'_>,
    delete: &DeleteRange,
    now: Timestamp,
) -> Result<(Deleted, u64), FileError> {
    let bounds = (
        Bound::Included(&delete.bounds.0[..]),
        Bound::Excluded(&delete.bounds.1[..]),
    );
    let rows_max = delete.rows_max.clamp(1, REMOVED_ROWS_MAX);
    let removed = writer.remove_range(bounds, delete.prefix_len, rows_max, now)?;
    let deleted = Deleted {
        rows: removed.visible_rows,
        bytes: removed.visible_bytes,
        resume_after: removed.resume_after,
    };
    Ok((deleted, removed.rows))
}

fn apply_writes(
    rows: &mut RowWriter<'_>,
    order: &CommitInput<'_>,
    run: &[QueuedWork],
    versions: &mut VersionClock,
    answers: &mut Vec<WorkAnswer>,
) -> Result<u64, FileError> {
    let writes: Vec<&Write> = run.iter().filter_map(as_write).collect();
    let mut plan = CommitPlan::of(&writes);
    plan.leave_out(order.unreadable);
    plan.read_bases(|key| rows.base(key))?;
    plan.decide(order.shard, versions, order.now);
    let mut row = Vec::new();
    let written = plan.apply(order.now, |key, effect| match effect {
        RowEffect::None => Ok(None),
        RowEffect::Remove => rows.remove(key),
        RowEffect::Put(head, value) => {
            row_codec::encode(&mut row, key, head, value);
            rows.put(key, head, &row)
        }
    })?;
    answers.extend(written.into_iter().map(WorkAnswer::Write));
    Ok(plan.written() as u64)
}

fn as_write(work: &QueuedWork) -> Option<&Write> {
    match work {
        QueuedWork::Write(write) => Some(write),
        QueuedWork::DeleteRange(_) | QueuedWork::Raise(_) => None,
    }
}
