//! Random numbers for jitter and ids: a `SplitMix64` sequence (Steele et al. 2014), which many
//! threads share. Not for secrets.

use std::sync::atomic::{AtomicU64, Ordering};

/// A sequence that its seed decides.
#[derive(Debug)]
pub(crate) struct Random {
    state: AtomicU64,
}

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self {
            state: AtomicU64::new(seed),
        }
    }

    /// Returns the next number, uniform over all of `u64`.
    pub(crate) fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let before = self.state.fetch_add(STEP, Ordering::Relaxed);
        let mut mixed = before.wrapping_add(STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
