//! Rows of a partition of the memory store, and what a mutation makes of one.

use std::collections::BTreeMap;

use bytes::Bytes;
use umbo_types::{Row, Timestamp, UploadId, Value};

use crate::error::WriteError;
use crate::increment::{CounterRow, increment};
use crate::memory::uploads::Uploads;
use crate::request::{Change, RowStamp, SortRange, Written};

/// Rows of a partition by sort key. Plain bytes, since the bounds of a range may be longer than
/// any sort key.
pub(super) type Partition = BTreeMap<Bytes, StoredRow>;

/// A row, and the instant of its data if a load has put it.
#[derive(Debug, Clone)]
pub(super) struct StoredRow {
    pub(super) row: Row,
    pub(super) as_of: Option<Timestamp>,
}

/// Results of mutations of a request, each with its index.
pub(super) type WriteResults = Vec<(usize, Result<Written, WriteError>)>;

/// Returns the uploads that rows refer to.
pub(super) fn referred<P>(rows: &BTreeMap<P, Partition>) -> impl Iterator<Item = UploadId> {
    let rows = rows.values().flat_map(BTreeMap::values);
    rows.filter_map(|stored| Some(stored.row.value.large()?.upload))
}

pub(super) fn visible_stamp(rows: &Partition, sort: &[u8], now: Timestamp) -> Option<RowStamp> {
    let stored = rows.get(sort).filter(|stored| !stored.row.is_expired(now));
    stored.map(|stored| RowStamp {
        version: stored.row.version,
        as_of: stored.as_of,
    })
}

/// What a change makes of a row: the new number of an increment, and value and expiry; none where the row is removed.
type Changed = (Option<i64>, Option<(Value, Option<Timestamp>)>);

pub(super) fn changed(
    rows: &Partition,
    uploads: &Uploads,
    (sort, change): (&[u8], &Change),
    now: Timestamp,
) -> Result<Changed, WriteError> {
    Ok(match change {
        Change::Put { value, expires_at } => {
            if let Some(large) = value.large() {
                uploads.check(&large)?;
            }
            (None, Some((value.clone(), *expires_at)))
        }
        // Handled before: an upload is of no row.
        Change::Delete | Change::Upload(_) => (None, None),
        Change::Increment {
            by,
            expires_at,
            default_expiry,
        } => {
            let stored = rows.get(sort).filter(|stored| !stored.row.is_expired(now));
            let counter =
                stored.map(|stored| CounterRow::of(&stored.row.value, stored.row.expires_at));
            let (number, value, expires_at) =
                increment(counter.as_ref(), *by, *expires_at, *default_expiry)?;
            (Some(number), Some((value, expires_at)))
        }
    })
}

/// Returns the rows of a sort range, in order.
pub(super) fn within<'a>(
    rows: &'a Partition,
    range: &SortRange,
) -> impl DoubleEndedIterator<Item = (&'a Bytes, &'a StoredRow)> {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    // A map panics on a range whose end is before its start.
    let end = match &range.end {
        Some(end) => Excluded(end.max(&range.start)),
        None => Unbounded,
    };
    rows.range::<Bytes, _>((Included(&range.start), end))
}

/// Answers a group of which one mutation was refused.
pub(super) fn refuse(group: &[usize], refused: usize, error: &WriteError) -> WriteResults {
    let answer = |&index: &usize| {
        let error = if index == refused {
            error.clone()
        } else {
            WriteError::GroupAborted { index: refused }
        };
        (index, Err(error))
    };
    group.iter().map(answer).collect()
}
