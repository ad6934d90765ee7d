//! Overload of a server by shard, its requests shed, the reasons, and for how long.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The overload state of the answering server, with totals since its start. Requests rejected for a quota are not
/// counted here.
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
    /// Whether shards are watched. If not, nothing else is known.
    pub enabled: bool,
    /// All shards, in order.
    pub shards: Vec<ShardOverload>,
    /// Overloads since the start, including those under way.
    pub episodes_total: u64,
    /// The last overloads, newest first, those under way before all others.
    pub episodes: Vec<EpisodeInfo>,
    /// How late the server's own threads run, in milliseconds.
    pub lag_ms: f64,
}

/// One shard.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ShardOverload {
    /// Number.
    pub shard: u16,
    /// Whether it is under pressure, or its queue sheds requests.
    pub overloaded: bool,
    /// Service times by class of operation. Only classes with requests.
    pub classes: Vec<ClassLatency>,
    /// Price and queue of each tier, the lowest tier first.
    pub tiers: Vec<TierOverload>,
    /// Its queue.
    pub queue: ShardQueue,
    /// Shares of its busy time.
    #[serde(default)]
    pub busy: ShardBusy,
}

/// Shares of callers in the busy time of a shard.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ShardBusy {
    /// Longest recent busy time of a second, in milliseconds.
    pub capacity_ms: f64,
    /// Busy time of the previous second, in milliseconds.
    pub busy_ms: f64,
    /// Callers of the previous second.
    pub callers: u64,
    /// Fair share of each caller: the capacity divided by the callers. Absent with fewer than two callers.
    pub share_ms: Option<f64>,
    /// Minimum busy time of a heavy read, in milliseconds. Absent while no read is heavy.
    pub heavy_read_ms: Option<f64>,
    /// The same for writes.
    pub heavy_write_ms: Option<f64>,
}

/// Service times of one class of operation at one shard.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClassLatency {
    /// `point-read`, `multi-read`, `range`, `scan`, `point-write` or `bulk-write`.
    pub class: String,
    /// Whether the class is overloaded by its latency ratio.
    pub overloaded: bool,
    /// Pressure of the shard for the class, from 0 to 1: the greatest of latency ratio, queue delay and runtime lag.
    #[serde(default)]
    pub pressure: f64,
    /// The normal p95 divided by the p95 of the short window: about 1 is healthy. Absent while either is unknown.
    pub ratio: Option<f64>,
    /// p95 of the short window, in milliseconds.
    pub p95_ms: Option<f64>,
    /// Normal p95: of the last minutes without pressure, in milliseconds.
    pub normal_p95_ms: Option<f64>,
    /// Store calls in the short window.
    pub samples: u32,
    /// Length of the short window, in milliseconds.
    pub window_ms: u64,
}

/// One tier at one shard.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TierOverload {
    /// Name.
    pub tier: String,
    /// Whether its prices are multiplied.
    pub penalised: bool,
    /// Factor on the price of callers up to their fair share of the shard's busy time; 1 leaves the price.
    pub penalty: f64,
    /// Factor on the price of callers above their fair share.
    pub penalty_above: f64,
    /// Busy milliseconds of a second above which a caller is refused. It applies to callers above their fair share, or
    /// to all if no caller is. Absent while no caller is held.
    pub held_to_ms: Option<f64>,
    /// Requests that wait for the shard.
    pub waiting: u64,
    /// Waiting time of the oldest of them, in milliseconds.
    pub oldest_ms: f64,
    /// Whether the queue of the tier is overloaded.
    pub overloaded: bool,
    /// Requests shed since the start, by the queue's reason. Only reasons that shed.
    pub shed: BTreeMap<String, u64>,
}

/// The queue of one shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ShardQueue {
    /// Maximum requests at the store.
    pub limit: u32,
    /// Requests at the store.
    pub in_flight: u32,
    /// Requests that wait.
    pub waiting: u64,
    /// Their estimated cost, in request units.
    pub waiting_ru: f64,
}

/// One overload of one shard. It begins with the tick that finds pressure or a shed request, and ends once there is
/// neither and all prices are plain again.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EpisodeInfo {
    /// Number, from 1.
    pub number: u64,
    /// The shard.
    pub shard: u16,
    /// The class of operation that was first under pressure.
    pub class: String,
    /// Input of the pressure: `latency-ratio`, `queue-delay` or `lag`. Also `queue-delay` if its queues shed requests
    /// without pressure.
    #[serde(default)]
    pub input: String,
    /// The highest pressure, from 0 to 1.
    #[serde(default)]
    pub pressure_max: f64,
    /// The highest tier with a raised price. Absent if no price was raised yet.
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
    /// Duration so far, in milliseconds.
    pub duration_ms: u64,
    /// Whether it goes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub under_way: bool,
    /// Requests shed by the queues meanwhile, by tier. Only tiers that were shed.
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
