//! What the signal tells: a refusal to a caller, the state of all to an operator.

use std::time::Duration;

use umbo_types::{Criticality, ShardId};

use super::class::Class;
use super::events::Engagement;
use super::ladder::TIERS;

/// Why a request was shed, and when to come again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShedByPenalty {
    /// The shard that is overloaded.
    pub shard: ShardId,
    /// The class whose latency ratio says so.
    pub class: Class,
    /// That ratio, as of the last tick.
    pub ratio: f64,
    /// The tier that was shed.
    pub tier: Criticality,
    /// What the price was multiplied with, against the caller's own baseline: up to 8, and down to
    /// 1/32 on the way back.
    pub penalty: f64,
    /// Until the caller would be let through under the same penalty, with jitter of at most a fifth
    /// of it or 50 ms. From a tick's 100 ms to 3.6 s.
    pub wait: Duration,
}

/// What is known of one shard and class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClassReport {
    /// The class.
    pub class: Class,
    /// p95 of the short window; none without samples.
    pub p95_short: Option<Duration>,
    /// Length of the short window: one to two seconds, more where samples are few.
    pub short_window: Duration,
    /// Samples in it.
    pub short_samples: u32,
    /// p95 of the long window: the median of its slices. None in the first ten seconds, and where
    /// there are fewer than 20 samples a second.
    pub p95_long: Option<Duration>,
    /// Long over short, of the last 0.3 to 2 seconds.
    pub ratio: Option<f64>,
    /// Whether the ratio is engaged.
    pub is_engaged: bool,
}

/// The penalty of one tier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TierReport {
    /// The tier.
    pub tier: Criticality,
    /// Whether anybody in it is penalised.
    pub is_penalised: bool,
    /// Mean factor on prices of callers above their own baseline; 1 without a penalty. Below 1 while
    /// those get several times their baseline, on the way back.
    pub penalty_above: f64,
    /// Mean factor on prices of the others.
    pub penalty: f64,
    /// Requests shed since the engagement began.
    pub shed: u64,
}

/// The state of one shard.
#[derive(Debug, Clone, PartialEq)]
pub struct ShardReport {
    /// The shard.
    pub shard: ShardId,
    /// Classes with samples or a baseline.
    pub classes: Vec<ClassReport>,
    /// Penalties by tier, lowest first.
    pub tiers: [TierReport; TIERS],
    /// The engagement under way.
    pub engagement: Option<Engagement>,
}

/// The state of all shards.
#[derive(Debug, Clone, PartialEq)]
pub struct OverloadReport {
    /// All shards, by number.
    pub shards: Vec<ShardReport>,
    /// Engagements since the start, with those under way.
    pub engagements: u64,
    /// Requests shed by the penalty since the start, by tier, lowest first.
    pub shed: [u64; TIERS],
    /// Memory of the signal, in bytes; it does not grow but for the log of engagements.
    pub memory: usize,
}
