//! What a request would cost and which policies it would meet, before it is sent.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::admin::CompressionSetting;
use crate::batch::KeyFields;
use crate::quantity::Quantity;
use crate::whole_number;

/// A request to explain. Nothing of it is done and nothing is charged for it. A field that says nothing of the
/// operation is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"operation": "range", "pk": "listing-7", "limit": 100}))]
pub struct ExplainBody {
    /// What it would do: `get`, `put`, `touch` (estimated as a put, and charged for the read, too), `increment`,
    /// `delete`, `range`, `delete-range`, `multi-get`, `batch-write` or `scan`.
    #[schema(
        pattern = "^(get|put|touch|increment|delete|range|delete-range|multi-get|batch-write|scan)$"
    )]
    pub operation: String,
    /// Partition key as text; of a get, put, delete, range or delete-range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pk: Option<String>,
    /// Partition key as base64url.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pk64: Option<String>,
    /// Sort key as text; of a get, put or delete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sk: Option<String>,
    /// Sort key as base64url.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sk64: Option<String>,
    /// Most rows; of a range, delete-range or scan.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::optional"
    )]
    #[schema(minimum = 1)]
    pub limit: Option<u64>,
    /// Most bytes of keys and values; of a range or scan.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::optional"
    )]
    #[schema(minimum = 1, maximum = 1_073_741_824)]
    pub max_bytes: Option<u64>,
    /// Length of the value of a put or of the body of a batch write, in bytes.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::optional"
    )]
    pub bytes: Option<u64>,
    /// Whether it would have an idempotency key, whose record is charged as written bytes; of a put, touch, increment,
    /// delete or batch write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    /// Keys of a multi-get or batch write.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 10000)]
    pub keys: Vec<KeyFields>,
}

/// The cost of the request, and the policies that apply to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "estimate_ru": 7.31,
    "breakdown": {"base": 1.0, "rows": 5.0, "read_bytes": 1.25, "write_bytes": 0.0, "latency": 0.06, "penalty": 0.0},
    "price_multiplier": 1.0,
    "samples": 4120,
    "shards": [{"shard": 3, "share": 1.0}],
    "policies": [{
        "name": "listing-reads", "mode": "enforce", "scope": "pod", "unit": "ru",
        "label": "caller=search", "rate": 1000, "burst": 2000, "balance": 1480.5, "price": 7.31,
        "admits": true, "wait_ms": 0
    }]
}))]
pub struct ExplainAnswer {
    /// How values that are written to the namespace are kept: what is moved at the store is charged, so a compressed
    /// value costs what its compressed bytes do. The estimate is of the bytes before. `off` where absent.
    #[serde(default, skip_serializing_if = "CompressionSetting::is_off")]
    pub compression: CompressionSetting,
    /// Request units that would be reserved before the work, and settled after it; those for the bytes of a large
    /// value are reserved as they come.
    pub estimate_ru: f64,
    /// What the estimate is made of.
    pub breakdown: ExplainBreakdown,
    /// By how much the price is multiplied because a shard is overloaded; 1 in calm.
    #[serde(default = "one")]
    pub price_multiplier: f64,
    /// Requests like this one from which the estimate has learned; 0 where it rests on what the
    /// request says alone.
    pub samples: u64,
    /// Shards it would reach, the largest share first; empty where only the rows themselves tell.
    pub shards: Vec<ExplainShard>,
    /// Policies that would count it, by name. All that are enforced must admit it.
    pub policies: Vec<ExplainPolicy>,
}

fn one() -> f64 {
    1.0
}

/// Parts of an estimate, in request units. They add up to it, but for what rounding leaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExplainBreakdown {
    /// For the operation as such.
    pub base: f64,
    /// For the rows read or written.
    pub rows: f64,
    /// For the bytes read.
    pub read_bytes: f64,
    /// For the bytes written.
    pub write_bytes: f64,
    /// For the time the store takes.
    pub latency: f64,
    /// For the overload of a shard: what the price multiplier adds to all of the above; 0 in calm.
    #[serde(default)]
    pub penalty: f64,
}

/// A shard that a request would reach.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExplainShard {
    /// Number.
    pub shard: u16,
    /// Part of the request that falls on it, above 0 and up to 1.
    pub share: f64,
}

/// A bucket that a request would meet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExplainPolicy {
    /// Name of the policy.
    pub name: String,
    /// `enforce` or `shadow`.
    pub mode: String,
    /// `pod` or `shard`.
    pub scope: String,
    /// What is counted.
    pub unit: String,
    /// Whose bucket it is, like `caller=search namespace=listings`; `everything` where one serves all.
    pub label: String,
    /// Number of the shard the bucket is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<u16>,
    /// Units a second it may have.
    pub rate: Quantity,
    /// Units at once it may have.
    pub burst: Quantity,
    /// Units left; negative in debt.
    pub balance: f64,
    /// Units the request would reserve.
    pub price: f64,
    /// Whether the request would be admitted now.
    pub admits: bool,
    /// How long to wait for that, in milliseconds; 0 where it would be admitted now.
    pub wait_ms: u64,
}
