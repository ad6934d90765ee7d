//! Copies of Umbo's own records (namespaces, tokens, policies, lists), as a store keeps them.
//!
//! The records have one home: a partition of the home shard, where a change is one durable compare-and-set.
//! All other nodes hold a copy at a revision. A store keeps the newest copy that it received, and raises its
//! fences in every shard; it does not interpret the records. The invariant: of two copies the one with the
//! higher revision is valid, and copies with equal revisions are equal.

use bytes::Bytes;
use umbo_types::NamespaceId;

/// Position of a copy in the order of all copies: by epoch, then by number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordsRevision {
    /// Number of the home: an operator who promotes another shard begins the next epoch. 0 in the revision
    /// before the first change.
    pub epoch: u64,
    /// Number of changes, over all epochs.
    pub number: u64,
}

/// Umbo's own records at one revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordsCopy {
    /// The revision.
    pub revision: RecordsRevision,
    /// Namespaces that were removed, in ascending order. Shards refuse all work for them and purge their
    /// rows. Never holds [`NamespaceId::SYSTEM`]; an id that is in one copy is in every later one.
    pub fenced: Vec<NamespaceId>,
    /// All records, in the encoding of their owner. Opaque to a store.
    pub content: Bytes,
}
