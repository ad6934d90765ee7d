//! When a shard may pause for the next compaction of its file, by the duration and the yield of the last ones.
//!
//! Pure. The invariant: pauses take at most a small part of a shard's time, and the less they give back, the longer are
//! the intervals between them.

use std::time::{Duration, Instant};

/// Least time from one compaction to the next; twice as long after each that has given little back,
const APART: Duration = Duration::from_mins(1);
/// up to this.
const APART_MAX: Duration = Duration::from_mins(16);
/// The same on a disk that is short.
pub(super) const APART_SHORT: Duration = Duration::from_secs(5);
const APART_MAX_SHORT: Duration = Duration::from_secs(40);
/// Least time from one compaction to the next, as a multiple of the duration of the first.
const APART_PAUSES: u32 = 20;

/// When the file is compacted next.
#[derive(Debug)]
pub(super) struct Compaction {
    /// Whether rows were removed or replaced since the sizes were last looked at.
    pub(super) is_news: bool,
    pub(super) looked_at: Option<Instant>,
    /// When the compaction will have seemed worth it for long enough, or `None` if it does not seem worth it.
    pub(super) due: Option<Instant>,
    pub(super) not_before: Option<Instant>,
    /// Compactions one after the other that have given little back.
    vain: u32,
}

/// The bytes of a file beyond its rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waste {
    pub(super) bytes: u64,
    /// Whether less than `bytes` is free on the disk.
    pub(super) is_short: bool,
}

impl Default for Compaction {
    fn default() -> Self {
        Self {
            is_news: true,
            looked_at: None,
            due: None,
            not_before: None,
            vain: 0,
        }
    }
}

impl Compaction {
    /// Returns whether the committer has to wake for a compaction.
    pub(super) const fn is_pending(&self) -> bool {
        self.is_news || self.due.is_some()
    }

    /// Records the duration of a compaction, and how much of the waste it gave back.
    pub(super) fn note(&mut self, now: Instant, took: Duration, given: u64, waste: Waste) {
        let (apart, apart_max) = if waste.is_short {
            (APART_SHORT, APART_MAX_SHORT)
        } else {
            (APART, APART_MAX)
        };
        self.vain = if given < waste.bytes / 4 {
            self.vain.saturating_add(1)
        } else {
            0
        };
        let apart = apart.saturating_mul(1_u32.checked_shl(self.vain).unwrap_or(u32::MAX));
        self.not_before = Some(now + apart.min(apart_max).max(took * APART_PAUSES));
        self.due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_longer_apart_the_less_they_give_back() {
        let began = Instant::now();
        let mut compaction = Compaction::default();
        let mut next = |took: u64, given, is_short| {
            let waste = Waste {
                bytes: 100,
                is_short,
            };
            compaction.note(began, Duration::from_millis(took), given, waste);
            compaction.not_before.unwrap() - began
        };
        assert_eq!(next(1, 90, false), APART);
        assert_eq!(next(5_000, 90, false), Duration::from_secs(100));
        assert_eq!(next(1, 10, false), 2 * APART);
        assert_eq!(next(1, 10, false), 4 * APART);
        let many: Vec<_> = (0..40).map(|_| next(1, 0, false)).collect();
        assert_eq!(many.last(), Some(&APART_MAX));
        assert_eq!(next(1, 0, true), APART_MAX_SHORT);
        assert_eq!(next(1, 50, true), APART_SHORT);
    }
}
