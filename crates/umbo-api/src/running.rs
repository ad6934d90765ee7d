//! Requests that run now.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A request that runs.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunningRequest {
    /// Its id, sent in `Umbo-Request-Id` of its answer.
    pub id: String,
    /// Its caller. Absent until the caller is known.
    pub caller: Option<String>,
    /// Its operation.
    pub operation: String,
    /// Its namespace.
    pub namespace: Option<String>,
    /// Its shard, if it concerns only one.
    pub shard: Option<u16>,
    /// Its tier.
    pub criticality: Option<String>,
    /// Milliseconds since it began.
    pub age_ms: u64,
    /// `wait` while it waits for a permit of a shard or for the store, `encode` while its answer is streamed.
    pub phase: String,
    /// Request units charged so far; while it waits, the estimate.
    pub ru: f64,
    /// Name of its dispatcher; absent in the list of one dispatcher.
    pub dispatcher: Option<String>,
}

/// Requests that run on a server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunningList {
    /// The requests, in the order of their listing; at most `server.requests_in_flight_max`.
    pub requests: Vec<RunningRequest>,
}
