//! How well an estimate is known: what is common to all averages and judgements of this crate.

use std::time::Duration;

/// The time that counts as the present: service times are sliced by it, and shares of callers compared; windows
/// of the limit last two of it.
pub(crate) const SLICE: Duration = Duration::from_secs(1);
/// Fewer samples than this are chance.
pub(crate) const SAMPLES_MIN: u32 = 24;
/// Samples of a moving average: each one weighs a 16th.
pub(crate) const AVERAGED: u32 = 16;
/// Standard errors beyond which a difference is no chance (19 times in 20).
pub(crate) const STANDARD_ERRORS: f64 = 2.0;
