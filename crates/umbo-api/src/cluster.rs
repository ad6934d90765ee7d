//! The nodes behind a dispatcher: the address of each, whether it is reachable, and its shards.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The nodes of the dispatcher that answers. Empty if its shards run in its own process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "nodes": [
        {"name": "a", "address": "shard-a:7411", "reachable": true, "map_version": 3,
         "shards": [0, 1, 2], "in_flight": 4, "clock_ahead_ms": 3, "program_version": "0.1.0"},
        {"name": "b", "address": "shard-b:7411", "reachable": false,
         "reason": "connection refused", "shards": [3, 4, 5], "in_flight": 0}
    ]
}))]
pub struct ClusterStatus {
    /// All of them, by name.
    pub nodes: Vec<NodeInfo>,
}

/// One node.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeInfo {
    /// Name in the cluster's map, or host if the engine has no map.
    pub name: String,
    /// Host and port.
    pub address: String,
    /// Whether it is reachable.
    pub reachable: bool,
    /// Why it is not reachable.
    pub reason: Option<String>,
    /// Version of the map that the node uses. Absent until it has reported it.
    pub map_version: Option<u64>,
    /// Its shards by the dispatcher's map, in order. Empty for a node of Cassandra, where each row has copies on several.
    pub shards: Vec<u16>,
    /// Requests of this dispatcher that it has not answered. Absent if they are not counted by node.
    pub in_flight: Option<u64>,
    /// Clock of the dispatcher minus clock of the node, in milliseconds. Absent until the node has reported its time.
    pub clock_ahead_ms: Option<i64>,
    /// Version of its program. Absent until the node has reported it.
    pub program_version: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_is_left_out_and_read_back() {
        let status = ClusterStatus {
            nodes: vec![NodeInfo::default()],
        };
        let text = serde_json::to_string(&status).unwrap();
        for absent in ["reason", "map_version", "clock_ahead_ms", "program_version"] {
            assert!(!text.contains(absent), "{absent} in {text}");
        }
        let read: ClusterStatus = serde_json::from_str(&text).unwrap();
        assert_eq!(read, status);
    }
}
