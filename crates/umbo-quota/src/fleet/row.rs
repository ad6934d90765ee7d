//! The ownership row: which dispatchers own the fleet's counters.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Most owners, so that messages grow with the dispatchers and not with their square.
pub const OWNERS_MAX: usize = 8;

/// The row that says which dispatchers own counters. It is changed by compare-and-set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerRow {
    /// Grows with each change.
    pub revision: u64,
    /// Presence ids of the owners, at most [`OWNERS_MAX`]. An id stands for one life of a dispatcher.
    pub owners: Vec<u64>,
}

impl OwnerRow {
    /// Returns the owner of a counter by rendezvous: a change of the owners moves only the counters of dispatchers
    /// that came or left.
    pub(super) fn owner_of(&self, counter: u128) -> Option<u64> {
        let weight = |owner: &u64| (xxh3_64_with_seed(&counter.to_le_bytes(), *owner), *owner);
        self.owners.iter().copied().max_by_key(weight)
    }

    /// Returns whether a dispatcher owns counters.
    pub(super) fn has(&self, id: u64) -> bool {
        self.owners.contains(&id)
    }

    /// Returns whether another owner has room.
    pub(super) fn has_room(&self) -> bool {
        self.owners.len() < OWNERS_MAX
    }

    /// Returns the next row: without some owners, and with another one if there is room.
    pub(super) fn changed(&self, is_gone: impl Fn(u64) -> bool, joins: Option<u64>) -> Self {
        let mut next = self.clone();
        next.revision += 1;
        next.owners.retain(|owner| !is_gone(*owner));
        next.owners
            .extend(joins.filter(|id| next.has_room() && !next.has(*id)));
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_moves_only_the_counters_of_the_owners_that_came_or_left() {
        let row = OwnerRow {
            revision: 3,
            owners: (1..=OWNERS_MAX as u64).collect(),
        };
        let next = row.changed(|owner| owner == 4, Some(99));
        assert_eq!((next.revision, next.owners.len()), (4, OWNERS_MAX));
        let mut owned = [0; 100];
        for counter in 0..8_000_u128 {
            let (before, after) = (row.owner_of(counter), next.owner_of(counter));
            owned[before.unwrap() as usize] += 1;
            assert!(before == after || before == Some(4) || after == Some(99));
        }
        assert!(
            owned[1..=8]
                .iter()
                .all(|count| (850..1_150).contains(count)),
            "{owned:?}"
        );
    }

    #[test]
    fn there_is_no_ninth_owner() {
        let row = OwnerRow {
            revision: 1,
            owners: (1..=OWNERS_MAX as u64).collect(),
        };
        assert_eq!(row.changed(|_| false, Some(9)).owners, row.owners);
        assert_eq!(row.changed(|_| false, Some(8)).owners, row.owners);
        assert_eq!(OwnerRow::default().owner_of(7), None);
    }
}
