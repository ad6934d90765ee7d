//! Requests that run now.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A request that runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunningRequest {
    /// Its id, as its answer tells it in `Umbo-Request-Id`.
    pub id: String,
    /// Who sent it; absent until the caller is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// Its operation.
    pub operation: String,
    /// Its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The shard that alone it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<u16>,
    /// Its tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub criticality: Option<String>,
    /// Milliseconds since it began.
    pub age_ms: u64,
    /// `wait` while it waits for a permit of a shard or for the store, `encode` while its answer is streamed.
    pub phase: String,
    /// Request units it is charged so far; while it waits, its estimate.
    pub ru: f64,
    /// Name of its dispatcher; absent in the list of one dispatcher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatcher: Option<String>,
}

/// Requests that run on a server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunningList {
    /// In the order of their listing; at most `server.requests_in_flight_max`.
    pub requests: Vec<RunningRequest>,
}
