//! Why a request was refused, failed or slow: its record as a server shows it, and refusals by reason.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::quota::ExplainBreakdown;

/// What a server recorded of a request. Every refused, failed or slow request leaves a record, and a sample of
/// all others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "id": "5f3a9c01000000000007", "at_ms": 1_790_000_000_000_u64, "operation": "get", "namespace": "demo",
    "caller": "crawler", "criticality": "sheddable-plus", "status": 429, "code": "quota-exceeded",
    "outcome": "rejected", "kept_as": "refused", "phase": "admit", "total_ms": 0.041,
    "phases": [{"phase": "prepare", "ms": 0.041}], "estimate_ru": 1.0, "actual_ru": 0.0,
    "ru_parts": {"base": 1.0, "rows": 0.0, "read_bytes": 0.0, "write_bytes": 0.0, "latency": 0.0, "penalty": 0.0},
    "policies": [{
        "policy": "crawlers", "scope": "pod", "unit": "ru", "rate": 100.0, "balance": -0.2, "cost": 1.0,
        "verdict": "rejected", "wait_ms": 13
    }],
    "text": "The get on namespace 'demo' of caller 'crawler' was rejected."
}))]
pub struct RequestExplanation {
    /// Id of the request.
    pub id: String,
    /// When it ended, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// What it was to do.
    pub operation: String,
    /// The namespace, where it was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Who paid, or would have; absent where the caller was not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// Whose token it carried, where that is another caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called_by: Option<String>,
    /// The tier in effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub criticality: Option<String>,
    /// Status of the answer; absent where the client left before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Error code of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// `served`, `refused`, `rejected` (a quota), `shed` (an overload), `failed` or `abandoned` (its client left).
    pub outcome: String,
    /// Why there is a record: `refused`, `slow` or `sample`.
    pub kept_as: String,
    /// The last phase that it came to.
    pub phase: String,
    /// From its head to its end, in milliseconds; of a stream until the client had taken it.
    pub total_ms: f64,
    /// Where the time went. Times of several shards add up, and may come to more than the whole.
    pub phases: Vec<PhaseTime>,
    /// Estimate of its cost, in request units; cost and policies are not kept of a request that the queue of a shard shed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_ru: Option<f64>,
    /// What was charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actual_ru: Option<f64>,
    /// Parts of the estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ru_parts: Option<ExplainBreakdown>,
    /// By how much an overload raised the price; absent for the plain price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_multiplier: Option<f64>,
    /// Every policy that was asked, with its bucket at the end of the request.
    pub policies: Vec<AskedPolicy>,
    /// The queue of its shard at that moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueMoment>,
    /// How overloaded its shard was, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<f64>,
    /// How a read was answered: `hit`, `collapsed`, `miss` or `bypass`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
    /// Number of the shard, where it concerned one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<u16>,
    /// The shard node that has this shard now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// How often a shard node was asked; absent where no node was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u8>,
    /// What the client was told, at most 240 bytes of it; absent where it follows from the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// How many older requests with the same id are known; a client may choose its ids.
    pub older: u16,
    /// What happened, and what to do about it.
    pub text: String,
}

/// How long a part of a request took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PhaseTime {
    /// `prepare` (until a shard was asked for), `wait` (for a permit), `fetch` (in the shard), `network` (to a
    /// shard node and back) or `answer` (the rest; of a stream what its client took).
    pub phase: String,
    /// Milliseconds.
    pub ms: f64,
}

/// What a policy said of a request. Amounts are in its unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AskedPolicy {
    /// Its name.
    pub policy: String,
    /// `pod`, or `shard` for a policy that counts by shard.
    pub scope: String,
    /// What it counts: `ru`, `requests`, `reads`, `writes`, `read-bytes`, `write-bytes` or `bytes`.
    pub unit: String,
    /// Refill a second.
    pub rate: f64,
    /// What is left; negative in debt.
    pub balance: f64,
    /// What the request would take.
    pub cost: f64,
    /// `admitted`; `rejected`, also where another policy rejected first; `would-admit`: the balance covers the request, but
    /// another policy rejected it or this one is not enforced; `would-reject`: the balance does not cover it, and the
    /// policy is not enforced.
    pub verdict: String,
    /// What was asked for a second, of the policy that rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<f64>,
    /// Time until the cost is covered, in milliseconds; absent where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u32>,
}

/// The queue of a shard, at most 100 ms before a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueMoment {
    /// Permits there were.
    pub limit: u32,
    /// Permits that were taken.
    pub in_flight: u32,
    /// Requests that waited for one.
    pub waiting: u32,
}

/// Why a caller was refused lately.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "caller": "crawler", "window_ms": 900_000, "kept_for_ms": 3_600_000,
    "reasons": [{
        "code": "quota-exceeded", "count": 8120, "policy": "crawlers", "last_at_ms": 1_790_000_000_000_u64,
        "example": "5f3a9c01000000000007", "text": "Policy 'crawlers' rejected it 8120 times."
    }]
}))]
pub struct CallerRefusals {
    /// The caller that was asked for.
    pub caller: String,
    /// The time that the counts cover, in milliseconds: whole minutes, the one under way included.
    pub window_ms: u64,
    /// Reasons, the most frequent first. Answers that nothing is stored, or that a condition was false, are no
    /// refusals and not counted.
    pub reasons: Vec<RefusalReason>,
    /// For how long refusals are counted at most, in milliseconds.
    pub kept_for_ms: u64,
}

/// One reason for which a caller was refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RefusalReason {
    /// The error code; `client-left` where the client did not wait for the answer.
    pub code: String,
    /// How often.
    pub count: u64,
    /// The policy that rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The shard concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<u16>,
    /// When it last was, in milliseconds since the Unix epoch.
    pub last_at_ms: u64,
    /// Id of the last request.
    pub example: String,
    /// What it means, and what to do about it.
    pub text: String,
}
