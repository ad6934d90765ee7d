//! The versions that a store has given, and the check that each new one is in order.

use std::collections::{BTreeMap, BTreeSet};

use umbo_routing::ShardMap;
use umbo_types::{Key, ShardId, Version};

use crate::WriteRequest;
use crate::suite::subject::WriteAnswer;

/// The highest version given on each shard.
#[derive(Debug, Default)]
pub(super) struct Versions(BTreeMap<ShardId, Version>);

impl Versions {
    /// Checks the versions of a request: each at least the proposed one, above all that the shard
    /// gave to the requests before, given once, and growing along the mutations of one key. In
    /// what order an engine takes the different keys of one request is its own affair.
    pub(super) fn check(
        &mut self,
        map: &ShardMap,
        request: &WriteRequest,
        answers: &[WriteAnswer],
    ) {
        let mut given: BTreeMap<ShardId, BTreeSet<Version>> = BTreeMap::new();
        let mut of_key: BTreeMap<&Key, Version> = BTreeMap::new();
        for (mutation, answer) in request.mutations.iter().zip(answers) {
            let Ok(written) = answer else { continue };
            let version = written.version;
            assert!(version >= request.proposed, "lower than proposed");
            let shard = map.locate(request.namespace, &mutation.key.partition);
            let last = self.0.get(&shard).copied().unwrap_or_default();
            assert!(version > last, "{version:?} follows {last:?} on {shard:?}");
            let is_new = given.entry(shard).or_default().insert(version);
            assert!(is_new, "{version:?} was given twice");
            let before = of_key.insert(&mutation.key, version);
            assert!(before < Some(version), "out of order within a key");
        }
        for (shard, versions) in given {
            let highest = versions.last().copied().unwrap_or_default();
            self.0.insert(shard, highest);
        }
    }
}
