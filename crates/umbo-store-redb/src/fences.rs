//! The fences of a shard: the ids of removed namespaces, and which of them may still have rows.
//!
//! Owns the set and its record in the file. The committer holds the authoritative set, and publishes the ids
//! to readers with each snapshot. The invariants: a fenced id stays fenced, so that copies of the records may
//! be merged in any order; [`NamespaceId::SYSTEM`] is never fenced; an id is done only after a commit has
//! found no row of it.

use std::sync::Arc;

use umbo_types::NamespaceId;

/// Name of the record of the [`Fences`].
pub(crate) const META_FENCES: &str = "fences";

const FORMAT: u8 = 1;
const ID_LEN: usize = 4;

/// Fenced namespaces of a shard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fences {
    /// In ascending order.
    fenced: Arc<[NamespaceId]>,
    /// Fenced namespaces whose rows may not all be reclaimed yet, in the order in which they are reclaimed.
    purging: Vec<NamespaceId>,
}

impl Fences {
    /// Returns the fenced ids, in ascending order.
    pub(crate) fn fenced(&self) -> &Arc<[NamespaceId]> {
        &self.fenced
    }

    /// Returns the fenced ids that may still have rows.
    pub(crate) fn purging(&self) -> &[NamespaceId] {
        &self.purging
    }

    /// Returns whether a namespace is fenced.
    pub(crate) fn holds(&self, namespace: NamespaceId) -> bool {
        is_fenced(&self.fenced, namespace)
    }

    /// Fences more namespaces. Returns whether any of them was not fenced before.
    pub(crate) fn raise(&mut self, ids: &[NamespaceId]) -> bool {
        let mut new: Vec<NamespaceId> = ids.iter().copied().filter(|&id| self.lacks(id)).collect();
        new.sort_unstable();
        new.dedup();
        if new.is_empty() {
            return false;
        }
        let mut fenced = [&self.fenced, &new[..]].concat();
        fenced.sort_unstable();
        self.fenced = fenced.into();
        self.purging.extend(new);
        true
    }

    /// Records that namespaces have no rows left.
    pub(crate) fn note_purged(&mut self, done: &[NamespaceId]) {
        self.purging.retain(|id| !done.contains(id));
    }

    fn lacks(&self, id: NamespaceId) -> bool {
        id != NamespaceId::SYSTEM && !self.holds(id)
    }

    /// Encodes the record: `format u8 | count u32 | fenced ids | count u32 | ids with rows`, all big endian.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        for ids in [&self.fenced, &self.purging[..]] {
            put_ids(&mut bytes, ids);
        }
        bytes
    }

    /// Decodes the record; none if the bytes are not a valid one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&FORMAT, rest) = bytes.split_first()? else {
            return None;
        };
        let (fenced, rest) = take_ids(rest)?;
        let (purging, rest) = take_ids(rest)?;
        let is_fence = |id: &NamespaceId| is_fenced(&fenced, *id);
        let is_sound = rest.is_empty()
            && fenced.is_sorted_by(|one, next| one < next)
            && fenced.first() != Some(&NamespaceId::SYSTEM)
            && purging.iter().all(is_fence);
        is_sound.then(|| Self {
            fenced: fenced.into(),
            purging,
        })
    }
}

/// Returns whether a sorted list of fenced ids contains a namespace.
pub(crate) fn is_fenced(fenced: &[NamespaceId], namespace: NamespaceId) -> bool {
    !fenced.is_empty() && fenced.binary_search(&namespace).is_ok()
}

/// Appends the number of ids, then the ids.
pub(crate) fn put_ids(bytes: &mut Vec<u8>, ids: &[NamespaceId]) {
    let count = u32::try_from(ids.len()).expect("there are fewer ids than numbers of 32 bits");
    bytes.extend_from_slice(&count.to_be_bytes());
    for id in ids {
        bytes.extend_from_slice(&id.0.to_be_bytes());
    }
}

/// Reads a number of ids, then the ids; none if there are fewer.
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
    use super::*;
    use proptest::prelude::*;

    fn ids(ids: &[u32]) -> Vec<NamespaceId> {
        ids.iter().copied().map(NamespaceId).collect()
    }

    #[test]
    fn fences_only_grow_and_never_hold_the_records_of_umbo() {
        let mut fences = Fences::default();
        assert!(!fences.raise(&[]));
        assert!(!fences.raise(&[NamespaceId::SYSTEM]));
        assert!(fences.raise(&ids(&[9, 0, 3, 9])));
        assert_eq!(fences.fenced()[..], ids(&[3, 9]));
        assert_eq!(fences.purging(), ids(&[3, 9]));
        fences.note_purged(&ids(&[3]));
        // An older copy changes nothing, and purged ids stay purged.
        assert!(!fences.raise(&ids(&[3])));
        assert!(fences.raise(&ids(&[3, 5])));
        assert_eq!(fences.fenced()[..], ids(&[3, 5, 9]));
        assert_eq!(fences.purging(), ids(&[9, 5]));
        assert!(fences.holds(NamespaceId(5)) && !fences.holds(NamespaceId(4)));
        assert!(!fences.holds(NamespaceId::SYSTEM));
    }

    proptest! {
        #[test]
        fn records_come_back(
            raised in prop::collection::vec(0_u32..50, 0..20),
            done in prop::collection::vec(0_u32..50, 0..20),
        ) {
            let mut fences = Fences::default();
            fences.raise(&ids(&raised));
            fences.note_purged(&ids(&done));
            prop_assert_eq!(Fences::decode(&fences.encode()), Some(fences));
        }

        #[test]
        fn hostile_records_do_not_panic(bytes in prop::collection::vec(0_u8..3, 0..40)) {
            if let Some(fences) = Fences::decode(&bytes) {
                prop_assert_eq!(fences.encode(), bytes);
            }
        }
    }
}
