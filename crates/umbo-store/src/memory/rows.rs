//! Rows of a partition of the memory store.

use std::collections::BTreeMap;

use bytes::Bytes;
use umbo_types::UploadId;

use crate::commit_view::StoredRow;
use crate::request::SortRange;

/// Rows of a partition by sort key. Plain bytes, since the bounds of a range may be longer than
/// any sort key.
pub(super) type Partition = BTreeMap<Bytes, StoredRow>;

/// Returns the uploads that rows refer to.
pub(super) fn referred<P>(rows: &BTreeMap<P, Partition>) -> impl Iterator<Item = UploadId> {
    let rows = rows.values().flat_map(BTreeMap::values);
    rows.filter_map(|stored| Some(stored.row.value.large()?.upload))
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
