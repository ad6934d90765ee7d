//! One commit as one transaction: everything that is to change, up to but not including the
//! commit itself.
//!
//! The order within a transaction: what an earlier failure has undone, removals of ranges, writes,
//! a step of the sweeper, the record of progress.

use std::ops::Bound;

use redb::{Database, Durability, WriteTransaction};
use umbo_store::{Deleted, PurgeProgress};
use umbo_types::{ShardId, Timestamp, VersionClock};

use crate::committer::plan::{Effect, Plan};
use crate::committer::writer::{Change, RowWriter, Swept};
use crate::failure::Failure;
use crate::key_codec;
use crate::row_codec;
use crate::shard_file::begin_write;
use crate::tables::{META, META_PROGRESS, Progress};
use crate::work::{Answer, REMOVED_ROWS_MAX, Work, Write, WriteAnswer};

/// What a commit is made of.
pub(crate) struct Order<'a> {
    /// The shard, for errors.
    pub(crate) shard: ShardId,
    /// What was asked for, in order of arrival.
    pub(crate) work: &'a [Work],
    /// Changes to make again first.
    pub(crate) replay: &'a [Change],
    /// Whether the commit is to be on the disk.
    pub(crate) is_durable: bool,
    /// Most rows to sweep.
    pub(crate) swept_rows_max: usize,
    /// Time of day.
    pub(crate) now: Timestamp,
}

/// A transaction that is ready to be committed.
pub(crate) struct Prepared {
    pub(crate) transaction: WriteTransaction,
    /// Answers in the order of the work.
    pub(crate) answers: Vec<Answer>,
    /// Mutations that take effect.
    pub(crate) mutations: u64,
    /// Changes made, if the commit is not to be durable.
    pub(crate) log: Vec<Change>,
    pub(crate) swept: Swept,
}

/// Makes all changes of a commit in a transaction. `progress` gives the record to store with them,
/// once the versions are known.
pub(crate) fn prepare(
    database: &Database,
    order: &Order<'_>,
    versions: &mut VersionClock,
    progress: impl FnOnce(&VersionClock) -> Progress,
) -> Result<Prepared, Failure> {
    let durability = if order.is_durable {
        Durability::Immediate
    } else {
        Durability::None
    };
    let transaction = begin_write(database, durability)?;
    let mut writer = RowWriter::of(&transaction, !order.is_durable)?;
    for change in order.replay {
        writer.replay(change)?;
        writer.settle_index()?;
    }
    let mut mutations = 0;
    let mut removals = Vec::new();
    for work in order.work {
        if let Some((answer, rows)) = apply_removal(&mut writer, work, order.now)? {
            removals.push(answer);
            mutations += rows;
        }
    }
    writer.settle_index()?;
    let (written, count) = apply_writes(&mut writer, order, versions)?;
    writer.settle_index()?;
    let swept = writer.sweep(order.now, order.swept_rows_max)?;
    let log = writer.into_log();
    transaction
        .open_table(META)?
        .insert(META_PROGRESS, &progress(versions).encode()[..])?;
    Ok(Prepared {
        transaction,
        answers: in_order(order.work, removals, written),
        mutations: mutations + count,
        log,
        swept,
    })
}

fn apply_removal(
    writer: &mut RowWriter<'_>,
    work: &Work,
    now: Timestamp,
) -> Result<Option<(Answer, u64)>, Failure> {
    match work {
        Work::Write(_) => Ok(None),
        Work::DeleteRange(delete) => {
            let bounds = (
                Bound::Included(&delete.bounds.0[..]),
                Bound::Excluded(&delete.bounds.1[..]),
            );
            let rows_max = delete.rows_max.clamp(1, REMOVED_ROWS_MAX);
            let removed = writer.remove_range(bounds, delete.prefix_len, rows_max, now)?;
            let answer = Answer::DeleteRange(Deleted {
                rows: removed.visible_rows,
                bytes: removed.visible_bytes,
                resume_after: removed.resume_after,
            });
            Ok(Some((answer, removed.rows)))
        }
        Work::Purge(purge) => {
            let (from, to) = key_codec::namespace_bounds(purge.namespace);
            let bounds = (
                from.as_ref().map(Vec::as_slice),
                to.as_ref().map(Vec::as_slice),
            );
            let rows_max = purge.rows_max.min(REMOVED_ROWS_MAX);
            let removed = writer.remove_range(bounds, 0, rows_max, now)?;
            let answer = Answer::Purge(PurgeProgress {
                rows: removed.rows,
                more: removed.has_more,
            });
            Ok(Some((answer, removed.rows)))
        }
    }
}

fn apply_writes(
    rows: &mut RowWriter<'_>,
    order: &Order<'_>,
    versions: &mut VersionClock,
) -> Result<(Vec<Vec<WriteAnswer>>, u64), Failure> {
    let writes: Vec<&Write> = order.work.iter().filter_map(as_write).collect();
    let mut plan = Plan::of(&writes);
    plan.read_bases(|key| rows.base(key))?;
    plan.decide(order.shard, versions, order.now);
    let mut row = Vec::new();
    let answers = plan.apply(order.now, |key, effect| match effect {
        Effect::None => Ok(None),
        Effect::Remove => rows.remove(key),
        Effect::Put(head, value) => {
            row_codec::encode(&mut row, key, head, value);
            rows.put(key, head, &row)
        }
    })?;
    Ok((answers, plan.written() as u64))
}

fn as_write(work: &Work) -> Option<&Write> {
    match work {
        Work::Write(write) => Some(write),
        Work::DeleteRange(_) | Work::Purge(_) => None,
    }
}

/// Merges the answers of removals and of writes into the order of the work.
fn in_order(work: &[Work], removals: Vec<Answer>, written: Vec<Vec<WriteAnswer>>) -> Vec<Answer> {
    let mut removals = removals.into_iter();
    let mut written = written.into_iter().map(Answer::Write);
    work.iter()
        .filter_map(|work| match work {
            Work::Write(_) => written.next(),
            Work::DeleteRange(_) | Work::Purge(_) => removals.next(),
        })
        .collect()
}
