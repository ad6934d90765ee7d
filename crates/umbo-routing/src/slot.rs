//! Slots: the fixed unit for dividing partitions among shards.

use umbo_types::{NamespaceId, PartitionKey};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// One of the 4,096 slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(u16);

impl Slot {
    /// Returns the slot of a partition: the upper twelve bits of XXH3-64 over the partition key, seeded with
    /// the namespace id, so that equal keys of two namespaces have different slots.
    pub fn of(namespace: NamespaceId, partition: &PartitionKey) -> Self {
        let hash = xxh3_64_with_seed(partition.as_bytes(), u64::from(namespace.0));
        Self((hash >> 52) as u16)
    }

    /// Returns the slot's number, below [`SLOTS`](umbo_types::limits::SLOTS).
    pub const fn index(self) -> u16 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(namespace: u32, key: &str) -> u16 {
        Slot::of(
            NamespaceId(namespace),
            &PartitionKey::new(key.to_owned()).unwrap(),
        )
        .index()
    }

    /// Stored data is found with this function: a change of a value here is a change of the format.
    #[test]
    fn slots_of_known_keys_never_change() {
        assert_eq!(
            [slot(1, "a"), slot(2, "a"), slot(1, "US")],
            [GOLDEN_A1, GOLDEN_A2, GOLDEN_US]
        );
    }

    const GOLDEN_A1: u16 = 3_375;
    const GOLDEN_A2: u16 = 2_727;
    const GOLDEN_US: u16 = 2_200;

    #[test]
    fn keys_spread_evenly() {
        let mut counts = vec![0_u32; usize::from(umbo_types::limits::SLOTS)];
        for n in 0..409_600 {
            counts[usize::from(slot(7, &format!("key-{n}")))] += 1;
        }
        // Poisson with mean 100: six standard deviations.
        assert!(counts.iter().all(|&count| (40..=160).contains(&count)));
    }
}
