//! The fences of a shard: the ids of removed namespaces, and which of them may still have rows.
//!
//! Owns the set and its record in the file. The committer holds the authoritative set, and publishes the ids
//! to readers with each snapshot. The invariants: a fenced id stays fenced, so that copies of the records may
//! be merged in any order; [`NamespaceId::SYSTEM`] is never fenced; an id is done only after a commit has
//! found no row of it.

use std::sync::Arc;

use umbo_store::IdRange;
use umbo_types::NamespaceId;

/// Name of the record of the [`Fences`].
pub(crate) const META_FENCES: &str = "fences";

const FORMAT: u8 = 2;
/// Format of previous versions, with each id by itself.
const FORMAT_OF_IDS: u8 = 1;
const ID_LEN: usize = 4;

/// Fenced namespaces of a shard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fences {
    /// The fewest ranges, in ascending order.
    fenced: Arc<[IdRange]>,
    /// Fenced namespaces whose rows may not all be reclaimed yet, in the order of reclaiming.
    purging: Vec<IdRange>,
}

impl Fences {
    /// Returns the fenced ids, in ascending order.
    pub(crate) fn fenced(&self) -> &Arc<[IdRange]> {
        &self.fenced
    }

    /// Returns the fenced ids that may still have rows.
    pub(crate) fn purging(&self) -> impl Iterator<Item = NamespaceId> {
        self.purging.iter().flat_map(|range| range.ids())
    }

    /// Returns the number of fenced ids that may still have rows.
    pub(crate) fn purging_count(&self) -> u64 {
        self.purging.iter().map(|range| range.count()).sum()
    }

    /// Returns whether a namespace is fenced.
    pub(crate) fn holds(&self, namespace: NamespaceId) -> bool {
        IdRange::any_has(&self.fenced, namespace)
    }

    /// Fences more namespaces. Returns whether any of them was not fenced before.
    pub(crate) fn raise(&mut self, ranges: &[IdRange]) -> bool {
        let new = ranges.iter().flat_map(|range| range.beyond(&self.fenced));
        let new = IdRange::joined(new.collect());
        if new.is_empty() {
            return false;
        }
        self.fenced = IdRange::joined([&self.fenced, &new[..]].concat()).into();
        self.purging.extend(new);
        true
    }

    /// Records that namespaces have no rows left.
    pub(crate) fn note_purged(&mut self, done: &[NamespaceId]) {
        let done = IdRange::joined(done.iter().map(|&id| id.into()).collect());
        let left = self.purging.iter().flat_map(|range| range.beyond(&done));
        self.purging = left.collect();
    }

    /// Encodes the record: `format u8 | count u32 | fenced ranges | count u32 | ranges with rows`, where a range is
    /// `first u32 | last u32`, all big endian.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        for ranges in [&self.fenced, &self.purging[..]] {
            put_ranges(&mut bytes, ranges);
        }
        bytes
    }

    /// Decodes the record, or returns `None` if the bytes are not a valid one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&format, rest) = bytes.split_first()?;
        let take = match format {
            FORMAT => take_ranges,
            FORMAT_OF_IDS => take_single_ids,
            _ => return None,
        };
        let (fenced, rest) = take(rest)?;
        let (purging, rest) = take(rest)?;
        let is_fenced =
            |range: &IdRange| range.first > NamespaceId::SYSTEM && range.beyond(&fenced).is_empty();
        let is_sound = rest.is_empty()
            && fenced.is_sorted_by(|one, next| one.last < next.first)
            && fenced.iter().chain(&purging).all(is_fenced);
        is_sound.then(|| Self {
            fenced: IdRange::joined(fenced).into(),
            purging,
        })
    }
}

/// Appends the number of ranges, then the ranges.
pub(crate) fn put_ranges(bytes: &mut Vec<u8>, ranges: &[IdRange]) {
    let ends = ranges.iter().flat_map(|range| [range.first, range.last]);
    put_ids(bytes, &ends.collect::<Vec<_>>());
}

/// Reads a number of ranges, then the ranges. Returns `None` if the bytes have fewer ranges or an invalid one.
pub(crate) fn take_ranges(bytes: &[u8]) -> Option<(Vec<IdRange>, &[u8])> {
    let (ends, rest) = take_ids(bytes)?;
    let (ends, []) = ends.as_chunks() else {
        return None;
    };
    let range =
        |&[first, last]: &[NamespaceId; 2]| (first <= last).then_some(IdRange { first, last });
    Some((ends.iter().map(range).collect::<Option<_>>()?, rest))
}

/// Reads a number of ids, then the ids, as ranges of one.
pub(crate) fn take_single_ids(bytes: &[u8]) -> Option<(Vec<IdRange>, &[u8])> {
    let (ids, rest) = take_ids(bytes)?;
    Some((ids.into_iter().map(IdRange::from).collect(), rest))
}

/// Appends the number of ids, then the ids.
pub(crate) fn put_ids(bytes: &mut Vec<u8>, ids: &[NamespaceId]) {
    let count = u32::try_from(ids.len()).expect("there are fewer ids than numbers of 32 bits");
    bytes.extend_from_slice(&count.to_be_bytes());
    for id in ids {
        bytes.extend_from_slice(&id.0.to_be_bytes());
    }
}

/// Reads a number of ids, then the ids. Returns `None` if the bytes have fewer ids.
pub(crate) fn take_ids(bytes: &[u8]) -> Option<(Vec<NamespaceId>, &[u8])> {
    let (count, rest) = bytes.split_first_chunk()?;
    let count = usize::try_from(u32::from_be_bytes(*count)).ok()?;
    let (ids, rest) = rest.split_at_checked(count.checked_mul(ID_LEN)?)?;
    let (ids, _) = ids.as_chunks::<ID_LEN>();
    let id = |id: &[u8; ID_LEN]| NamespaceId(u32::from_be_bytes(*id));
    Some((ids.iter().map(id).collect(), rest))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    fn ids(ids: &[u32]) -> Vec<NamespaceId> {
        ids.iter().copied().map(NamespaceId).collect()
    }

    fn ranges(ids: &[u32]) -> Vec<IdRange> {
        ids.iter().map(|&id| NamespaceId(id).into()).collect()
    }

    fn purging(fences: &Fences) -> Vec<NamespaceId> {
        fences.purging().collect()
    }

    fn ids_of(fences: &Fences) -> BTreeSet<u32> {
        let ids = fences.fenced().iter().flat_map(|range| range.ids());
        ids.map(|id| id.0).collect()
    }

    #[test]
    fn fences_only_grow_and_never_hold_the_records_of_umbo() {
        let mut fences = Fences::default();
        assert!(!fences.raise(&[]));
        assert!(!fences.raise(&[NamespaceId::SYSTEM.into()]));
        assert!(fences.raise(&ranges(&[9, 0, 3, 9])));
        assert_eq!(fences.fenced()[..], ranges(&[3, 9]));
        assert_eq!(purging(&fences), ids(&[3, 9]));
        fences.note_purged(&ids(&[3]));
        // An older copy changes nothing, and purged ids stay purged.
        assert!(!fences.raise(&ranges(&[3])));
        assert!(fences.raise(&ranges(&[3, 5])));
        assert_eq!(fences.fenced()[..], ranges(&[3, 5, 9]));
        assert_eq!(purging(&fences), ids(&[9, 5]));
        assert!(fences.holds(NamespaceId(5)) && !fences.holds(NamespaceId(4)));
        // A range has what is fenced already, and what is not.
        let range = IdRange {
            first: NamespaceId(2),
            last: NamespaceId(9),
        };
        assert!(fences.raise(&[range]));
        assert_eq!(fences.fenced()[..], [range]);
        assert_eq!(purging(&fences), ids(&[9, 5, 2, 4, 6, 7, 8]));
        fences.note_purged(&ids(&[7]));
        assert_eq!(
            (purging(&fences), fences.purging_count()),
            (ids(&[9, 5, 2, 4, 6, 8]), 6)
        );
        assert!(!fences.holds(NamespaceId::SYSTEM));
    }

    #[test]
    fn history_takes_no_space_in_the_record() {
        let mut fences = Fences::default();
        // Each load has three ids; a namespace that stays was made now and then.
        for id in (1..=30_000).filter(|id| id % 10_000 > 0) {
            fences.raise(&ranges(&[id]));
            fences.note_purged(&ids(&[id]));
        }
        assert_eq!(fences.fenced().len(), 3);
        assert!(fences.encode().len() < 40);
    }

    proptest! {
        #[test]
        fn records_come_back(
            raised in prop::collection::vec(0_u32..50, 0..20),
            done in prop::collection::vec(0_u32..50, 0..20),
        ) {
            let mut fences = Fences::default();
            fences.raise(&ranges(&raised));
            let all = ids_of(&fences);
            prop_assert_eq!(&all, &raised.iter().copied().filter(|&id| id > 0).collect());
            fences.note_purged(&ids(&done));
            let left = all.into_iter().filter(|id| !done.contains(id));
            let purged_later: BTreeSet<_> = fences.purging().map(|id| id.0).collect();
            prop_assert_eq!(purged_later, left.collect());
            prop_assert_eq!(Fences::decode(&fences.encode()), Some(fences.clone()));
            // The record of versions before has each id by itself.
            let mut old = vec![FORMAT_OF_IDS];
            let fenced: Vec<_> = ids_of(&fences).into_iter().collect();
            put_ids(&mut old, &ids(&fenced));
            put_ids(&mut old, &purging(&fences));
            let read = Fences::decode(&old).unwrap();
            prop_assert_eq!((read.fenced(), purging(&read)), (fences.fenced(), purging(&fences)));
        }

        #[test]
        fn hostile_records_do_not_panic(bytes in prop::collection::vec(0_u8..3, 0..40)) {
            if let Some(fences) = Fences::decode(&bytes) {
                prop_assert_eq!(Fences::decode(&fences.encode()), Some(fences));
            }
        }
    }
}
