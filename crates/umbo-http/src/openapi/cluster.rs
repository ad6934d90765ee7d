//! The admin API of nodes, shards and backups in the `OpenAPI` document.

use serde_json::json;
use umbo_api::ErrorCode;

use super::admin::{ADMIN, GET};
use super::operation::{ApiOperation, Content, In, Parameter, answer, empty};

const BACKUP: Parameter = Parameter {
    name: "backup",
    place: In::Path,
    schema: || json!({"type": "string", "pattern": "^[0-9a-fA-F]{16}$"}),
    about: "Number of the backup: 16 hexadecimal digits.",
};
const SHARD: Parameter = Parameter {
    name: "shard",
    place: In::Path,
    schema: || json!({"type": "integer", "minimum": 0}),
    about: "Number of the shard, from 0 on.",
};
const PIECE: Parameter = Parameter {
    name: "piece",
    place: In::Path,
    schema: || json!({"type": "integer", "minimum": 1}),
    about: "Number of the piece, from 1 on.",
};

/// The operations.
pub(super) const OPERATIONS: &[ApiOperation] = &[
    ApiOperation {
        path: "/admin/v1/shards",
        id: "listShards",
        summary: "List shards",
        answers: &[answer(200, "The shards, in order.", "ShardList")],
        ..GET
    },
    ApiOperation {
        path: "/admin/v1/cluster",
        id: "showCluster",
        summary: "Show the nodes of the cluster",
        about: "As this pod sees them: which it reaches, by which version of the map they go, and which \
                shards they have. None where the shards are in the pod's own process.",
        answers: &[answer(200, "The nodes, by name.", "ClusterStatus")],
        ..GET
    },
    ApiOperation {
        method: "post",
        path: "/admin/v1/backups",
        id: "beginBackup",
        summary: "Begin a backup",
        about: "Takes the state of every shard, and the records beside them. A shard has one backup at a time: this one \
                ends another. `umbo backup` makes whole backups of it.",
        parameters: &[],
        body: None,
        answers: &[answer(200, "What was begun.", "BackupBegun")],
        errors: &[ADMIN],
    },
    ApiOperation {
        path: "/admin/v1/backups/{backup}/{shard}/{piece}",
        id: "readBackup",
        summary: "Read a piece of a shard of a backup",
        about: "One after the other; the last one may be read again. The state of a shard is kept for 60 s after its last \
                piece was read: then, and when the shard was opened again, there is no such piece: 404.",
        parameters: &[&BACKUP, &SHARD, &PIECE],
        answers: &[
            (200, "The piece.", Content::AnyBytes, &[]),
            empty(204, "There is no such piece: the shard is read."),
        ],
        errors: &[ADMIN, &[ErrorCode::RouteNotFound]],
        ..GET
    },
];
