//! How a limiter prices requests: its weights, the record of estimate errors, and the prices of
//! earlier reads.

use std::time::Instant;

use crate::cost::Weights;
use crate::price_memory::PriceMemory;
use crate::residual::Residuals;
use crate::schedule::Millis;

/// How requests are priced.
#[derive(Debug)]
pub(crate) struct Pricing {
    /// When the limiter began.
    pub(crate) origin: Instant,
    pub(crate) weights: Weights,
    pub(crate) residuals: Residuals,
    pub(crate) prices: PriceMemory,
}

impl Pricing {
    /// Returns an instant in milliseconds since the limiter began; an earlier instant counts as 0.
    #[inline]
    pub(crate) fn millis(&self, now: Instant) -> Millis {
        let elapsed = now.saturating_duration_since(self.origin);
        let millis = elapsed.as_secs().min(u64::MAX / 2_000) * 1_000;
        Millis(millis + u64::from(elapsed.subsec_millis()))
    }
}
