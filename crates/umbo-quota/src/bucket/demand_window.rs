//! The demand of a bucket: atoms asked for a second, admitted or not.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use super::Bucket;
use crate::schedule::Millis;

/// Length of the window over which the observed rate is measured, in milliseconds.
pub(super) const WINDOW_MS: u64 = 1_000;

/// The demand of the last whole window.
#[derive(Debug, Default)]
pub(super) struct DemandWindow {
    pub(super) since_ms: AtomicU64,
    pub(super) spent_then: AtomicI64,
    pub(super) refused_then: AtomicU64,
    /// Atoms refused, all together.
    pub(super) refused: AtomicU64,
    /// Requests refused, all together.
    pub(super) refusals: AtomicU64,
    /// Atoms asked for a second in the last whole window.
    pub(super) rate: AtomicU64,
}

impl Bucket {
    /// Returns the demand in atoms a second: in the last whole window, or in the current one if that is more. Of a bucket
    /// that counts for the fleet, the demand at all dispatchers.
    pub(crate) fn observed(&self, now: Millis) -> u64 {
        let window = &self.window;
        let elapsed_ms = now
            .0
            .saturating_sub(window.since_ms.load(Relaxed))
            .max(WINDOW_MS);
        let per_second = |asked: u64| u128::from(asked) * 1_000 / u128::from(elapsed_ms);
        let current = u64::try_from(per_second(self.asked_in_window())).unwrap_or(u64::MAX);
        let fleet = self.share.as_ref().map_or(0, |share| share.demand());
        current.max(window.rate.load(Relaxed)).max(fleet)
    }

    pub(super) fn asked_in_window(&self) -> u64 {
        let window = &self.window;
        let spent = self
            .spent()
            .wrapping_sub(window.spent_then.load(Relaxed))
            .max(0);
        let refused = window.refused.load(Relaxed) - window.refused_then.load(Relaxed);
        spent.cast_unsigned().saturating_add(refused)
    }
}
