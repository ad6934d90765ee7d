//! Requests to a store, and its answers.

use std::ops::RangeInclusive;

use bytes::{BufMut, Bytes, BytesMut};
use umbo_types::{Key, NamespaceId, PartitionKey, Timestamp, Value, Version};

use crate::fencing_tokens::FencingToken;
use crate::idempotency::Idempotency;
use crate::large::UploadStep;
use crate::row_batch::RowBatch;

/// Sort keys from `start` (included) to `end` (excluded), bytewise.
///
/// Bounds are plain bytes, not sort keys: the successor of the longest sort key is a byte longer
/// than any sort key may be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SortRange {
    /// First sort key of the range.
    pub start: Bytes,
    /// First sort key beyond the range, or `None` if the range has no end.
    pub end: Option<Bytes>,
}

impl SortRange {
    /// Returns the sort keys that begin with `prefix`.
    pub fn with_prefix(prefix: Bytes) -> Self {
        let end = prefix.iter().rposition(|&byte| byte != 0xFF).map(|at| {
            let mut end = BytesMut::from(&prefix[..=at]);
            end[at] += 1;
            end.freeze()
        });
        Self { start: prefix, end }
    }

    /// Returns the sort keys that are in both ranges.
    #[must_use]
    pub fn intersect(self, other: Self) -> Self {
        let end = match (self.end, other.end) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        Self {
            start: self.start.max(other.start),
            end,
        }
    }

    /// Returns the part of the range after `last`, the last row that a walk has visited.
    #[must_use]
    pub fn beyond(self, last: &[u8], reverse: bool) -> Self {
        if reverse {
            return Self {
                end: Some(Bytes::copy_from_slice(last)),
                ..self
            };
        }
        let mut start = BytesMut::with_capacity(last.len() + 1);
        start.put_slice(last);
        start.put_u8(0);
        Self {
            start: start.freeze(),
            ..self
        }
    }

    /// Returns whether the range can hold no key.
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// Returns whether a sort key is in the range.
    pub fn contains(&self, sort: &[u8]) -> bool {
        sort >= &self.start[..] && self.end.as_ref().is_none_or(|end| sort < &end[..])
    }
}

/// One chunk of the rows of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeRequest {
    /// Namespace of the partition.
    pub namespace: NamespaceId,
    /// The partition.
    pub partition: PartitionKey,
    /// The range of its rows.
    pub range: SortRange,
    /// Whether the last row comes first.
    pub reverse: bool,
    /// Most rows to return; at least 1. The store may return fewer and report that there are more.
    pub rows_max: u32,
    /// The chunk ends with the row whose returned bytes reach this sum. It also ends with the row with which
    /// [`CHUNK_BYTES_MAX`](umbo_types::limits::CHUNK_BYTES_MAX) bytes are read, returned or not.
    pub bytes_max: u32,
    /// Whether the values are left out.
    pub keys_only: bool,
}

/// Rows and bytes that a chunk read, whether or not they are returned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Touched {
    /// Rows read: the returned rows and expired rows.
    pub rows: u64,
    /// Bytes of the keys, media types and values of these rows. A value that is not returned counts if the engine read
    /// it. The keys of skipped rows count too.
    pub bytes: u64,
}

impl std::ops::AddAssign for Touched {
    fn add_assign(&mut self, more: Self) {
        self.rows += more.rows;
        self.bytes += more.bytes;
    }
}

/// Answer to a [`RangeRequest`]: a part of the range, as one snapshot if the engine declares that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Visible rows in the requested order.
    pub rows: RowBatch,
    /// Sort key of the last row visited (it may be expired), if more rows may follow: continue with
    /// [`SortRange::beyond`]. `None` when the range is exhausted.
    pub resume_after: Option<Bytes>,
    /// Rows and bytes read.
    pub touched: Touched,
}

/// One chunk of the rows that a shard has of a namespace, partition after partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanRequest {
    /// The namespace.
    pub namespace: NamespaceId,
    /// Only partitions of these slots.
    pub slots: RangeInclusive<u16>,
    /// Last row that the previous chunk visited, or `None` to begin.
    pub after: Option<Key>,
    /// Most rows to return; at least 1.
    pub rows_max: u32,
    /// The chunk ends with the row whose returned bytes reach this sum. It also ends with the row with which
    /// [`CHUNK_BYTES_MAX`](umbo_types::limits::CHUNK_BYTES_MAX) bytes are read, returned or not.
    pub bytes_max: u32,
    /// Whether the values are left out.
    pub keys_only: bool,
}

/// Answer to a [`ScanRequest`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanPage {
    /// Visible rows; their order depends on the engine and is stable only between equal scans.
    pub rows: RowBatch,
    /// Last row visited, if more rows of the shard may follow.
    pub resume_after: Option<Key>,
    /// Rows and bytes read.
    pub touched: Touched,
}

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Durability {
    /// Once it is on the disk.
    #[default]
    Sync,
    /// Once it is visible to readers; it is on the disk a moment later.
    Async,
}

/// Which mutations are applied together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Atomicity {
    /// Each mutation is independent.
    #[default]
    None,
    /// All mutations of one partition are applied together or not at all.
    Partition,
}

/// The condition on the visible row for a mutation to be applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    #[default]
    Always,
    /// There is no visible row (`If-None-Match: *`).
    Absent,
    /// There is a visible row (`If-Match: *`).
    Present,
    /// There is a visible row with one of these versions (`If-Match: "…"`).
    VersionIn(Vec<Version>),
    /// No visible row is newer than this instant, the instant of the data of a load. A row that was put under such a
    /// condition is as new as the instant of that condition; any other row is as new as its version. A row that is put
    /// keeps the instant, its `as_of`; the next write drops it.
    NotNewerThan(Timestamp),
    /// Since the build of the dataset began, no client has written or removed the row. It does not matter whether the
    /// row exists. Fails on every dataset that is not being built. A write under this condition changes that dataset
    /// alone, and a later such write replaces an earlier one.
    ///
    /// A row that is put gets the version that is given here, if one is: the version of the row in another cluster. Later
    /// versions are above it. The sender sets [`WriteRequest::not_before`] to its instant, and a version of the future is
    /// lowered as a proposal is. Of two such writes of a row with one version, either may stay.
    Unwritten(Option<Version>),
}

/// The input of a condition: the version of a visible row, and its `as_of` if a load has put it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowStamp {
    /// Version of the row.
    pub version: Version,
    /// Instant of its data, if it was put under [`Condition::NotNewerThan`].
    pub as_of: Option<Timestamp>,
}

impl From<Version> for RowStamp {
    fn from(version: Version) -> Self {
        let as_of = None;
        Self { version, as_of }
    }
}

impl Condition {
    /// Returns whether the condition holds for a visible row of this version that no load has put, or for an absent
    /// row.
    pub fn holds(&self, current: Option<Version>) -> bool {
        self.holds_for(current.map(RowStamp::from))
    }

    /// Returns whether the condition holds for a visible row, or for an absent one. [`Self::Unwritten`] is not about a
    /// visible row: it never holds here, and a shard that builds the dataset decides it.
    pub fn holds_for(&self, current: Option<RowStamp>) -> bool {
        match self {
            Self::Always => true,
            Self::Unwritten(_) => false,
            Self::Absent => current.is_none(),
            Self::Present => current.is_some(),
            Self::VersionIn(versions) => current.is_some_and(|row| versions.contains(&row.version)),
            Self::NotNewerThan(at) => current.is_none_or(|row| {
                let newest = Version::proposed_at(*at);
                row.as_of
                    .map_or(row.version <= newest, |as_of| as_of <= *at)
            }),
        }
    }

    /// Returns the `as_of` of a row that is put under this condition.
    pub const fn as_of(&self) -> Option<Timestamp> {
        match self {
            Self::NotNewerThan(at) => Some(*at),
            Self::Always
            | Self::Absent
            | Self::Present
            | Self::VersionIn(_)
            | Self::Unwritten(_) => None,
        }
    }

    /// Returns whether this is [`Self::Unwritten`].
    pub const fn is_unwritten(&self) -> bool {
        matches!(self, Self::Unwritten(_))
    }

    /// Returns the version that a row put under this condition gets, if it is not a new one.
    pub const fn kept_version(&self) -> Option<Version> {
        match self {
            Self::Unwritten(kept) => *kept,
            Self::Always
            | Self::Absent
            | Self::Present
            | Self::VersionIn(_)
            | Self::NotNewerThan(_) => None,
        }
    }
}

/// The change of a mutation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Stores a value.
    Put {
        /// The value.
        value: Value,
        /// From this instant on the row is no longer visible.
        expires_at: Option<Timestamp>,
    },
    /// Removes the row.
    Delete,
    /// Adds to the number in the value, the decimal text of a signed 64-bit number; an absent row counts as 0. An
    /// existing row keeps its media type, and a new row gets [`crate::NUMBER_TYPE`].
    Increment {
        /// The number to add.
        by: i64,
        /// New expiry of the row. With `None`, an existing row keeps its expiry.
        expires_at: Option<Timestamp>,
        /// Expiry of a row that is created, if `expires_at` is `None`.
        default_expiry: Option<Timestamp>,
    },
    /// Changes an upload of the shard of the row, but not the row; the condition is ignored. A step is applied or
    /// refused independently of its group, and is on the disk when it is answered.
    Upload(UploadStep),
}

/// One change of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutation {
    /// The row.
    pub key: Key,
    /// The change to make.
    pub change: Change,
    /// The condition for the change.
    pub condition: Condition,
}

/// A write of one or more rows of a namespace in one shard.
///
/// Mutations of one key are applied in the order of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteRequest {
    /// The namespace: one of the datasets of a group, or an id without a group.
    pub namespace: NamespaceId,
    /// Epoch of the group that the sender knows, or 0 if it knows no epoch. A shard that knows a lower epoch decides
    /// the write on `namespace`. Any other shard decides it on the live dataset: see
    /// [`DatasetGroup`](crate::DatasetGroup).
    pub epoch: u32,
    /// The mutations; at least one.
    pub mutations: Vec<Mutation>,
    /// Which mutations are applied together.
    pub atomicity: Atomicity,
    /// When the write is acknowledged.
    pub durability: Durability,
    /// Version proposed by the clock above the engine; the store may raise it.
    pub proposed: Version,
    /// Identifies the write so that a repetition is recognised, or `None` for a write that is applied each time.
    pub idempotency: Option<Idempotency>,
    /// Instant at which an irreversible change is due, or `None` for any other change. A shard whose believed time of
    /// day is earlier refuses the write with [`StoreError::TooEarly`](crate::StoreError::TooEarly): two clocks have to
    /// agree.
    pub not_before: Option<Timestamp>,
    /// The run of a load that makes the write, or `None` for all other writes.
    pub run: Option<FencingToken>,
}

/// A mutation that was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Version assigned to the mutation.
    pub version: Version,
    /// Whether there was a visible row before.
    pub existed: bool,
    /// The new number, of an increment.
    pub number: Option<i64>,
    /// Whether an earlier request with the same idempotency key had this answer, and nothing was applied now.
    pub is_replayed: bool,
}

impl Written {
    /// Makes the answer to a put or delete that was applied now.
    pub const fn new(version: Version, existed: bool) -> Self {
        Self {
            version,
            existed,
            number: None,
            is_replayed: false,
        }
    }
}

/// One bounded step of the removal of the rows of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteRangeRequest {
    /// Namespace of the partition: one of the datasets of a group, or an id without a group.
    pub namespace: NamespaceId,
    /// As [`WriteRequest::epoch`].
    pub epoch: u32,
    /// The partition.
    pub partition: PartitionKey,
    /// The range of its rows.
    pub range: SortRange,
    /// Most rows to remove in this step; at least 1. Each step is atomic. In a group, the step ends once it has removed
    /// this number of rows of any dataset.
    pub rows_max: u32,
    /// When the step is acknowledged.
    pub durability: Durability,
}

/// Answer to a [`DeleteRangeRequest`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Visible rows removed.
    pub rows: u64,
    /// Bytes of their sort keys and values.
    pub bytes: u64,
    /// Sort key of the last row visited, if rows may remain.
    pub resume_after: Option<Bytes>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_prefix_range_holds_exactly_what_begins_with_it(
            prefix in prop::collection::vec(prop_oneof![Just(0xFF_u8), any::<u8>()], 0..4),
            key in prop::collection::vec(prop_oneof![Just(0xFF_u8), Just(0_u8), any::<u8>()], 0..6),
        ) {
            let range = SortRange::with_prefix(prefix.clone().into());
            prop_assert_eq!(range.contains(&key), key.starts_with(&prefix));
        }

        #[test]
        fn beyond_leaves_out_what_was_visited_and_nothing_else(
            last in prop::collection::vec(0_u8..3, 0..4),
            key in prop::collection::vec(0_u8..3, 0..5),
        ) {
            let all = SortRange::default();
            prop_assert_eq!(all.clone().beyond(&last, false).contains(&key), key > last);
            prop_assert_eq!(all.beyond(&last, true).contains(&key), key < last);
        }
    }
}
