//! Why a request was refused, failed or slow: its record as a server shows it, and refusals by reason.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::quota::ExplainBreakdown;

/// Record of a request. Every refused, failed or slow request leaves a record, and so does a sample of all others.
#[serde_with::skip_serializing_none]
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
    /// Its operation.
    pub operation: String,
    /// The namespace, if it was found.
    pub namespace: Option<String>,
    /// Caller who paid or would have paid. Absent if the caller was not known yet.
    pub caller: Option<String>,
    /// Caller by its token, if another caller paid.
    pub called_by: Option<String>,
    /// The tier in effect.
    pub criticality: Option<String>,
    /// Status of the answer. Absent if the client left before.
    pub status: Option<u16>,
    /// Error code of the answer.
    pub code: Option<String>,
    /// `served`, `refused`, `rejected` (a quota), `shed` (an overload), `failed` or `abandoned` (its client left).
    pub outcome: String,
    /// Why there is a record: `refused`, `slow` or `sample`.
    pub kept_as: String,
    /// The last phase that it reached.
    pub phase: String,
    /// Time from its head to its end, in milliseconds. A stream ends when the client has taken it.
    pub total_ms: f64,
    /// Time by phase. Times of several shards add up, and may exceed the total.
    pub phases: Vec<PhaseTime>,
    /// Estimate of its cost, in request units. For a request that the queue of a shard shed, neither cost nor policies
    /// are recorded.
    pub estimate_ru: Option<f64>,
    /// Request units charged.
    pub actual_ru: Option<f64>,
    /// Parts of the estimate.
    pub ru_parts: Option<ExplainBreakdown>,
    /// Factor on the price by an overload. Absent for the plain price.
    pub price_multiplier: Option<f64>,
    /// Every policy that counted it, with its bucket at the end of the request.
    pub policies: Vec<AskedPolicy>,
    /// The queue of its shard at that moment.
    pub queue: Option<QueueMoment>,
    /// Pressure of its shard, from 0 to 1.
    pub pressure: Option<f64>,
    /// How a read was answered: `hit`, `collapsed`, `miss` or `bypass`.
    pub cache: Option<String>,
    /// Number of the shard, if it concerned only one.
    pub shard: Option<u16>,
    /// The shard node that has this shard now.
    pub node: Option<String>,
    /// Number of attempts at the shard node. Absent if no node was asked.
    pub attempts: Option<u8>,
    /// Detail of the answer, at most 240 bytes. Absent if the other fields tell it.
    pub detail: Option<String>,
    /// Number of older records with the same id; a client may choose its ids.
    pub older: u16,
    /// The row that the record was read from. Absent if the answering server has it in memory.
    pub kept: Option<KeptRecord>,
    /// What happened, and what to do about it.
    pub text: String,
}

/// A row of records that a server wrote, and that outlives it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeptRecord {
    /// The server that wrote it: name of the machine and number of the process.
    pub server: String,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Records without room in the row.
    pub left_out: u64,
}

/// Duration of a phase of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PhaseTime {
    /// `prepare` (until a shard was asked for), `wait` (for a permit), `fetch` (in the shard), `network` (to a
    /// shard node and back) or `answer` (the rest; of a stream what its client took).
    pub phase: String,
    /// Milliseconds.
    pub ms: f64,
}

/// Verdict of a policy on a request. Amounts are in its unit.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AskedPolicy {
    /// Its name.
    pub policy: String,
    /// `pod`, `shard` for a policy that counts by shard, or `fleet` for a policy that counts over all dispatchers.
    pub scope: String,
    /// Counted unit: `ru`, `requests`, `reads`, `writes`, `read-bytes`, `write-bytes` or `bytes`.
    pub unit: String,
    /// Refill a second.
    pub rate: f64,
    /// Units left; negative in debt.
    pub balance: f64,
    /// Units that the request would take.
    pub cost: f64,
    /// `admitted`; `rejected`, also if another policy rejected first; `would-admit`: the balance covers the request,
    /// but another policy rejected it or this one is not enforced; `would-reject`: the balance does not cover it, and
    /// the policy is not enforced.
    pub verdict: String,
    /// Requested units a second. Only for the policy that rejected.
    pub observed: Option<f64>,
    /// Time until the balance covers the cost, in milliseconds. Absent if it does.
    pub wait_ms: Option<u32>,
}

/// The queue of a shard, at most 100 ms before a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueMoment {
    /// Permits in all.
    pub limit: u32,
    /// Permits in use.
    pub in_flight: u32,
    /// Requests that waited for a permit.
    pub waiting: u32,
}

/// Why a caller was refused lately.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "caller": "crawler", "window_ms": 900_000, "kept_for_ms": 3_600_000,
    "reasons": [{
        "code": "quota-exceeded", "count": 8120, "policy": "crawlers", "last_at_ms": 1_790_000_000_000_u64,
        "example": "5f3a9c01000000000007", "text": "Policy 'crawlers' rejected it 8120 times."
    }]
}))]
pub struct CallerRefusals {
    /// The caller that was asked for. Absent if none was.
    pub caller: Option<String>,
    /// Period of the counts, in milliseconds: whole minutes, including the one under way.
    pub window_ms: u64,
    /// Reasons, the most frequent first; of all callers, the newest first. `key-not-found` and `precondition-failed` are not refusals and not counted.
    pub reasons: Vec<RefusalReason>,
    /// Maximum period of the counts, in milliseconds.
    pub kept_for_ms: u64,
    /// Part of the refusals that other processes wrote down, also ones that have ended.
    #[serde(default)]
    pub kept: u64,
    /// Known gaps in these counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A reason for refusals of a caller.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RefusalReason {
    /// The caller that was refused. Only if none was asked for.
    pub caller: Option<String>,
    /// The error code; `client-left` if the client did not wait for the answer.
    pub code: String,
    /// Number of refusals.
    pub count: u64,
    /// The policy that rejected.
    pub policy: Option<String>,
    /// The shard concerned.
    pub shard: Option<u16>,
    /// When it last occurred, in milliseconds since the Unix epoch.
    pub last_at_ms: u64,
    /// Id of the last request.
    pub example: String,
    /// Explanation, and advice.
    pub text: String,
}
