//! The status of a node's shards, for dispatchers and operators.

use std::cmp::Reverse;

use umbo_store::{ShardState, ShardStatus, Store};

use crate::ownership::{Ownership, UNOPENED};

/// Most namespaces whose sizes a status tells of a shard, about 12 bytes each: dispatchers ask every second.
const SIZES_MAX: usize = 1_000;

/// Returns the status of the shards that the map assigns to the node, in order.
pub(crate) fn own_shards(store: &dyn Store, ownership: &Ownership) -> Vec<ShardStatus> {
    let mut shards = store.status();
    shards.retain(|status| ownership.is_own(status.shard));
    for shard in ownership.unopened() {
        shards.retain(|status| status.shard != shard);
        let state = ShardState::Unavailable(UNOPENED.to_owned());
        shards.push(ShardStatus::new(shard, state));
    }
    shards.sort_by_key(|status| status.shard);
    shards.iter_mut().for_each(keep_largest);
    shards
}

/// Keeps the sizes of the largest namespaces, and counts the omitted ones.
fn keep_largest(status: &mut ShardStatus) {
    let Some(sizes) = &mut status.sizes else {
        return;
    };
    if sizes.len() > SIZES_MAX {
        sizes.select_nth_unstable_by_key(SIZES_MAX, |size| Reverse(size.bytes));
        status.sizes_omitted += (sizes.len() - SIZES_MAX) as u64;
        sizes.truncate(SIZES_MAX);
        sizes.sort_unstable_by_key(|size| size.namespace);
    }
}

#[cfg(test)]
mod tests {
    use umbo_store::NamespaceSize;
    use umbo_types::{NamespaceId, ShardId};

    use super::*;

    fn status(namespaces: u32) -> ShardStatus {
        let size = |id| NamespaceSize {
            namespace: NamespaceId(id),
            rows: 1,
            // The largest have the middle ids.
            bytes: u64::from(id.min(namespaces - id)),
            bytes_saved: 0,
        };
        ShardStatus {
            sizes: Some((1..=namespaces).map(size).collect()),
            ..ShardStatus::new(ShardId(0), ShardState::Available)
        }
    }

    #[test]
    fn the_largest_namespaces_are_told_and_the_others_are_counted() {
        for (namespaces, omitted) in [(1, 0), (1_000, 0), (1_001, 1), (100_000, 99_000)] {
            let mut status = status(namespaces);
            let mut bytes: Vec<u64> = status.sizes.iter().flatten().map(|s| s.bytes).collect();
            bytes.sort_unstable_by_key(|bytes| Reverse(*bytes));
            keep_largest(&mut status);
            let told = status.sizes.unwrap();
            assert_eq!(status.sizes_omitted, omitted);
            assert!(told.is_sorted_by_key(|size| size.namespace));
            let sum: u64 = told.iter().map(|size| size.bytes).sum();
            assert_eq!(sum, bytes.iter().take(SIZES_MAX).sum::<u64>());
        }
    }
}
