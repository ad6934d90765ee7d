//! The effects of work in the other datasets of its group, and the written keys that are recorded for them.
//!
//! All within the transaction of the work: a reader sees a write in all datasets or in no dataset. The invariant: a
//! step of a removal covers the same range in all datasets, and stays within its limit of rows in each of them.

use std::ops::Bound;

use bytes::Bytes;
use redb::WriteTransaction;
use umbo_store::Deleted;
use umbo_types::{NamespaceId, Timestamp};

use crate::committer::plan::{CommitPlan, RowEffect};
use crate::committer::trace::CommitTrace;
use crate::committer::writer::RowWriter;
use crate::file_error::FileError;
use crate::key_codec;
use crate::row_codec;
use crate::work::{DeleteRangeWork, REMOVED_ROWS_MAX};
use crate::written::WrittenKeys;

/// Reads which rows of a load were written by clients. This is a single look if clients wrote nothing in the dataset.
pub(super) fn read_written(
    transaction: &WriteTransaction,
    trace: &CommitTrace,
    plan: &mut CommitPlan<'_>,
) -> Result<(), FileError> {
    let written = WrittenKeys::of(transaction)?;
    let mut known: Option<(NamespaceId, bool)> = None;
    plan.read_written(|key| {
        trace.row(key);
        let Some(dataset) = key_codec::namespace_of(key) else {
            return Ok(false);
        };
        let has_any = match known {
            Some((other, has_any)) if other == dataset => has_any,
            _ => written.has_any(dataset)?,
        };
        known = Some((dataset, has_any));
        Ok(has_any && written.contains(key)?)
    })
}

/// Makes the effects of a plan in the datasets that did not decide it.
pub(super) fn mirror(
    transaction: &WriteTransaction,
    rows: &mut RowWriter<'_>,
    plan: &CommitPlan<'_>,
) -> Result<(), FileError> {
    if !plan.has_mirrored() {
        return Ok(());
    }
    let mut written = WrittenKeys::of(transaction)?;
    let mut row = Vec::new();
    for (key, group, effect) in plan.mirrored() {
        for dataset in group.mirrors() {
            let key = key_codec::in_namespace(key, dataset);
            match effect {
                RowEffect::None => continue,
                RowEffect::Remove => {
                    rows.remove(&key)?;
                }
                RowEffect::Put(head, value) => {
                    row_codec::encode(&mut row, &key, head, value);
                    rows.put(&key, head, &row)?;
                }
            }
            if group.building == Some(dataset) {
                written.note_row(&key)?;
            }
        }
    }
    Ok(())
}

/// Applies one step of the removal of a range. Returns the answer, and the number of rows that it removed from the
/// deciding dataset.
pub(super) fn apply_removal(
    transaction: &WriteTransaction,
    writer: &mut RowWriter<'_>,
    delete: &DeleteRangeWork,
    now: Timestamp,
) -> Result<(Deleted, u64), FileError> {
    let rows_max = delete.rows_max.clamp(1, REMOVED_ROWS_MAX);
    let (start, mut end) = (&delete.bounds.0, delete.bounds.1.clone());
    let mut last = None;
    if let Some(group) = &delete.group {
        for dataset in group.ids() {
            let bounds = bounds_in(dataset, start, &end);
            let beyond = writer.nth_beyond((&bounds.0, &bounds.1), rows_max)?;
            if let Some(nth) = beyond {
                last = nth.get(delete.prefix_len..).map(Bytes::copy_from_slice);
                // The successor of the last row of the step.
                end = [&end[..4], &nth[4..], &[0]].concat();
            }
        }
    }
    let step = |writer: &mut RowWriter<'_>, start: &[u8], end: &[u8]| {
        let bounds = (Bound::Included(start), Bound::Excluded(end));
        writer.remove_range(bounds, delete.prefix_len, rows_max, now)
    };
    let removed = step(writer, start, &end)?;
    if let Some(group) = &delete.group {
        for dataset in group.mirrors() {
            let (start, end) = bounds_in(dataset, start, &end);
            step(writer, &start, &end)?;
            if group.building == Some(dataset) {
                WrittenKeys::of(transaction)?.note_range(&start, &end)?;
            }
        }
    }
    let deleted = Deleted {
        rows: removed.visible_rows,
        bytes: removed.visible_bytes,
        resume_after: last.or(removed.resume_after),
    };
    Ok((deleted, removed.rows))
}

fn bounds_in(dataset: NamespaceId, start: &[u8], end: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let moved = |key| key_codec::in_namespace(key, dataset);
    (moved(start), moved(end))
}
