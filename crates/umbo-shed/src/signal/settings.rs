//! What an operator may set of the signal, and its tick.

use std::time::Duration;

/// Time between two ticks. More frequent calls are put off; a late one counts for as many as it is
/// late.
pub const TICK: Duration = Duration::from_millis(100);

/// When a shard counts as overloaded, and how much is kept of whom.
#[derive(Debug, Clone, PartialEq)]
pub struct SignalSettings {
    /// Latency ratio below which a shard and class is overloaded. Above 0.
    pub engage_below: f64,
    /// Ratio from which on the penalty becomes less. Not below [`Self::engage_below`].
    pub hold_below: f64,
    /// Ratio above which the overload is over. Not below [`Self::hold_below`], below 1.
    pub release_above: f64,
    /// p95 below which nothing is an overload, whatever is normal: where a store answers from memory
    /// within microseconds, a busy processor alone makes it three times as slow, and nobody minds.
    pub p95_min: Duration,
    /// Ticks in a row for which the ratio has to be too low.
    pub engage_ticks: u8,
    /// Ticks in a row for which the ratio has to be high again.
    pub release_ticks: u8,
    /// Time after which an overload that does not end is taken for the new normal, and the baseline
    /// follows again.
    pub thaw_after: Duration,
    /// Share of what each tier asks for that passes whatever its penalty is, of 1.
    pub floor: f64,
    /// Callers whose usual rates are known, each by shard and tier; 80 bytes each. Those beyond
    /// share one rate a tier.
    pub callers_max: usize,
    /// Past engagements that are remembered; at the limit the oldest is forgotten.
    pub events_max: usize,
}

impl Default for SignalSettings {
    fn default() -> Self {
        Self {
            engage_below: 0.33,
            hold_below: 0.6,
            release_above: 0.7,
            p95_min: Duration::from_micros(200),
            engage_ticks: 2,
            release_ticks: 4,
            thaw_after: Duration::from_mins(15),
            floor: 0.1,
            callers_max: 8_192,
            events_max: 256,
        }
    }
}
