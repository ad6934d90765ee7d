//! A bound on how new the rows of each namespace are, so that a load need not read each row that it may replace.
//!
//! A row of a load replaces no newer row. If nothing as new as its `as_of` was written to its namespace, no stored row
//! is newer, and the row is put without a read. Namespaces share slots; sharing can only cause extra reads. The rows
//! from before the opening of the shard share one bound, the highest of the file, because a load whose clock was ahead
//! may have an `as_of` above every version.
//!
//! The invariant: for every stored row of a namespace the bound is at least its `as_of`, or else its version.

use std::sync::atomic::{AtomicU64, Ordering};

use umbo_store::Condition;
use umbo_types::Version;

use crate::key_codec;

/// Slots of a shard, of 8 bytes each: writes go to few namespaces at a time.
const SLOTS: usize = 256;

/// The bounds of a shard. Its committer alone changes them.
#[derive(Debug)]
pub(crate) struct NewestStamps {
    /// Bound of all namespaces.
    floor: AtomicU64,
    /// The highest of all bounds.
    newest: AtomicU64,
    slots: Box<[AtomicU64]>,
}

impl NewestStamps {
    /// Begins with rows that are not newer than `newest`.
    pub(crate) fn after(newest: Version) -> Self {
        Self {
            floor: AtomicU64::new(newest.0),
            newest: AtomicU64::new(newest.0),
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Returns the bound of all rows.
    pub(crate) fn newest(&self) -> Version {
        Version(self.newest.load(Ordering::Relaxed))
    }

    /// Returns whether a condition certainly holds for every row that may be stored under a key.
    pub(crate) fn cover(&self, key: &[u8], condition: &Condition) -> bool {
        let (Some(slot), Condition::NotNewerThan(at)) = (self.slot(key), condition) else {
            return false;
        };
        let newest = self.floor.load(Ordering::Relaxed);
        newest.max(slot.load(Ordering::Relaxed)) <= Version::proposed_at(*at).0
    }

    /// Records a row that is put under a key.
    pub(crate) fn note(&self, key: &[u8], condition: &Condition, version: Version) {
        let stamp = condition.as_of().map_or(version, Version::proposed_at);
        let slot = self.slot(key).unwrap_or(&self.floor);
        self.raise(slot, stamp);
    }

    /// Records a row that is put in several datasets.
    pub(crate) fn note_everywhere(&self, version: Version) {
        self.raise(&self.floor, version);
    }

    fn raise(&self, bound: &AtomicU64, stamp: Version) {
        bound.fetch_max(stamp.0, Ordering::Relaxed);
        self.newest.fetch_max(stamp.0, Ordering::Relaxed);
    }

    fn slot(&self, key: &[u8]) -> Option<&AtomicU64> {
        let namespace = key_codec::namespace_of(key)?;
        self.slots.get(namespace.0 as usize % SLOTS)
    }
}

#[cfg(test)]
mod tests {
    use umbo_types::Timestamp;

    use super::*;
    use crate::tables::UNKNOWN_STAMP;

    #[test]
    fn a_load_is_covered_until_something_newer_is_written_to_its_namespace() {
        let stamps = NewestStamps::after(Version::default());
        let (own, other) = ([0, 0, 0, 3, 9], [0, 0, 0, 4, 9]);
        let of_load = |at| Condition::NotNewerThan(Timestamp(at));
        let reopened = NewestStamps::after(Version(10));
        assert!(!reopened.cover(&own, &of_load(9)));
        assert!(reopened.cover(&own, &of_load(10)));
        let unknown = NewestStamps::after(UNKNOWN_STAMP);
        assert!(!unknown.cover(&own, &of_load(20)), "its rows are not known");
        assert!(stamps.cover(&own, &of_load(20)));
        assert!(!stamps.cover(&own, &Condition::Absent));
        // Its own rows, and those of a namespace beside it.
        stamps.note(&own, &of_load(20), Version(30));
        stamps.note(&other, &Condition::Always, Version(31));
        assert!(stamps.cover(&own, &of_load(20)));
        // An older load meets them.
        assert!(!stamps.cover(&own, &of_load(19)));
        stamps.note(&own, &Condition::Always, Version(32));
        assert!(!stamps.cover(&own, &of_load(20)));
        assert!(stamps.cover(&own, &of_load(32)));
        assert_eq!(stamps.newest(), Version(32));
        stamps.note_everywhere(Version(40));
        assert_eq!(stamps.newest(), Version(40));
        assert!(!stamps.cover(&own, &of_load(39)));
        assert!(!stamps.cover(&[1], &of_load(u64::MAX)), "no key of a row");
    }
}
