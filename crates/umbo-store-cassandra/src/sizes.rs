//! Sizes of namespaces by shard, as the guards of their buckets have them.
//!
//! The guards have the sum of each bucket, exactly. A process reads them all when it starts and in each round of
//! reclaiming, and follows its own commits; so it learns of the commits of other processes within a round.

use std::collections::{BTreeMap, HashMap};

use umbo_store::NamespaceSize;
use umbo_types::NamespaceId;

use crate::bucket::BucketId;
use crate::found::SizeOf;

/// Sizes of the datasets of a bucket.
type BucketSizes = BTreeMap<i32, SizeOf>;

/// Sizes of a shard.
#[derive(Debug, Default)]
pub(crate) struct ShardSizes {
    by_dataset: BTreeMap<NamespaceId, SizeOf>,
    /// The sizes that each bucket is counted with.
    by_bucket: HashMap<BucketId, BucketSizes>,
}

impl ShardSizes {
    /// Counts a bucket with these sizes instead of the sizes before.
    pub(crate) fn count(&mut self, bucket: BucketId, sizes: &BucketSizes) {
        let before = self.by_bucket.remove(&bucket).unwrap_or_default();
        for (dataset, (rows, bytes, saved)) in before {
            self.add(dataset, (-rows, -bytes, -saved));
        }
        for (&dataset, &size) in sizes {
            self.add(dataset, size);
        }
        if !sizes.is_empty() {
            self.by_bucket.insert(bucket, sizes.clone());
        }
    }

    /// Returns whether a bucket is counted with these sizes.
    pub(crate) fn has_counted(&self, bucket: BucketId, sizes: &BucketSizes) -> bool {
        let counted = self.by_bucket.get(&bucket);
        counted.map_or(sizes.is_empty(), |counted| counted == sizes)
    }

    fn add(&mut self, dataset: i32, by: SizeOf) {
        let dataset = NamespaceId(dataset.cast_unsigned());
        let size = self.by_dataset.entry(dataset).or_default();
        *size = (size.0 + by.0, size.1 + by.1, size.2 + by.2);
        if *size == (0, 0, 0) {
            self.by_dataset.remove(&dataset);
        }
    }

    pub(crate) fn datasets(&self) -> impl Iterator<Item = NamespaceId> {
        self.by_dataset.keys().copied()
    }

    pub(crate) fn rows(&self) -> u64 {
        self.by_dataset
            .values()
            .map(|size| size.0.max(0).cast_unsigned())
            .sum()
    }

    /// Returns the mean bytes of a row of a dataset; 0 if it has none.
    pub(crate) fn mean_row(&self, dataset: NamespaceId) -> u64 {
        let size = self.by_dataset.get(&dataset).filter(|size| size.0 > 0);
        size.map_or(0, |size| (size.1 / size.0).max(0).cast_unsigned())
    }

    pub(crate) fn report(&self) -> Vec<NamespaceSize> {
        let size = |(&namespace, &(rows, bytes, saved)): (&NamespaceId, &SizeOf)| NamespaceSize {
            namespace,
            rows: rows.max(0).cast_unsigned(),
            bytes: bytes.max(0).cast_unsigned(),
            bytes_saved: saved.max(0).cast_unsigned(),
        };
        // Rows of fast writes are not counted.
        let counted = self.by_dataset.iter().filter(|(_, size)| size.0 >= 0);
        counted.map(size).collect()
    }
}

/// Adds to the size of a dataset in a guard, and drops it once the dataset has no row.
pub(crate) fn add_size(sizes: &mut BucketSizes, dataset: NamespaceId, by: SizeOf) {
    let dataset = dataset.0.cast_signed();
    let size = sizes.entry(dataset).or_default();
    *size = (size.0 + by.0, size.1 + by.1, size.2 + by.2);
    if size.0 <= 0 {
        sizes.remove(&dataset);
    }
}
