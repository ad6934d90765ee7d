//! Fences as records: the fenced ids, kept in few records even if they are many.
//!
//! The record of a fence is called by its first id. Its content is its last id, or [`ONE`] if the fence has one id. A
//! change fences each id by itself, and folds older fences that adjoin into one record. A fence is folded once every
//! shard has confirmed it and no other record names its id. So a server of the version before, which reads the first id
//! of each record, misses no fence that a shard lacks, and never replaces a record that has more ids than one.

use bytes::Bytes;
use umbo_store::IdRange;
use umbo_types::NamespaceId;

use super::{Edits, Kind, RecordKey, RecordSet, Unreadable, unreadable};

/// Content of the fence of one id.
const ONE: &str = "removed";
/// Most records that are folded at once: a change is made on a full disk too, which has only a small reserve of room.
const FOLDED_MAX: usize = 256;

fn read(name: &str, content: &Bytes) -> Result<IdRange, Unreadable> {
    let bad = |why: &dyn std::fmt::Display| unreadable(Kind::Fence, name, why);
    let id = |text: &str| match text.parse().map(NamespaceId) {
        Ok(NamespaceId::SYSTEM) => Err(bad(&"Umbo's own records cannot be removed")),
        id => id.map_err(|error| bad(&error)),
    };
    let first = id(name)?;
    let last = match std::str::from_utf8(content).map_err(|error| bad(&error))? {
        ONE => first,
        last => id(last)?,
    };
    if last < first {
        return Err(bad(&"its last id is before its first"));
    }
    Ok(IdRange { first, last })
}

impl RecordSet {
    /// Returns the fenced ids as the records have them: ranges that ascend and may adjoin.
    pub(crate) fn fenced(&self) -> Result<Vec<IdRange>, Unreadable> {
        let ranges = self.of(Kind::Fence);
        let ranges = ranges.map(|(name, content)| read(name, content));
        let mut ranges = ranges.collect::<Result<Vec<_>, _>>()?;
        ranges.sort_unstable_by_key(|range| range.first);
        ranges.dedup_by(|next, kept| {
            let is_within = next.first <= kept.last;
            if is_within {
                kept.last = kept.last.max(next.last);
            }
            is_within
        });
        Ok(ranges)
    }

    /// Returns whether an id is fenced.
    pub(crate) fn is_fenced(&self, id: NamespaceId) -> bool {
        let fenced = self.fenced();
        fenced.is_ok_and(|fenced| IdRange::any_has(&fenced, id))
    }

    /// Plans to fold fences that adjoin, that every shard has `confirmed`, and whose ids no record names.
    pub(crate) fn fold_fences(
        &self,
        confirmed: &[IdRange],
        is_named: impl Fn(NamespaceId) -> bool,
    ) -> Result<Edits, Unreadable> {
        let mut edits = Edits::none();
        let mut open: Option<IdRange> = None;
        for range in self.fenced()? {
            let may_fold = range.beyond(confirmed).is_empty() && !is_named(range.first);
            let adjoins = |open: &&mut IdRange| {
                may_fold
                    && open.last.0.checked_add(1) == Some(range.first.0)
                    && edits.rows.len() < FOLDED_MAX
            };
            let Some(open) = open.as_mut().filter(adjoins) else {
                open = may_fold.then_some(range);
                continue;
            };
            open.last = range.last;
            let last = open.last.to_string();
            edits = edits.put(Kind::Fence, &open.first.to_string(), last);
            edits = edits.remove(Kind::Fence, &range.first.to_string());
        }
        Ok(edits)
    }
}

impl Edits {
    /// Fences an id.
    #[must_use]
    pub(crate) fn fence(self, id: NamespaceId) -> Self {
        self.put(Kind::Fence, &id.to_string(), ONE)
    }

    /// Returns whether they fence any id.
    pub(crate) fn has_fences(&self) -> bool {
        self.rows.keys().any(|key| key.kind == Kind::Fence)
    }

    /// Returns whether they fence an id.
    pub(crate) fn fences(&self, id: NamespaceId) -> bool {
        self.rows
            .contains_key(&RecordKey::new(Kind::Fence, id.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::btree_set;
    use proptest::prelude::*;
    use umbo_store::RecordsCopy;

    use super::*;

    fn with_fences(ids: &BTreeSet<u32>) -> RecordSet {
        let fence = |edits: Edits, id: &u32| edits.fence(NamespaceId(*id));
        RecordSet::default().changed(&ids.iter().fold(Edits::none(), fence))
    }

    fn ranges(ids: &BTreeSet<u32>) -> Vec<IdRange> {
        IdRange::joined(ids.iter().map(|&id| NamespaceId(id).into()).collect())
    }

    fn ids(set: &RecordSet) -> BTreeSet<u32> {
        let fenced = set.fenced().unwrap();
        let ids = fenced.iter().flat_map(|range| range.ids());
        ids.map(|id| id.0).collect()
    }

    fn folded(set: &RecordSet, confirmed: &[IdRange], named: &BTreeSet<u32>) -> RecordSet {
        let edits = set.fold_fences(confirmed, |id| named.contains(&id.0));
        set.changed(&edits.unwrap())
    }

    proptest! {
        #[test]
        fn folded_fences_are_the_same_ids(
            fenced in btree_set(1..80_u32, 0..60),
            more in btree_set(1..80_u32, 0..20),
            confirmed in btree_set(1..80_u32, 0..80),
            named in btree_set(1..80_u32, 0..20),
        ) {
            let set = folded(&with_fences(&fenced), &ranges(&confirmed), &named);
            prop_assert_eq!(&ids(&set), &fenced);
            for range in set.fenced().unwrap().into_iter().filter(|range| range.count() > 1) {
                for id in range.ids() {
                    prop_assert!(confirmed.contains(&id.0) && !named.contains(&id.0));
                }
            }
            // A server of the version before reads the first ids, and finds the same in a copy.
            let copy = set.to_copy().unwrap();
            let first: Vec<_> = copy.fenced.iter().map(|range| range.first.0).collect();
            let names: BTreeSet<u32> = set.of(Kind::Fence).map(|(name, _)| name.parse().unwrap()).collect();
            prop_assert_eq!(&first, &names.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(&RecordSet::from_copy(&copy).unwrap(), &set);
            // Nor does it matter that such a server has handed the copy over.
            let fenced_of_old = first.iter().map(|&id| NamespaceId(id).into()).collect();
            let of_old = RecordsCopy { fenced: fenced_of_old, ..copy };
            prop_assert_eq!(&RecordSet::from_copy(&of_old).unwrap(), &set);

            // Others are fenced later, and nothing has a name or lacks a confirmation any more.
            let later = more.difference(&fenced);
            let edits = later.fold(Edits::none(), |edits, &id| edits.fence(NamespaceId(id)));
            let set = set.changed(&edits);
            let all: BTreeSet<u32> = fenced.union(&more).copied().collect();
            let set = folded(&set, &ranges(&all), &BTreeSet::new());
            prop_assert_eq!(set.fenced().unwrap(), ranges(&all));
        }
    }

    #[test]
    fn many_fences_of_versions_before_are_folded_step_by_step() {
        let all: BTreeSet<u32> = (1..=1_000).chain(1_002..=1_003).collect();
        let (confirmed, none) = (ranges(&all), BTreeSet::new());
        let mut set = with_fences(&all);
        for left in [747, 492, 237, 2, 2] {
            set = folded(&set, &confirmed, &none);
            assert_eq!(set.of(Kind::Fence).count(), left);
            assert_eq!(ids(&set), all);
        }
        assert!(
            set.fold_fences(&confirmed, |_| false)
                .unwrap()
                .rows
                .is_empty()
        );
    }

    #[test]
    fn a_fence_that_cannot_be_read_is_no_fence_of_one_id() {
        for (name, content) in [
            ("7", "6"),
            ("7", "x"),
            ("7", ""),
            ("0", "removed"),
            ("x", "7"),
            ("7", "-1"),
        ] {
            let set = RecordSet::default().changed(&Edits::none().put(Kind::Fence, name, content));
            assert!(set.fenced().is_err(), "{name}: {content}");
        }
        let set = with_fences(&BTreeSet::from([7]));
        let copy = set.to_copy().unwrap();
        let first = NamespaceId(7);
        let last = NamespaceId(8);
        let other = RecordsCopy {
            fenced: vec![IdRange { first, last }],
            ..copy
        };
        assert!(RecordSet::from_copy(&other).is_err());
    }
}
