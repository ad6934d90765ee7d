//! How well an estimate is known: what the judgements of this crate have in common.

use std::time::Duration;

/// The time that counts as the present: service times are sliced by it, and shares of callers compared; windows
/// of the limit last two of it. What is this long
/// without a sign of an overload ends its episode.
pub(crate) const SLICE: Duration = Duration::from_secs(1);
/// Fewer samples than this are chance.
pub(crate) const SAMPLES_MIN: u32 = 24;
/// Standard errors beyond which a difference is no chance (19 times in 20).
pub(crate) const STANDARD_ERRORS: f64 = 2.0;
