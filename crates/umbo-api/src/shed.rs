//! How overloaded a server is, shard by shard: what it sheds, why, and for how long.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The overload state of the server that answers, with totals since its start. Requests that are rejected for
/// a quota are not counted here.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "enabled": true,
    "shards": [{
        "shard": 3,
        "overloaded": true,
        "classes": [{
            "class": "point-read", "overloaded": true, "pressure": 0.42, "ratio": 0.21, "p95_ms": 4.1,
            "normal_p95_ms": 0.86, "samples": 1830, "window_ms": 1400
        }],
        "tiers": [{
            "tier": "sheddable", "penalised": true, "penalty": 1.0, "penalty_above": 8.0, "held_to_ms": 280.0,
            "waiting": 12, "oldest_ms": 7.5, "overloaded": true, "shed": {"latency-ratio": 31}
        }],
        "queue": {"limit": 18, "in_flight": 18, "waiting": 12, "waiting_ru": 12.6},
        "busy": {"capacity_ms": 840.0, "busy_ms": 410.0, "callers": 3, "share_ms": 280.0}
    }],
    "episodes_total": 1,
    "episodes": [{
        "number": 1, "shard": 3, "class": "point-read", "input": "latency-ratio", "pressure_max": 0.5, "tier_max": "sheddable", "ratio": 0.24,
        "ratio_min": 0.19, "p95_ms": 3.6, "normal_p95_ms": 0.86, "started_at": 1_790_000_000_000_u64,
        "duration_ms": 2300, "shed": {"sheddable": 1200}
    }],
    "lag_ms": 0.1
}))]
pub struct ShedStatus {
    /// Whether shards are watched at all; nothing else is known where they are not.
    pub enabled: bool,
    /// All shards, in their order.
    pub shards: Vec<ShardOverload>,
    /// Overloads since the start, with those under way.
    pub episodes_total: u64,
    /// The last of them, newest first, those under way before all others.
    pub episodes: Vec<EpisodeInfo>,
    /// By how much the server's own threads run late, in milliseconds.
    pub lag_ms: f64,
}

/// One shard.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ShardOverload {
    /// Number.
    pub shard: u16,
    /// Whether it is under pressure, or its queue sheds requests.
    pub overloaded: bool,
    /// Service times by class of operation; only classes that were asked for.
    pub classes: Vec<ClassLatency>,
    /// What each tier pays and how it waits, the lowest tier first.
    pub tiers: Vec<TierOverload>,
    /// The requests that wait for it.
    pub queue: ShardQueue,
    /// How its busy time is shared.
    #[serde(default)]
    pub busy: ShardBusy,
}

/// How the busy time of a shard is shared among its callers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ShardBusy {
    /// Longest busy time of a second of late, in milliseconds.
    pub capacity_ms: f64,
    /// Busy time of the second before, in milliseconds.
    pub busy_ms: f64,
    /// Callers of the second before, by tier.
    pub callers: u64,
    /// The capacity by callers: the fair share of each. Absent with fewer than two callers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_ms: Option<f64>,
    /// Least busy time of a heavy read, in milliseconds. Absent while nothing is heavy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heavy_read_ms: Option<f64>,
    /// The same of writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heavy_write_ms: Option<f64>,
}

/// Service times of one class of operation at one shard.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClassLatency {
    /// `point-read`, `multi-read`, `range`, `scan`, `point-write` or `bulk-write`.
    pub class: String,
    /// Whether the latency ratio says that the class is overloaded.
    pub overloaded: bool,
    /// How overloaded the shard is for the class, from 0 to 1: the greatest of latency ratio, queue delay and
    /// runtime lag.
    #[serde(default)]
    pub pressure: f64,
    /// The normal p95 over the p95 of the last moments: about 1 is healthy. Absent while either is
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// p95 of the short window, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_ms: Option<f64>,
    /// Normal p95, of the last minutes without pressure, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normal_p95_ms: Option<f64>,
    /// Store calls in the short window.
    pub samples: u32,
    /// Length of the short window, in milliseconds.
    pub window_ms: u64,
}

/// One tier at one shard.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TierOverload {
    /// Name.
    pub tier: String,
    /// Whether its prices are multiplied.
    pub penalised: bool,
    /// Factor on the price of callers with no more than their fair share of the shard's busy time; 1 is none.
    pub penalty: f64,
    /// Factor on the price of callers with more than their fair share.
    pub penalty_above: f64,
    /// Busy milliseconds of a second beyond which a caller with more than its fair share is refused, or any caller if no
    /// caller has more. Absent while no caller is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_to_ms: Option<f64>,
    /// Requests that wait for the shard.
    pub waiting: u64,
    /// For how long the oldest of them has waited, in milliseconds.
    pub oldest_ms: f64,
    /// Whether the queue of the tier is overloaded.
    pub overloaded: bool,
    /// Requests shed since the start, by the queue's reason. Only reasons that shed.
    pub shed: BTreeMap<String, u64>,
}

/// The queue of one shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ShardQueue {
    /// Requests that the store may hold at once.
    pub limit: u32,
    /// Requests that it holds.
    pub in_flight: u32,
    /// Requests that wait.
    pub waiting: u64,
    /// What they are estimated to cost, in request units.
    pub waiting_ru: f64,
}

/// One overload of one shard, from the tick that found pressure or a request shed, until there is neither and every
/// price is the plain one again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EpisodeInfo {
    /// Number, from 1.
    pub number: u64,
    /// The shard.
    pub shard: u16,
    /// The class of operation that was under pressure first.
    pub class: String,
    /// What the pressure came from: `latency-ratio`, `queue-delay` or `lag`; `queue-delay` too where its queues shed
    /// requests without any pressure.
    #[serde(default)]
    pub input: String,
    /// The highest pressure, from 0 to 1.
    #[serde(default)]
    pub pressure_max: f64,
    /// The highest tier whose price was raised; absent where none was yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier_max: Option<String>,
    /// The latency ratio of the class when it began.
    pub ratio: f64,
    /// The lowest ratio since.
    pub ratio_min: f64,
    /// p95 when it began, in milliseconds.
    pub p95_ms: f64,
    /// Normal p95 then, in milliseconds.
    pub normal_p95_ms: f64,
    /// When it began, in milliseconds since the Unix epoch.
    pub started_at: u64,
    /// For how long it lasted, or has lasted so far, in milliseconds.
    pub duration_ms: u64,
    /// Whether it goes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub under_way: bool,
    /// Requests shed by the queues meanwhile, by tier; only tiers that were shed.
    pub shed: BTreeMap<String, u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_is_left_out_and_read_back() {
        let status = ShedStatus {
            shards: vec![ShardOverload {
                classes: vec![ClassLatency::default()],
                tiers: vec![TierOverload::default()],
                ..ShardOverload::default()
            }],
            episodes: vec![EpisodeInfo::default()],
            ..ShedStatus::default()
        };
        let text = serde_json::to_string(&status).unwrap();
        for absent in ["\"ratio\":null", "p95_ms\":null", "tier_max", "under_way"] {
            assert!(!text.contains(absent), "{absent} in {text}");
        }
        assert_eq!(serde_json::from_str::<ShedStatus>(&text).unwrap(), status);
    }
}
