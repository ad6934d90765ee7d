//! The placement of datasets: the slots of their partitions.
//!
//! All datasets of a namespace take the same writes in one commit of a shard. So each partition of a dataset is in the
//! same slot as this partition of the namespace itself. Owns the list of the ids that are placed as another id; does
//! not know who provides it. The invariants: of two lists the one with the higher revision is valid; and a dropped
//! dataset stays where it was. So late work for it meets the fence of its own shard, and never a shard that has no rows
//! of it and is not fenced yet.
//!
//! A placement never changes: a dataset belongs to one namespace while it exists, and ids are never used again. So a
//! store that knows a dataset knows its placement, however old its list is. A store that does not know the dataset must
//! not guess, so the sender of a request states its placement of the dataset.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use umbo_types::NamespaceId;

/// Datasets that have left the list and stay placed, 8 bytes each. The highest ids are kept, because each shard learns
/// of a fence within seconds.
const ENDED_MAX: usize = 1_024;

/// A request for a dataset that its sender has placed otherwise than the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "dataset {dataset} is placed as {sent} by the sender of the request, but as {here} here: one of the two \
     does not know its newest placement yet"
)]
pub struct Misplaced {
    /// The dataset.
    pub dataset: NamespaceId,
    /// Its placement by the sender.
    pub sent: NamespaceId,
    /// Its placement here; the dataset itself if it is not in the list.
    pub here: NamespaceId,
}

/// The ids that are placed as another id.
#[derive(Debug, Default)]
pub struct Placements {
    /// Whether the list was ever filled. While it was not, this flag is the only cost of a look-up.
    has_any: AtomicBool,
    list: ArcSwap<PlacementList>,
}

#[derive(Debug, Default)]
struct PlacementList {
    /// Epoch and number.
    revision: (u64, u64),
    /// In ascending order of the first.
    placed_as: Vec<(NamespaceId, NamespaceId)>,
    /// Pairs of earlier lists that have left this list, in ascending order of the first id.
    ended: Vec<(NamespaceId, NamespaceId)>,
}

impl PlacementList {
    fn find(of: &[(NamespaceId, NamespaceId)], namespace: NamespaceId) -> Option<NamespaceId> {
        let found = of.binary_search_by_key(&namespace, |one| one.0);
        found.ok().map(|at| of[at].1)
    }

    fn of(&self, namespace: NamespaceId) -> Option<NamespaceId> {
        let ended = || Self::find(&self.ended, namespace);
        Self::find(&self.placed_as, namespace).or_else(ended)
    }

    /// Returns the list that comes after this one.
    fn followed_by(&self, revision: (u64, u64), placed_as: &[(NamespaceId, NamespaceId)]) -> Self {
        let is_over = |one: &&(NamespaceId, NamespaceId)| Self::find(placed_as, one.0).is_none();
        let before = self.ended.iter().chain(&self.placed_as);
        let mut ended: Vec<_> = before.filter(is_over).copied().collect();
        ended.sort_unstable();
        ended.drain(..ended.len().saturating_sub(ENDED_MAX));
        Self {
            revision,
            placed_as: placed_as.to_vec(),
            ended,
        }
    }
}

impl Placements {
    /// Returns the id whose slots a namespace has: its own id, unless it is a dataset of another namespace.
    pub fn of(&self, namespace: NamespaceId) -> NamespaceId {
        if !self.has_any.load(Ordering::Acquire) {
            return namespace;
        }
        self.list.load().of(namespace).unwrap_or(namespace)
    }

    /// Returns the id whose slots a dataset has, if the sender of a request has the same placement. A sender that
    /// states none is believed.
    pub fn agreed(
        &self,
        dataset: NamespaceId,
        sent: Option<NamespaceId>,
    ) -> Result<NamespaceId, Misplaced> {
        let here = self.of(dataset);
        match sent {
            Some(sent) if sent != here => Err(Misplaced {
                dataset,
                sent,
                here,
            }),
            _ => Ok(here),
        }
    }

    /// Replaces the list by the list of a revision (epoch and number), unless a list of the same or a newer revision is
    /// here. `datasets` are pairs of a dataset and the namespace that it is placed as.
    pub fn replace(
        &self,
        revision: (u64, u64),
        datasets: impl Iterator<Item = (NamespaceId, NamespaceId)>,
    ) {
        let mut placed_as: Vec<_> = datasets.filter(|(id, other)| id != other).collect();
        placed_as.sort_unstable();
        self.list.rcu(|before| {
            if before.revision < revision {
                Arc::new(before.followed_by(revision, &placed_as))
            } else {
                Arc::clone(before)
            }
        });
        if !self.list.load().placed_as.is_empty() {
            // Never reset: once the list was filled it is always read.
            self.has_any.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: [NamespaceId; 3] = [NamespaceId(3), NamespaceId(7), NamespaceId(9)];

    #[test]
    fn the_newest_list_is_valid() {
        let placements = Placements::default();
        let [first, second, third] = IDS;
        assert_eq!(IDS.map(|id| placements.of(id)), IDS);
        placements.replace(
            (1, 5),
            [(third, first), (second, first), (first, first)].into_iter(),
        );
        assert_eq!(IDS.map(|id| placements.of(id)), [first; 3]);
        for older in [(0, 9), (1, 4), (1, 5)] {
            placements.replace(older, std::iter::empty());
            assert_eq!(IDS.map(|id| placements.of(id)), [first; 3]);
        }
        placements.replace((2, 0), std::iter::once((third, second)));
        assert_eq!(placements.of(third), second);
    }

    #[test]
    fn a_dataset_is_served_where_both_sides_have_placed_it() {
        let placements = Placements::default();
        let [first, second, third] = IDS;
        let unknown = Misplaced {
            dataset: second,
            sent: first,
            here: second,
        };
        assert_eq!(placements.agreed(second, Some(first)), Err(unknown));
        assert_eq!(placements.agreed(second, Some(second)), Ok(second));
        assert_eq!(placements.agreed(second, None), Ok(second));
        placements.replace((1, 1), std::iter::once((second, first)));
        for sent in [None, Some(first)] {
            assert_eq!(placements.agreed(second, sent), Ok(first));
        }
        for sent in [second, third] {
            assert!(placements.agreed(second, Some(sent)).is_err());
        }
    }

    #[test]
    fn a_dropped_dataset_stays_where_it_was_and_the_oldest_are_forgotten() {
        let placements = Placements::default();
        let [first, second, third] = IDS;
        placements.replace((1, 1), [(second, first), (third, first)].into_iter());
        placements.replace((1, 2), std::iter::once((third, first)));
        assert_eq!(IDS.map(|id| placements.of(id)), [first; 3]);
        placements.replace((1, 3), std::iter::empty());
        assert_eq!(IDS.map(|id| placements.of(id)), [first; 3]);
        for number in 0..ENDED_MAX as u32 {
            let dataset = NamespaceId(100 + number);
            let revision = (2, u64::from(number));
            placements.replace(revision, std::iter::once((dataset, first)));
        }
        // The last one is in the list, and of the others the newest are kept.
        assert_eq!(IDS.map(|id| placements.of(id)), [first, second, first]);
        assert_eq!(placements.of(NamespaceId(100)), first);
    }
}
