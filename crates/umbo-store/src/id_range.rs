//! Ranges of namespace ids. Fences are sent and kept as ranges.
//!
//! Ids are given in sequence and never again, so almost all ids below the newest one are fenced: a few ranges hold any
//! number of removed namespaces.

use umbo_types::NamespaceId;

/// The namespace ids from one to another, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IdRange {
    /// The lowest id.
    pub first: NamespaceId,
    /// The highest id, at least `first`.
    pub last: NamespaceId,
}

impl From<NamespaceId> for IdRange {
    fn from(id: NamespaceId) -> Self {
        let (first, last) = (id, id);
        Self { first, last }
    }
}

impl IdRange {
    /// Returns whether any of the ranges has an id. They ascend and do not overlap.
    #[inline]
    pub fn any_has(ranges: &[Self], id: NamespaceId) -> bool {
        let after = ranges.partition_point(|range| range.first <= id);
        let nearest = ranges[..after].last();
        nearest.is_some_and(|nearest| id <= nearest.last)
    }

    /// Returns the ids, in ascending order.
    pub fn ids(self) -> impl Iterator<Item = NamespaceId> {
        (self.first.0..=self.last.0).map(NamespaceId)
    }

    /// Returns the number of ids.
    pub fn count(self) -> u64 {
        u64::from(self.last.0 - self.first.0) + 1
    }

    /// Returns the parts that no `held` range has. The `held` ranges ascend and do not overlap. The id of Umbo's own
    /// records is in no part.
    pub fn beyond(self, held: &[Self]) -> Vec<Self> {
        let mut parts = Vec::new();
        let mut next = self.first.0.max(NamespaceId::SYSTEM.0 + 1);
        let mut add = |first, last| {
            if first <= last {
                let (first, last) = (NamespaceId(first), NamespaceId(last));
                parts.push(Self { first, last });
            }
        };
        let from = held.partition_point(|held| held.last < self.first);
        let overlapping = held[from..].iter();
        for held in overlapping.take_while(|held| held.first <= self.last) {
            add(next, held.first.0.saturating_sub(1));
            let Some(after) = held.last.0.checked_add(1) else {
                return parts;
            };
            next = next.max(after);
        }
        add(next, self.last.0);
        parts
    }

    /// Returns the fewest ranges with the same ids, in ascending order.
    pub fn joined(mut ranges: Vec<Self>) -> Vec<Self> {
        ranges.sort_unstable_by_key(|range| range.first);
        ranges.dedup_by(|next, kept| {
            let is_joined = next.first.0 <= kept.last.0.saturating_add(1);
            if is_joined {
                kept.last = kept.last.max(next.last);
            }
            is_joined
        });
        ranges
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const ID_MAX: u32 = 60;

    fn range(first: u32, last: u32) -> IdRange {
        let (first, last) = (NamespaceId(first), NamespaceId(last));
        IdRange { first, last }
    }

    fn ranges() -> impl Strategy<Value = Vec<IdRange>> {
        let one = (0..ID_MAX, 0..6_u32).prop_map(|(first, more)| range(first, first + more));
        prop::collection::vec(one, 0..12)
    }

    fn ids(ranges: &[IdRange]) -> BTreeSet<NamespaceId> {
        ranges.iter().flat_map(|range| range.ids()).collect()
    }

    proptest! {
        #[test]
        fn ranges_are_sets_of_ids(some in ranges(), others in ranges()) {
            let joined = IdRange::joined(some.clone());
            let all = ids(&some);
            prop_assert_eq!(&ids(&joined), &all);
            let is_apart = |one: &IdRange, next: &IdRange| one.last.0 + 1 < next.first.0;
            prop_assert!(joined.is_sorted_by(is_apart));
            prop_assert_eq!(joined.iter().map(|range| range.count()).sum::<u64>(), all.len() as u64);
            for id in (0..=ID_MAX + 6).map(NamespaceId) {
                prop_assert_eq!(IdRange::any_has(&joined, id), all.contains(&id));
            }
            for other in others {
                let left: BTreeSet<_> = other.ids().filter(|id| id.0 > 0 && !all.contains(id)).collect();
                let parts = other.beyond(&joined);
                prop_assert_eq!(&ids(&parts), &left);
                prop_assert_eq!(IdRange::joined(parts.clone()), parts);
            }
        }
    }

    #[test]
    fn the_last_ids_are_in_ranges_too() {
        let all = range(0, u32::MAX);
        assert_eq!(all.beyond(&[range(7, u32::MAX)]), [range(1, 6)]);
        assert_eq!(all.beyond(&[range(0, 7)]), [range(8, u32::MAX)]);
        assert_eq!(IdRange::joined(vec![range(9, 9), all]), [all]);
        assert_eq!(all.count(), 1 << 32);
    }
}
