//! How a limiter prices requests: its weights, and what is learned of all callers together.

use std::time::{Duration, Instant};

use umbo_types::Operation;

use crate::cost::Weights;
use crate::latency::Medians;
use crate::residual::Residuals;
use crate::schedule::Millis;

/// How requests are priced.
#[derive(Debug)]
pub(crate) struct Pricing {
    /// When the limiter began.
    pub(crate) origin: Instant,
    pub(crate) weights: Weights,
    pub(crate) medians: Medians,
    pub(crate) residuals: Residuals,
}

impl Pricing {
    /// Returns an instant as the buckets count it; those before the beginning are the beginning.
    #[inline]
    pub(crate) fn millis(&self, now: Instant) -> Millis {
        let elapsed = now.saturating_duration_since(self.origin);
        let millis = elapsed.as_secs().min(u64::MAX / 2_000) * 1_000;
        Millis(millis + u64::from(elapsed.subsec_millis()))
    }

    /// Learns from a request that was served.
    #[inline(never)]
    pub(crate) fn note(
        &self,
        operation: Operation,
        service_time: Duration,
        estimate: u64,
        actual: u64,
    ) {
        self.medians.note(operation, service_time);
        self.residuals.note(operation, estimate, actual);
    }
}
