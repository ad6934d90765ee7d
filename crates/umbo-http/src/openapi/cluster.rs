//! The admin API of nodes and shards in the `OpenAPI` document.

use super::admin::ADMIN;
use super::operation::{ApiOperation, Content};

/// The operations.
pub(super) const OPERATIONS: &[ApiOperation] = &[
    ApiOperation {
        method: "get",
        path: "/admin/v1/shards",
        id: "listShards",
        summary: "List shards",
        about: "",
        parameters: &[],
        body: None,
        answers: &[(
            200,
            "The shards, in order.",
            Content::Json("ShardList"),
            &[],
        )],
        errors: &[ADMIN],
    },
    ApiOperation {
        method: "get",
        path: "/admin/v1/cluster",
        id: "showCluster",
        summary: "Show the nodes of the cluster",
        about: "As this pod sees them: which it reaches, by which version of the map they go, and which \
                shards they have. None where the shards are in the pod's own process.",
        parameters: &[],
        body: None,
        answers: &[(
            200,
            "The nodes, by name.",
            Content::Json("ClusterStatus"),
            &[],
        )],
        errors: &[ADMIN],
    },
];
