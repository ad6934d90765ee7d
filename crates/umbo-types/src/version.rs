//! Versions: a 64-bit hybrid logical clock in microseconds (after Kulkarni et al. 2014, with the
//! logical part folded into the physical one).
//!
//! The version is assigned above the engine and is the `ETag`. It grows strictly per key, even if the wall
//! clock goes back: the owner of a shard raises each proposal above the last version that it assigned.

use crate::clock::{CLOCK_OFFSET_MAX, Timestamp};

/// Version of a row. Larger is later; 0 is never assigned to a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub u64);

impl Version {
    /// Returns the version that corresponds to a wall clock time.
    pub const fn proposed_at(now: Timestamp) -> Self {
        Self(now.0)
    }

    /// Returns the highest proposal that the owner of a shard accepts: a few seconds ahead of the owner's clock.
    /// A proposal beyond that comes from a wrong clock, and all later versions of the shard would be ahead with
    /// it.
    pub fn latest_at(now: Timestamp) -> Self {
        Self(now.saturating_add(CLOCK_OFFSET_MAX).0)
    }
}

/// Assigns versions that only grow. One per shard, seeded with the last version made durable.
#[derive(Debug, Clone, Copy)]
pub struct VersionClock {
    last: Version,
}

impl VersionClock {
    /// Continues after `last`.
    pub const fn after(last: Version) -> Self {
        Self { last }
    }

    /// Returns a version of at least `proposed`, above every version assigned before.
    pub fn next(&mut self, proposed: Version) -> Version {
        self.last = Version(proposed.0.max(self.last.0.saturating_add(1)));
        self.last
    }

    /// Returns the version that a row keeps from elsewhere, or otherwise the next one. Both are lowered to `highest` at
    /// first, and later versions are above either.
    pub fn assign(
        &mut self,
        kept: Option<Version>,
        proposed: Version,
        highest: Version,
    ) -> Version {
        let Some(kept) = kept else {
            return self.next(proposed.min(highest));
        };
        let kept = kept.min(highest);
        self.last = self.last.max(kept);
        kept
    }

    /// Returns the last assigned version, or the seed.
    pub const fn last(&self) -> Version {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn versions_grow_whatever_is_proposed(
            seed in 0_u64..1 << 62,
            proposals in prop::collection::vec(0_u64..1 << 62, 1..100),
        ) {
            let mut clock = VersionClock::after(Version(seed));
            let mut last = Version(seed);
            for proposal in proposals {
                let kept = Some(Version(proposal / 2));
                last = last.max(clock.assign(kept, last, Version(1 << 61)));
                let version = clock.next(Version(proposal));
                prop_assert!(version > last && version >= Version(proposal));
                last = version;
            }
        }
    }
}
