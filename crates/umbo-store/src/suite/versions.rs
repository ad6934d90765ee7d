//! The versions that a store has given, and the check that each new one is in order.

use std::collections::{BTreeMap, BTreeSet};

use umbo_types::{Key, NamespaceId, PartitionKey, ShardId, Version};

use crate::suite::subject::WriteResult;
use crate::{Store, VersionOrder, WriteRequest};

/// The highest version given among the writes that the engine orders.
#[derive(Debug, Default)]
pub(super) struct Versions(BTreeMap<Ordered, Version>);

/// Writes among which versions grow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Ordered {
    Partition(NamespaceId, PartitionKey),
    Shard(ShardId),
}

impl Ordered {
    fn of(store: &dyn Store, namespace: NamespaceId, partition: &PartitionKey) -> Self {
        match store.capabilities().versions {
            VersionOrder::Partition => Self::Partition(namespace, partition.clone()),
            VersionOrder::Shard => Self::Shard(store.shard_map().locate(namespace, partition)),
        }
    }
}

impl Versions {
    /// Checks the versions of a request: each at least the proposed one, above all that its shard
    /// (or partition, as the engine declares) gave to the requests before, given once, and growing along the
    /// mutations of one key. In what order an engine takes the different keys of one request is its own affair.
    pub(super) fn check(
        &mut self,
        store: &dyn Store,
        request: &WriteRequest,
        answers: &[WriteResult],
    ) {
        let mut given: BTreeMap<Ordered, BTreeSet<Version>> = BTreeMap::new();
        let mut of_key: BTreeMap<&Key, Version> = BTreeMap::new();
        for (mutation, answer) in request.mutations.iter().zip(answers) {
            let Ok(written) = answer else { continue };
            let version = written.version;
            assert!(version >= request.proposed, "lower than proposed");
            let ordered = Ordered::of(store, request.namespace, &mutation.key.partition);
            let last = self.0.get(&ordered).copied().unwrap_or_default();
            assert!(
                version > last,
                "{version:?} follows {last:?} on {ordered:?}"
            );
            let is_new = given.entry(ordered).or_default().insert(version);
            assert!(is_new, "{version:?} was given twice");
            let before = of_key.insert(&mutation.key, version);
            assert!(before < Some(version), "out of order within a key");
        }
        for (ordered, versions) in given {
            let highest = versions.last().copied().unwrap_or_default();
            self.0.insert(ordered, highest);
        }
    }
}
