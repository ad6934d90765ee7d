//! The shard map: contiguous ranges of slots, each owned by one shard.

use std::ops::RangeInclusive;
use std::sync::Arc;

use umbo_types::limits::SLOTS;
use umbo_types::{NamespaceId, PartitionKey, ShardId};

use crate::placements::{Misplaced, Placements};
use crate::slot::Slot;

/// Slots `first..=last` owned by one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotRange {
    /// First slot of the range.
    pub first: u16,
    /// Last slot of the range, included.
    pub last: u16,
    /// The shard that owns them.
    pub shard: ShardId,
}

/// Why ranges are not a valid shard map.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShardMapError {
    /// No or too many shards.
    #[error("a shard map has 1 to {SLOTS} shards, not {0}")]
    ShardCount(u32),
    /// A range ends before it begins, or beyond the last slot.
    #[error("slots {first}-{last} are not a range within 0-4095")]
    BadRange {
        /// First slot named.
        first: u16,
        /// Last slot named.
        last: u16,
    },
    /// A slot with two owners.
    #[error("slot {slot} is owned by shard {one} and by shard {other}")]
    TwoOwners {
        /// The slot.
        slot: u16,
        /// First owner of the slot.
        one: ShardId,
        /// Second owner of the slot.
        other: ShardId,
    },
    /// A slot without an owner.
    #[error("slot {0} has no owner")]
    Gap(u16),
}

/// The owner of each slot. Total: every slot has exactly one.
///
/// The map also has the placements of datasets, which clones share and comparisons leave out: see
/// [`Placements`].
#[derive(Debug, Clone)]
pub struct ShardMap {
    owners: Box<[ShardId]>,
    placements: Arc<Placements>,
}

impl PartialEq for ShardMap {
    fn eq(&self, other: &Self) -> bool {
        self.owners == other.owners
    }
}

impl Eq for ShardMap {}

impl ShardMap {
    /// Divides the slots evenly, in order, among shards `0..shards`.
    pub fn even(shards: u16) -> Result<Self, ShardMapError> {
        if shards == 0 || shards > SLOTS {
            return Err(ShardMapError::ShardCount(shards.into()));
        }
        let owner = |slot: u16| ShardId((u32::from(slot) * u32::from(shards) / 4_096) as u16);
        Ok(Self {
            owners: (0..SLOTS).map(owner).collect(),
            placements: Arc::default(),
        })
    }

    /// Checks that the ranges cover every slot once, and keeps them.
    pub fn from_ranges(ranges: &[SlotRange]) -> Result<Self, ShardMapError> {
        let mut owners: Vec<Option<ShardId>> = vec![None; SLOTS.into()];
        for &SlotRange { first, last, shard } in ranges {
            if first > last || last >= SLOTS {
                return Err(ShardMapError::BadRange { first, last });
            }
            for slot in first..=last {
                if let Some(one) = owners[usize::from(slot)].replace(shard) {
                    return Err(ShardMapError::TwoOwners {
                        slot,
                        one,
                        other: shard,
                    });
                }
            }
        }
        let owners = (0..SLOTS)
            .zip(owners)
            .map(|(slot, owner)| owner.ok_or(ShardMapError::Gap(slot)));
        Ok(Self {
            owners: owners.collect::<Result<_, _>>()?,
            placements: Arc::default(),
        })
    }

    /// Returns the smallest list of ranges that describes the map, in order of slots.
    pub fn ranges(&self) -> Vec<SlotRange> {
        let mut ranges: Vec<SlotRange> = Vec::new();
        for (slot, &shard) in (0..).zip(&*self.owners) {
            match ranges.last_mut() {
                Some(range) if range.shard == shard => range.last = slot,
                _ => ranges.push(SlotRange {
                    first: slot,
                    last: slot,
                    shard,
                }),
            }
        }
        ranges
    }

    /// Returns the shard that owns a slot.
    pub fn owner(&self, slot: Slot) -> ShardId {
        self.owners[usize::from(slot.index())]
    }

    /// Returns the shard that owns a partition.
    pub fn locate(&self, namespace: NamespaceId, partition: &PartitionKey) -> ShardId {
        self.owner(self.slot(namespace, partition))
    }

    /// Returns the shard that owns a partition, if the sender of a request has the same placement of its dataset: see
    /// [`Placements::agreed`].
    pub fn locate_agreed(
        &self,
        dataset: NamespaceId,
        sent: Option<NamespaceId>,
        partition: &PartitionKey,
    ) -> Result<ShardId, Misplaced> {
        let placed_as = self.placements.agreed(dataset, sent)?;
        Ok(self.owner(Slot::of(placed_as, partition)))
    }

    /// Returns the slot of a partition: the slot in the namespace's first dataset.
    pub fn slot(&self, namespace: NamespaceId, partition: &PartitionKey) -> Slot {
        Slot::of(self.placements.of(namespace), partition)
    }

    /// Returns the placements of the datasets.
    pub fn placements(&self) -> &Placements {
        &self.placements
    }

    /// Returns the slots of segment `segment` of `segments`; the segments divide the slots evenly and in order. Returns
    /// `None` if the segment has no slot or does not exist.
    pub fn segment(segment: u32, segments: u32) -> Option<RangeInclusive<u16>> {
        if segment >= segments || segments > u32::from(SLOTS) {
            return None;
        }
        let bound =
            |segment: u32| (u64::from(segment) * u64::from(SLOTS) / u64::from(segments)) as u16;
        Some(bound(segment)..=bound(segment + 1) - 1)
    }

    /// Returns the shards that own any of the slots, each once, in order of their first slot.
    pub fn owners_of(&self, slots: RangeInclusive<u16>) -> Vec<ShardId> {
        let mut shards = Vec::new();
        for slot in slots {
            let shard = self.owners[usize::from(slot)];
            if !shards.contains(&shard) {
                shards.push(shard);
            }
        }
        shards
    }

    /// Returns the owner of the first slot that another map assigns to another shard, or `None` if both maps are equal.
    pub fn first_difference(&self, other: &Self) -> Option<ShardId> {
        let mut owners = self.owners.iter().zip(&other.owners);
        let (own, _) = owners.find(|(own, other)| own != other)?;
        Some(*own)
    }

    /// Returns the number of distinct shards.
    pub fn shards(&self) -> usize {
        self.owners_of(0..=SLOTS - 1).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn even_maps_are_total_even_and_read_back(shards in 1_u16..=512) {
            let map = ShardMap::even(shards).unwrap();
            prop_assert_eq!(map.shards(), usize::from(shards));
            let ranges = map.ranges();
            let sizes: Vec<_> = ranges.iter().map(|range| range.last - range.first + 1).collect();
            prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
            prop_assert_eq!(ShardMap::from_ranges(&ranges).unwrap(), map);
        }

        #[test]
        fn segments_divide_the_slots(segments in 1_u32..=4_096) {
            let mut next = 0;
            for segment in 0..segments {
                let slots = ShardMap::segment(segment, segments).unwrap();
                prop_assert_eq!(*slots.start(), next);
                prop_assert!(slots.end() >= slots.start());
                next = slots.end() + 1;
            }
            prop_assert_eq!(next, SLOTS);
            prop_assert!(ShardMap::segment(segments, segments).is_none());
        }
    }

    #[test]
    fn a_map_with_a_gap_or_two_owners_is_refused() {
        let range = |first, last, shard| SlotRange {
            first,
            last,
            shard: ShardId(shard),
        };
        assert_eq!(
            ShardMap::from_ranges(&[range(0, 4_094, 0)]),
            Err(ShardMapError::Gap(4_095))
        );
        assert_eq!(
            ShardMap::from_ranges(&[range(0, 4_095, 0), range(7, 7, 1)]),
            Err(ShardMapError::TwoOwners {
                slot: 7,
                one: ShardId(0),
                other: ShardId(1)
            })
        );
        assert_eq!(
            ShardMap::from_ranges(&[range(0, 4_096, 0)]),
            Err(ShardMapError::BadRange {
                first: 0,
                last: 4_096
            })
        );
        assert_eq!(ShardMap::even(0), Err(ShardMapError::ShardCount(0)));
    }
}
