//! Sizes of namespaces by shard, as the guards of their buckets have them.
//!
//! The guards have the sum of each bucket, exactly. A process reads them all when it starts, and follows its own
//! commits; it learns of the commits of other processes at its next start.

use std::collections::BTreeMap;

use umbo_store::NamespaceSize;
use umbo_types::NamespaceId;

use crate::found::SizeOf;

/// Sizes by dataset.
#[derive(Debug, Default)]
pub(crate) struct ShardSizes(BTreeMap<NamespaceId, SizeOf>);

impl ShardSizes {
    pub(crate) fn add(&mut self, dataset: i32, by: SizeOf) {
        let dataset = NamespaceId(dataset.cast_unsigned());
        let size = self.0.entry(dataset).or_default();
        *size = (size.0 + by.0, size.1 + by.1, size.2 + by.2);
        if *size == (0, 0, 0) {
            self.0.remove(&dataset);
        }
    }

    pub(crate) fn datasets(&self) -> impl Iterator<Item = NamespaceId> {
        self.0.keys().copied()
    }

    pub(crate) fn rows(&self) -> u64 {
        self.0
            .values()
            .map(|size| size.0.max(0).cast_unsigned())
            .sum()
    }

    /// Returns the mean bytes of a row of a dataset; 0 if it has none.
    pub(crate) fn mean_row(&self, dataset: NamespaceId) -> u64 {
        let size = self.0.get(&dataset).filter(|size| size.0 > 0);
        size.map_or(0, |size| (size.1 / size.0).max(0).cast_unsigned())
    }

    pub(crate) fn report(&self) -> Vec<NamespaceSize> {
        let size = |(&namespace, &(rows, bytes, saved)): (&NamespaceId, &SizeOf)| NamespaceSize {
            namespace,
            rows: rows.max(0).cast_unsigned(),
            bytes: bytes.max(0).cast_unsigned(),
            bytes_saved: saved.max(0).cast_unsigned(),
        };
        self.0.iter().map(size).collect()
    }
}

/// Adds to the size of a dataset in a guard, and drops it once the dataset has no row.
pub(crate) fn add_size(sizes: &mut BTreeMap<i32, SizeOf>, dataset: NamespaceId, by: SizeOf) {
    let dataset = dataset.0.cast_signed();
    let size = sizes.entry(dataset).or_default();
    *size = (size.0 + by.0, size.1 + by.1, size.2 + by.2);
    if size.0 <= 0 {
        sizes.remove(&dataset);
    }
}
