//! Settings of the pressure, and its tick.

use std::time::Duration;

use super::designated::DesignatedClass;

/// Time between two ticks. An earlier call does nothing.
pub const TICK: Duration = Duration::from_millis(100);

/// When a shard counts as overloaded, and whose prices follow.
#[derive(Debug, Clone, PartialEq)]
pub struct PressureSettings {
    /// Latency ratio below which a class is overloaded: about a third is three times as slow as usual, which
    /// no healthy store is for a second. Above 0.
    pub engage_below: f64,
    /// Latency ratio above which the overload is over. Above [`Self::engage_below`], below 1, so that one
    /// near the limit does not come and go.
    pub release_above: f64,
    /// p95 below which nothing is an overload. If a store answers from memory within microseconds, a busy processor
    /// alone makes it three times as slow, without harm.
    pub p95_min: Duration,
    /// Time after which an overload that does not end is taken for normal, and the baseline learns again.
    pub thaw_after: Duration,
    /// Past episodes that are remembered; at the limit the oldest is forgotten.
    pub episodes_max: usize,
    /// Whose prices are multiplied.
    pub designated: DesignatedClass,
}

impl Default for PressureSettings {
    fn default() -> Self {
        Self {
            engage_below: 0.33,
            release_above: 0.7,
            p95_min: Duration::from_micros(200),
            thaw_after: Duration::from_mins(15),
            episodes_max: 256,
            designated: DesignatedClass::default(),
        }
    }
}
