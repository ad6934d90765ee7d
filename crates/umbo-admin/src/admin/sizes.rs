//! Sizes of namespaces over all shards, from the status of the shards: costs no read of the store.

use std::collections::{HashMap, HashSet};

use umbo_api::admin::NamespaceSize;
use umbo_store::ShardStatus;

/// The sizes of all namespaces at one time.
#[derive(Debug, Default)]
pub(super) struct NamespaceSizes {
    /// Rows and bytes by the id of the namespace.
    counted: HashMap<u32, NamespaceSize>,
    /// Shards that did not tell.
    without: Vec<u16>,
    /// Shards that told the sizes of some namespaces only, and these namespaces.
    partial: Vec<(u16, HashSet<u32>)>,
}

impl NamespaceSizes {
    /// Adds up the shards.
    pub(super) fn of(shards: Vec<ShardStatus>) -> Self {
        let mut sizes = Self::default();
        for status in shards {
            let Some(own) = status.sizes else {
                sizes.without.push(status.shard.0);
                continue;
            };
            if status.sizes_omitted > 0 {
                let told = own.iter().map(|size| size.namespace.0).collect();
                sizes.partial.push((status.shard.0, told));
            }
            for size in own {
                let sum = sizes.counted.entry(size.namespace.0).or_default();
                sum.rows += size.rows;
                sum.bytes += size.bytes;
                sum.bytes_saved += size.bytes_saved;
            }
        }
        sizes
    }

    /// Returns the size of a namespace.
    pub(super) fn get(&self, id: u32) -> NamespaceSize {
        let counted = self.counted.get(&id).cloned().unwrap_or_default();
        let silent = self.partial.iter().filter(|(_, told)| !told.contains(&id));
        let mut without_shards = self.without.clone();
        without_shards.extend(silent.map(|(shard, _)| shard));
        without_shards.sort_unstable();
        NamespaceSize {
            without_shards,
            ..counted
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbo_store::ShardState;
    use umbo_types::{NamespaceId, ShardId};

    fn status(shard: u16, sizes: Option<&[(u32, u64, u64)]>) -> ShardStatus {
        let size = |&(id, rows, bytes): &(u32, u64, u64)| umbo_store::NamespaceSize {
            namespace: NamespaceId(id),
            rows,
            bytes,
            bytes_saved: 0,
        };
        ShardStatus {
            sizes: sizes.map(|sizes| sizes.iter().map(size).collect()),
            ..ShardStatus::new(ShardId(shard), ShardState::Available)
        }
    }

    #[test]
    fn shards_are_added_up_and_those_that_do_not_tell_are_named() {
        let sizes = NamespaceSizes::of(vec![
            status(0, Some(&[(1, 2, 30), (2, 1, 9)])),
            status(1, None),
            status(2, Some(&[(2, 5, 50)])),
        ]);
        let of = |id| (sizes.get(id).rows, sizes.get(id).bytes);
        assert_eq!((of(1), of(2), of(3)), ((2, 30), (6, 59), (0, 0)));
        assert_eq!(sizes.get(1).without_shards, [1]);
    }

    #[test]
    fn a_shard_that_tells_the_largest_only_is_named_for_the_others() {
        let mut some = status(0, Some(&[(1, 2, 30)]));
        some.sizes_omitted = 5;
        let sizes = NamespaceSizes::of(vec![some, status(1, Some(&[(2, 5, 50)]))]);
        assert!(sizes.get(1).without_shards.is_empty());
        assert_eq!(
            (sizes.get(2).rows, sizes.get(2).without_shards),
            (5, vec![0])
        );
    }
}
