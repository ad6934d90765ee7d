//! The demand of a bucket: atoms asked for a second, admitted or not.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use crate::schedule::Millis;

/// Length of the window over which the observed rate is measured, in milliseconds.
const WINDOW_MS: u64 = 1_000;

/// The demand of the last whole window and of the current one. Spent atoms are counted by the bucket.
#[derive(Debug, Default)]
pub(super) struct DemandWindow {
    since_ms: AtomicU64,
    spent_then: AtomicI64,
    refused_then: AtomicU64,
    /// Atoms refused, all together.
    refused: AtomicU64,
    /// Requests refused, all together.
    refusals: AtomicU64,
    /// Atoms asked for a second in the last whole window.
    rate: AtomicU64,
}

impl DemandWindow {
    pub(super) fn begin(now: Millis) -> Self {
        Self {
            since_ms: AtomicU64::new(now.0),
            ..Self::default()
        }
    }

    /// Counts a request that was refused.
    pub(super) fn refuse(&self, price: u64) {
        self.refused.fetch_add(price, Relaxed);
        self.refusals.fetch_add(1, Relaxed);
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    pub(super) fn refusals(&self) -> u64 {
        self.refusals.load(Relaxed)
    }

    /// Returns the demand in the last whole window, or in the current one if that is more. `spent` is the sum of all
    /// charges.
    pub(super) fn observed(&self, spent: i64, now: Millis) -> u64 {
        let elapsed_ms = self.elapsed_ms(now).max(WINDOW_MS);
        let current = a_second(self.asked(spent), elapsed_ms);
        current.max(self.rate.load(Relaxed))
    }

    /// Ends the window once it is over.
    pub(super) fn roll(&self, spent: i64, now: Millis) {
        let elapsed_ms = self.elapsed_ms(now);
        if elapsed_ms >= WINDOW_MS {
            let rate = a_second(self.asked(spent), elapsed_ms);
            self.rate.store(rate, Relaxed);
            self.spent_then.store(spent, Relaxed);
            self.refused_then.store(self.refused(), Relaxed);
            self.since_ms.store(now.0, Relaxed);
        }
    }

    fn elapsed_ms(&self, now: Millis) -> u64 {
        now.0.saturating_sub(self.since_ms.load(Relaxed))
    }

    fn asked(&self, spent: i64) -> u64 {
        let spent = spent.wrapping_sub(self.spent_then.load(Relaxed)).max(0);
        let refused = self.refused() - self.refused_then.load(Relaxed);
        spent.cast_unsigned().saturating_add(refused)
    }
}

fn a_second(asked: u64, elapsed_ms: u64) -> u64 {
    let rate = u128::from(asked) * 1_000 / u128::from(elapsed_ms);
    u64::try_from(rate).unwrap_or(u64::MAX)
}
