//! Sizes of namespaces over all shards, from the status of the shards: costs no read of the store.

use std::collections::HashMap;

use umbo_api::admin::NamespaceSize;
use umbo_store::ShardStatus;

/// The sizes of all namespaces at one time.
#[derive(Debug, Default)]
pub(super) struct NamespaceSizes {
    /// Rows and bytes by the id of the namespace.
    counted: HashMap<u32, (u64, u64)>,
    /// Shards that did not tell.
    without: Vec<u16>,
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
            for size in own {
                let sum = sizes.counted.entry(size.namespace.0).or_default();
                *sum = (sum.0 + size.rows, sum.1 + size.bytes);
            }
        }
        sizes
    }

    /// Returns the size of a namespace.
    pub(super) fn get(&self, id: u32) -> NamespaceSize {
        let (rows, bytes) = self.counted.get(&id).copied().unwrap_or_default();
        NamespaceSize {
            rows,
            bytes,
            without_shards: self.without.clone(),
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
}
