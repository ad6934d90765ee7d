//! One commit as one transaction: all its changes, up to but not including the commit itself.
//!
//! The order within a transaction: changes of the log, the work in order of arrival, one step of the purge and one of
//! the sweeper, the records of fences, of sizes and of progress.

use std::collections::BTreeMap;
use std::ops::Bound;

use redb::{Database, Table, WriteTransaction};
use umbo_store::{DatasetGroups, FencingTokens, NamespaceSize, StoreError, give_way};
use umbo_types::{NamespaceId, ShardId, Timestamp, VersionClock};

use crate::bad_read::{isolated, unisolated};
use crate::committer::chores::Chores;
use crate::committer::datasets::CommitterDatasets;
use crate::committer::large::LargeWriter;
use crate::committer::limits::{PUT_GIVES_WAY_EVERY, SHORT_COMMIT_ROWS_MAX};
use crate::committer::mirrors::{apply_removal, mirror, read_written};
use crate::committer::plan::{CommitPlan, UploadUse};
use crate::committer::spared::Spared;
use crate::committer::trace::CommitTrace;
use crate::committer::writer::{Purged, RowWriter, Swept};
use crate::dataset_groups::{self, META_DATASETS};
use crate::fences::{Fences, META_FENCES};
use crate::fencing_tokens::{self, META_RUNS};
use crate::file_error::{FileError, guarded};
use crate::key_codec;
use crate::memtable::{Frozen, Overlay};
use crate::row_codec;
use crate::shard_file::begin_write;
use crate::stranded::StrandedRows;
use crate::tables::{META, ShardProgress};
use crate::work::{QueuedWork, WorkAnswer, WriteWork};
use crate::write_log::LogMark;
use crate::written::WrittenKeys;

/// The input of a commit.
pub(crate) struct CommitInput<'a> {
    /// The shard, for errors.
    pub(crate) shard: ShardId,
    /// The work, in order of arrival.
    pub(crate) work: &'a [QueuedWork],
    /// Changes of the log that the file does not have yet. They are made first.
    pub(crate) overlay: Overlay,
    /// What to record about the log.
    pub(crate) log_mark: LogMark,
    /// Fenced namespaces: the work has no rows in them, and changes of the log in them are dropped.
    pub(crate) fences: &'a Fences,
    /// The datasets that take the same writes. The work is already assigned to the datasets that decide it.
    pub(crate) datasets: &'a CommitterDatasets,
    /// The latest runs of loads, including the runs of the work.
    pub(crate) runs: &'a FencingTokens,
    /// Whether fences, groups and runs are to be recorded.
    pub(crate) is_behind: bool,
    /// What to reclaim.
    pub(crate) chores: Chores,
    /// Time of day.
    pub(crate) now: Timestamp,
    /// No upload is due before this instant; `None` if no upload will be due.
    pub(crate) next_upload_due: Option<Timestamp>,
    /// Most bytes of keys and idempotency records of a namespace.
    pub(crate) idempotency_bytes_max: u64,
    /// Unreadable rows, by physical key, and the error that answers their changes. Changes of the log are stranded.
    pub(crate) unreadable: &'a BTreeMap<Vec<u8>, StoreError>,
    /// Whether new rows may be packed. False while parts of the file are known to be unreadable, because an unreadable
    /// row could not be told from the others.
    pub(crate) may_pack: bool,
    /// Rows and namespaces that are not reclaimed for now.
    pub(crate) spared: &'a Spared,
    /// Records each step.
    pub(crate) trace: &'a CommitTrace,
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

/// The changes of a transaction that is ready to be committed.
pub(crate) struct AppliedChanges {
    /// Answers in the order of the work.
    pub(crate) answers: Vec<WorkAnswer>,
    /// Mutations that take effect.
    pub(crate) mutations: u64,
    /// Whether the commit has so many rows and records, reclaimed ones included, that it gives way.
    pub(crate) is_long: bool,
    /// Hashes of the keys of all rows that were replaced or removed.
    pub(crate) changed: Vec<u64>,
    /// Sizes of the namespaces whose rows were changed.
    pub(crate) sizes: Vec<NamespaceSize>,
    /// The memtables whose rows the commit has.
    pub(crate) applied: Vec<Frozen>,
    pub(crate) swept: Swept,
    pub(crate) purged: Purged,
}

/// Applies all changes of a commit in a transaction, or aborts it. `progress` returns the progress record to
/// store with them, once the versions are known.
pub(crate) fn prepare(
    database: &Database,
    order: &CommitInput<'_>,
    versions: &mut VersionClock,
    progress: impl FnOnce(&VersionClock) -> ShardProgress,
) -> Result<(WriteTransaction, AppliedChanges), Unprepared> {
    let begun = guarded(|| begin_write(database));
    let transaction = begun.map_err(|failure| Unprepared {
        failure,
        is_aborted: false,
    })?;
    // The transaction outlives an unwinding, so that it is aborted and not merely abandoned: after an
    // abandoned one redb would walk the whole file at the next opening.
    match isolated(|| change(&transaction, order, versions, progress)) {
        Ok(changes) => Ok((transaction, changes)),
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
    let mut writer = RowWriter::of(transaction, trace)?;
    let mut records = RowWriter::of_records(transaction, trace)?;
    let mut large = LargeWriter::new(transaction, order.next_upload_due);
    let logged = apply_logged(transaction, order, (&mut writer, &mut records))?;
    // The work must not give up an upload that such a row refers to.
    large.settle(&writer.take_references(), order.now)?;
    let mut answers = Vec::with_capacity(order.work.len());
    let mut mutations = 0;
    // Consecutive writes are planned together.
    let runs = order
        .work
        .chunk_by(|one, next| one.as_write().is_some() && next.as_write().is_some());
    for run in runs {
        trace.work(answers.len(), run[0].as_write().is_some());
        let mut tables = Tables {
            transaction,
            rows: &mut writer,
            records: &mut records,
            large: &mut large,
        };
        mutations += apply(&mut tables, order, run, versions, &mut answers)?;
        writer.settle_index()?;
        records.settle_index()?;
    }
    let purged = purge(transaction, order, &mut writer, &mut records)?;
    let swept = writer.sweep(&order.chores, mutations + logged, &order.spared.entries)?;
    let swept_records = records.sweep(&order.chores, mutations + logged, &order.spared.entries)?;
    let mut swept = swept.with_records(swept_records);
    large.settle(&writer.take_references(), order.now)?;
    trace.sweep(&[]);
    swept.next_upload_due = large.sweep(order.chores.sweep_until)?;
    drop(large);
    trace.shared();
    let (changed, sizes) = writer.into_changes();
    let (changed_records, sizes_of_records) = records.into_changes();
    let rows = mutations + (changed.len() + changed_records.len()) as u64;
    let mut meta = unisolated(|| transaction.open_table(META))?;
    record_fences(&mut meta, order, &purged)?;
    sizes_of_records.record_idempotency(&mut meta)?;
    let sizes = sizes.record(&mut meta)?;
    progress(versions).write(&mut meta)?;
    drop(meta);
    Ok(AppliedChanges {
        answers,
        mutations,
        is_long: rows > SHORT_COMMIT_ROWS_MAX,
        changed,
        sizes,
        applied: Vec::new(),
        swept,
        purged,
    })
}

/// Puts the changes of the log, and rows that were stranded before, into the tables of rows and of idempotency records;
/// changes of unreadable ones are stranded. Returns the number of changes that it made.
fn apply_logged<'txn>(
    transaction: &WriteTransaction,
    order: &CommitInput<'_>,
    (rows, records): (&mut RowWriter<'txn>, &mut RowWriter<'txn>),
) -> Result<u64, FileError> {
    let trace = order.trace;
    trace.shared();
    let mut stranded = StrandedRows::of(transaction)?;
    let overlay = order.overlay.clone().over(stranded.before());
    let mut changes = overlay.walk((Bound::Unbounded, Bound::Unbounded), false);
    let mut count = 0;
    while let Some((key, row)) = changes.peek() {
        let (is_record, namespace) = (key_codec::is_record(key), key_codec::namespace_of(key));
        let is_fenced = namespace.is_some_and(|id| {
            order.fences.holds(id) && !(is_record && order.datasets.groups.is_identity(id))
        });
        let writer = if is_record { &mut *records } else { &mut *rows };
        let is_unreadable = !is_fenced && order.unreadable.contains_key(key);
        if !is_fenced && !is_unreadable {
            give_way(count, PUT_GIVES_WAY_EVERY);
            writer.apply_logged(key, row)?;
            count += 1;
        }
        trace.shared();
        if is_unreadable {
            stranded.keep(key, row)?;
            writer.note_stranded(key);
        } else {
            stranded.forget(key)?;
        }
        changes.advance();
    }
    rows.settle_index()?;
    records.settle_index()?;
    Ok(count as u64)
}

/// Records fences, groups and runs, if they have changed.
fn record_fences(
    meta: &mut Table<'_, &'static str, &'static [u8]>,
    order: &CommitInput<'_>,
    purged: &Purged,
) -> Result<(), FileError> {
    if order.is_behind || !purged.done.is_empty() {
        let mut fences = order.fences.clone();
        fences.note_purged(&purged.done);
        meta.insert(META_FENCES, &fences.encode()[..])?;
    }
    if order.is_behind && order.datasets.groups != DatasetGroups::default() {
        let groups = dataset_groups::encode(&order.datasets.groups);
        meta.insert(META_DATASETS, &groups[..])?;
    }
    if order.is_behind && !order.runs.is_empty() {
        meta.insert(META_RUNS, &fencing_tokens::encode(order.runs)[..])?;
    }
    order.log_mark.write(meta)?;
    Ok(())
}

/// One step of the purge: of rows, of idempotency records, and of written keys of datasets.
fn purge(
    transaction: &WriteTransaction,
    order: &CommitInput<'_>,
    writer: &mut RowWriter<'_>,
    records: &mut RowWriter<'_>,
) -> Result<Purged, FileError> {
    let rows_max = order.chores.purged_rows_max;
    let purging = || order.datasets.to_purge(order.fences);
    let mut purged = writer.purge(purging(), rows_max, order.now, order.spared)?;
    // Idempotency records of a namespace with several datasets are kept while the namespace exists.
    let is_held = |id: &NamespaceId| order.datasets.groups.is_identity(*id);
    let ended = purging().filter(|id| !is_held(id));
    let of_records = records.purge(ended, rows_max, order.now, order.spared)?;
    purged.held = purged.done.iter().copied().filter(is_held).collect();
    purged.done.retain(|id| of_records.done.contains(id));
    if order.datasets.has_written && rows_max > 0 {
        order.trace.shared();
        let is_building = |id| order.datasets.groups.is_building(id);
        let more = WrittenKeys::of(transaction)?.forget(rows_max, is_building)?;
        purged.has_more_written = Some(more);
    }
    Ok(purged)
}

/// The tables that work changes within a transaction.
struct Tables<'a, 'txn> {
    transaction: &'txn WriteTransaction,
    rows: &'a mut RowWriter<'txn>,
    records: &'a mut RowWriter<'txn>,
    large: &'a mut LargeWriter<'txn>,
}

/// Applies one piece of work, or consecutive writes. Returns the number of mutations that take effect.
fn apply(
    tables: &mut Tables<'_, '_>,
    order: &CommitInput<'_>,
    run: &[QueuedWork],
    versions: &mut VersionClock,
    answers: &mut Vec<WorkAnswer>,
) -> Result<u64, FileError> {
    match &run[0] {
        QueuedWork::Write(_) => apply_writes(tables, order, run, versions, answers),
        QueuedWork::DeleteRange(delete) => {
            let (deleted, rows) =
                apply_removal(tables.transaction, tables.rows, delete, order.now)?;
            answers.push(WorkAnswer::DeleteRange(deleted));
            Ok(rows)
        }
        QueuedWork::Raise(_) => {
            answers.push(WorkAnswer::Raised);
            Ok(0)
        }
    }
}

fn apply_writes(
    tables: &mut Tables<'_, '_>,
    order: &CommitInput<'_>,
    run: &[QueuedWork],
    versions: &mut VersionClock,
    answers: &mut Vec<WorkAnswer>,
) -> Result<u64, FileError> {
    let writes: Vec<&WriteWork> = run.iter().filter_map(QueuedWork::as_write).collect();
    let mut plan = CommitPlan::of(&writes, &order.datasets.stamps);
    plan.leave_out(order.unreadable);
    if writes.iter().any(|write| write.idempotency.is_some()) {
        read_records(tables, order, &mut plan)?;
    }
    let large = &mut *tables.large;
    plan.use_uploads(|key, wanted| {
        order.trace.row(key);
        match wanted {
            UploadUse::Step(step) => large.sent_step(step, order.now),
            UploadUse::Reference(reference) => large.is_whole(&reference),
        }
    })?;
    let rows = &mut *tables.rows;
    plan.read_bases(|key, is_counter| rows.base(key, is_counter))?;
    if plan.has_loaded() {
        read_written(tables.transaction, order.trace, &mut plan)?;
    }
    plan.decide(order.shard, versions, order.now);
    let written = plan.apply(order.now, |changes| rows.apply(changes, order.may_pack))?;
    mirror(tables.transaction, rows, &plan)?;
    let mut row = Vec::new();
    for record in plan.records.changed() {
        row_codec::encode(&mut row, record.key, record.head, &record.value);
        tables.records.put(record.key, record.head, &row)?;
    }
    answers.extend(written.into_iter().map(WorkAnswer::Write));
    Ok(plan.written() as u64)
}

/// Reads the idempotency records of the writes, and the bytes that the records of their namespaces take.
fn read_records(
    tables: &Tables<'_, '_>,
    order: &CommitInput<'_>,
    plan: &mut CommitPlan<'_>,
) -> Result<(), FileError> {
    let meta = unisolated(|| tables.transaction.open_table(META))?;
    let sizes = tables.records.size_changes();
    plan.records.read(
        order.idempotency_bytes_max,
        |key| tables.records.record(key, order.now),
        |namespace| {
            order.trace.shared();
            sizes.idempotency_bytes(&meta, namespace)
        },
    )
}
