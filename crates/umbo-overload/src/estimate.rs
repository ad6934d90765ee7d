//! How well an estimate is known: constants that the judgements of this crate share.

use std::time::Duration;

/// The time that counts as the present: service times are sliced by it, shares of callers are compared over it, and
/// windows of the limit last two of it. An episode ends after this time without a sign of an overload.
pub(crate) const SLICE: Duration = Duration::from_secs(1);
/// Fewer samples than this are chance.
pub(crate) const SAMPLES_MIN: u32 = 24;
/// Standard errors beyond which a difference is not chance (19 times in 20).
pub(crate) const STANDARD_ERRORS: f64 = 2.0;
