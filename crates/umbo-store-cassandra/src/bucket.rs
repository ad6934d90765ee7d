//! The name of a bucket.

use umbo_routing::Slot;
use umbo_types::{Key, NamespaceId};

/// Some hash slots of a namespace with all its datasets: a Cassandra partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BucketId {
    /// The namespace: the id that its datasets are placed by.
    pub(crate) identity: NamespaceId,
    pub(crate) number: u16,
}

impl BucketId {
    pub(crate) fn slot_of(self, key: &Key) -> u16 {
        Slot::of(self.identity, &key.partition).index()
    }
}
