//! Usage by caller, operation and shard.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Usage of a namespace through this dispatcher since its start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "namespace": "listings",
    "ru": 5320.5,
    "penalty": 0.0,
    "rows": [{
        "caller": "search", "operation": "get", "requests": 5000, "rejected": 12, "ru": 5320.5,
        "penalty": 0.0, "rows": 4990, "read_bytes": 1_277_440, "write_bytes": 0
    }],
    "shards": [{"shard": 0, "requests": 2480, "ru": 2641.2}, {"shard": 1, "requests": 2520, "ru": 2679.3}]
}))]
pub struct UsageAnswer {
    /// Name of the namespace.
    pub namespace: String,
    /// Total usage, in request units.
    pub ru: f64,
    /// Part of it that overloads of shards added to the plain prices.
    #[serde(default)]
    pub penalty: f64,
    /// By caller and operation, highest usage first. Without the permission `observe`, only the caller's own.
    pub rows: Vec<UsageRow>,
    /// By shard, in order, for all callers together. Only with the permission `observe`.
    pub shards: Vec<ShardUsage>,
}

/// Usage of an operation by a caller.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsageRow {
    /// The caller that paid; `(all others)` for the sum of callers that were idle for long.
    pub caller: String,
    /// Operation.
    pub operation: String,
    /// Requests admitted.
    pub requests: u64,
    /// Requests rejected; nothing was charged for them.
    pub rejected: u64,
    /// Charged, in request units.
    pub ru: f64,
    /// Part of it that overloads of shards added to the plain prices.
    #[serde(default)]
    pub penalty: f64,
    /// Rows read or written, including keys without a row.
    pub rows: u64,
    /// Bytes read from the store.
    pub read_bytes: u64,
    /// Bytes written to the store.
    pub write_bytes: u64,
}

/// The callers and their usage through this dispatcher since its start, highest usage first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CallerList {
    /// The callers, up to the requested number.
    pub callers: Vec<CallerTotals>,
    /// Number of all callers.
    pub total: u64,
}

/// Usage by a caller of all namespaces together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CallerTotals {
    /// The caller that paid; `(all others)` for the sum of callers that were idle for long.
    pub caller: String,
    /// Requests admitted.
    pub requests: u64,
    /// Requests rejected; nothing was charged for them.
    pub rejected: u64,
    /// Charged, in request units.
    pub ru: f64,
    /// Part of it that overloads of shards added to the plain prices.
    pub penalty: f64,
    /// Bytes read from the store.
    pub read_bytes: u64,
    /// Bytes written to the store.
    pub write_bytes: u64,
}

/// Usage by a caller, by namespace and operation, highest usage first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CallerUsage {
    /// Name of the caller.
    pub caller: String,
    /// By namespace and operation; empty if no usage was counted.
    pub rows: Vec<CallerUsageRow>,
}

/// Usage of an operation on a namespace by a caller.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CallerUsageRow {
    /// Name of the namespace, or its number if it was removed.
    pub namespace: String,
    /// The usage.
    #[serde(flatten)]
    pub usage: UsageRow,
}

/// Usage of a shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ShardUsage {
    /// Number.
    pub shard: u16,
    /// Requests that reached it. A request that reached several shards counts at each.
    pub requests: u64,
    /// Charged, in request units.
    pub ru: f64,
}

/// Usage of the last days through all dispatchers, by caller or by other groups.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "from_ms": 1_790_000_400_000_u64,
    "first_ms": 1_790_000_400_000_u64,
    "until_ms": 1_790_604_913_250_u64,
    "unreadable_rows": 0,
    "ru": 5320.5,
    "total": 1,
    "rows": [{
        "caller": "search", "requests": 5000, "rejected": 12, "ru": 5320.5, "penalty": 0.0, "rows": 4990,
        "read_bytes": 1_277_440, "write_bytes": 0, "ru_second_max": 210.0, "ru_ten_seconds_max": 1480.5
    }]
}))]
pub struct UsageHistory {
    /// Begin of the first step of ten minutes that is counted, in milliseconds since the Unix epoch.
    pub from_ms: u64,
    /// Begin of the first of these steps with a row at the home of Umbo's own records; absent if there is no row. Rows
    /// of a former home are not in the answer.
    pub first_ms: Option<u64>,
    /// Rows of a step and a dispatcher that are missing in the sums, or a part of them: they are damaged, or of a later
    /// version.
    #[serde(default)]
    pub unreadable_rows: u64,
    /// The present. Usage through the answering dispatcher is counted up to the last second, through others up to the
    /// last minute.
    pub until_ms: u64,
    /// Total usage, in request units.
    pub ru: f64,
    /// Number of all groups.
    pub total: u64,
    /// The groups, up to the requested number: the newest day or month first, then highest usage first.
    pub rows: Vec<UsageHistoryRow>,
}

/// Usage of a group; only the fields that the request asks for name it.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsageHistoryRow {
    /// Day (`2026-11-27`) or month (`2026-11`) in UTC.
    pub period: Option<String>,
    /// Whether the answer has only a part of this day or month, because it has not ended or began before `from_ms`.
    #[serde(default)]
    pub partial: bool,
    /// The caller that paid; `(all others)` for the sum of callers that are not listed.
    pub caller: Option<String>,
    /// Name of the namespace at the time; `(all others)` for the sum of namespaces that are not listed.
    pub namespace: Option<String>,
    /// Operation.
    pub operation: Option<String>,
    /// Requests admitted.
    pub requests: u64,
    /// Requests rejected; nothing was charged for them.
    pub rejected: u64,
    /// Charged, in request units.
    pub ru: f64,
    /// Part of it that overloads of shards added to the plain prices.
    pub penalty: f64,
    /// Rows read or written, including keys without a row.
    pub rows: u64,
    /// Bytes read from the store.
    pub read_bytes: u64,
    /// Bytes written to the store.
    pub write_bytes: u64,
    /// Request units of the greatest second, about: the greatest second of each caller, namespace, operation and
    /// dispatcher in a step of ten minutes, added up, of the greatest step. A sample that is late is spread evenly over
    /// its seconds.
    pub ru_second_max: f64,
    /// The same of ten seconds, which begin at a multiple of ten.
    pub ru_ten_seconds_max: f64,
}
