//! What was spent, by caller, operation and shard.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What has been spent on a namespace through this pod since the pod was started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "namespace": "listings",
    "ru": 5320.5,
    "rows": [{
        "caller": "search", "operation": "get", "requests": 5000, "rejected": 12, "ru": 5320.5,
        "rows": 4990, "read_bytes": 1_277_440, "write_bytes": 0
    }],
    "shards": [{"shard": 0, "requests": 2480, "ru": 2641.2}, {"shard": 1, "requests": 2520, "ru": 2679.3}]
}))]
pub struct UsageAnswer {
    /// Name of the namespace.
    pub namespace: String,
    /// Spent in all, in request units.
    pub ru: f64,
    /// By caller and operation, the most spent first; without the grant `admin` only one's own.
    pub rows: Vec<UsageRow>,
    /// By shard, in their order, whoever spent it; only with the grant `admin`.
    pub shards: Vec<ShardUsage>,
}

/// What a caller has spent on an operation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsageRow {
    /// Who paid; `(all others)` for those who were not heard of for so long that they were added up.
    pub caller: String,
    /// What for.
    pub operation: String,
    /// Requests admitted.
    pub requests: u64,
    /// Requests rejected; nothing was charged for them.
    pub rejected: u64,
    /// Charged, in request units.
    pub ru: f64,
    /// Rows read or written.
    pub rows: u64,
    /// Bytes read from the store.
    pub read_bytes: u64,
    /// Bytes written to the store.
    pub write_bytes: u64,
}

/// What was spent on a shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ShardUsage {
    /// Number.
    pub shard: u16,
    /// Requests that reached it; one that reached several counts at each.
    pub requests: u64,
    /// Charged, in request units.
    pub ru: f64,
}
