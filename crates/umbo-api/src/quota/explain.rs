//! The cost of a request and the policies that would count it, before it is sent.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::admin::CompressionSetting;
use crate::batch::KeyFields;
use crate::quantity::Quantity;
use crate::whole_number;

/// A request to explain. It is neither executed nor charged. Fields that do not belong to the operation are refused.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"operation": "range", "pk": "listing-7", "limit": 100}))]
pub struct ExplainBody {
    /// Operation: `get`, `put`, `touch` (estimated as a put, and charged for the read, too), `increment`, `delete`,
    /// `range`, `delete-range`, `multi-get`, `batch-write` or `scan`.
    #[schema(
        pattern = "^(get|put|touch|increment|delete|range|delete-range|multi-get|batch-write|scan)$"
    )]
    pub operation: String,
    /// Partition key as text; of a get, put, delete, range or delete-range.
    pub pk: Option<String>,
    /// Partition key as base64url.
    pub pk64: Option<String>,
    /// Sort key as text; of a get, put or delete.
    pub sk: Option<String>,
    /// Sort key as base64url.
    pub sk64: Option<String>,
    /// Maximum rows; of a range, delete-range or scan.
    #[serde(default, deserialize_with = "whole_number::optional")]
    #[schema(minimum = 1)]
    pub limit: Option<u64>,
    /// Maximum bytes of keys and values; of a range or scan.
    #[serde(default, deserialize_with = "whole_number::optional")]
    #[schema(minimum = 1, maximum = 1_073_741_824)]
    pub max_bytes: Option<u64>,
    /// Length of the value of a put or of the body of a batch write, in bytes.
    #[serde(default, deserialize_with = "whole_number::optional")]
    pub bytes: Option<u64>,
    /// Whether it has an idempotency key. The record of the key is charged as written bytes. Of a put, touch,
    /// increment, delete or batch write.
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
    /// How values written to the namespace are kept. Compressed values are charged by their compressed bytes, but
    /// estimated by the bytes before compression. Default: `off`.
    #[serde(default, skip_serializing_if = "CompressionSetting::is_off")]
    pub compression: CompressionSetting,
    /// Request units to be reserved before the work and settled after it. Units for the bytes of a large value are
    /// reserved as the bytes arrive.
    pub estimate_ru: f64,
    /// Parts of the estimate.
    pub breakdown: ExplainBreakdown,
    /// Factor on the price while a shard is overloaded; otherwise 1.
    #[serde(default = "one")]
    pub price_multiplier: f64,
    /// Number of similar requests that the estimate has learned from. 0 if it uses this request alone.
    pub samples: u64,
    /// Shards it would reach, the largest share first. Empty if the keys that tell them are not given.
    pub shards: Vec<ExplainShard>,
    /// Policies that would count it, by name. All enforced ones must admit it.
    pub policies: Vec<ExplainPolicy>,
}

fn one() -> f64 {
    1.0
}

/// Parts of an estimate, in request units. Their sum is the estimate, except for rounding.
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
    /// For the overload of a shard: added by the price multiplier to all of the above.
    #[serde(default)]
    pub penalty: f64,
}

/// A shard that a request would reach.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExplainShard {
    /// Number.
    pub shard: u16,
    /// Fraction of the request for this shard, above 0 and up to 1.
    pub share: f64,
}

/// A bucket that would count a request.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExplainPolicy {
    /// Name of the policy.
    pub name: String,
    /// `enforce` or `shadow`.
    pub mode: String,
    /// `pod`, `shard` or `fleet`.
    pub scope: String,
    /// Counted unit.
    pub unit: String,
    /// Owner of the bucket, like `caller=search namespace=listings`; `everything` for the only bucket.
    pub label: String,
    /// Number of the bucket's shard.
    pub shard: Option<u16>,
    /// Units a second in the long run.
    pub rate: Quantity,
    /// Units at once, after idle time.
    pub burst: Quantity,
    /// Units left; negative in debt.
    pub balance: f64,
    /// Units the request would reserve.
    pub price: f64,
    /// Whether the request would be admitted now.
    pub admits: bool,
    /// How long to wait until it would be admitted, in milliseconds; 0 if it would be admitted now.
    pub wait_ms: u64,
}
