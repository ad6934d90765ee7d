//! The state of the pressure, for operators.

use std::time::Duration;

use umbo_types::{Criticality, PriceMultiplier, ShardId};

use super::episode::OverloadEpisode;
use super::fair_shares::ShareReport;
use crate::class::Class;

/// The state of one shard and class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClassReport {
    /// The class.
    pub class: Class,
    /// p95 of the short window, or `None` without samples.
    pub p95_short: Option<Duration>,
    /// Length of the short window: one to two seconds.
    pub short_window: Duration,
    /// Samples in it.
    pub short_samples: u32,
    /// p95 of the baseline, the last minutes without pressure. `None` in the first ten seconds with samples.
    pub p95_long: Option<Duration>,
    /// Long over short.
    pub ratio: Option<f64>,
    /// The greatest of the three inputs, from 0 to 1.
    pub pressure: f64,
    /// Whether the latency ratio says that the class is overloaded.
    pub is_engaged: bool,
}

/// The price multipliers of one tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriceReport {
    /// The tier.
    pub tier: Criticality,
    /// For its callers above their fair share.
    pub above_share: PriceMultiplier,
    /// For the others.
    pub others: PriceMultiplier,
}

/// The state of one shard.
#[derive(Debug, Clone, PartialEq)]
pub struct ShardReport {
    /// The shard.
    pub shard: ShardId,
    /// Classes with samples, a baseline or pressure.
    pub classes: Vec<ClassReport>,
    /// How its busy time is shared.
    pub shares: ShareReport,
    /// Least busy time of heavy reads and of heavy writes. `None` while nothing is heavy.
    pub heavy: [Option<Duration>; 2],
    /// Price multipliers by tier, lowest first.
    pub prices: [PriceReport; Criticality::ALL.len()],
    /// The episode under way.
    pub episode: Option<OverloadEpisode>,
}

/// The state of all shards.
#[derive(Debug, Clone, PartialEq)]
pub struct OverloadReport {
    /// All shards, by number.
    pub shards: Vec<ShardReport>,
    /// Episodes since the start, also those under way.
    pub episodes: u64,
    /// Memory of the controller, in bytes; it does not grow but for the log of episodes.
    pub memory: usize,
}
