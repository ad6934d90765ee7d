//! Versions in the `OpenAPI` document.

use serde_json::json;
use umbo_api::ErrorCode;

use super::admin::GET;
use super::data::{ANY, QUOTA, STORE};
use super::operation::{Answer, ApiOperation, In, Parameter, answer};
use super::parameter::{DRY_RUN, NS};

const VERSION: Parameter = Parameter {
    name: "version",
    place: In::Path,
    schema: || json!({"type": "integer", "minimum": 1}),
    about: "Number of the version.",
};

const CHANGED: &[Answer] = &[answer(
    200,
    "What it changed, or would change in a dry run.",
    "VersionChange",
)];

/// The operations.
pub(super) const OPERATIONS: &[ApiOperation] = &[
    ApiOperation {
        path: "/v1/ns/{ns}/versions",
        id: "listVersions",
        summary: "List versions",
        about: "The live version, those that are kept for a rollback, and the one that a load of mode replace builds. \
                Sizes are what the shards count now.",
        parameters: &[&NS],
        answers: &[answer(200, "The versions.", "VersionList")],
        errors: &[ANY, QUOTA],
        ..GET
    },
    ApiOperation {
        method: "post",
        path: "/v1/ns/{ns}/versions/{version}/activate",
        id: "activateVersion",
        summary: "Activate a version",
        about: "Reads that begin afterwards see this version: one that is ready, or one that is kept. Pages that have \
                begun go on in theirs. The version before is kept for a day and gets all writes, so that going back loses \
                none; older ones are dropped. Needs the grant write.",
        parameters: &[&NS, &VERSION, &DRY_RUN],
        body: None,
        answers: CHANGED,
        errors: &[
            ANY,
            STORE,
            &[
                ErrorCode::VersionNotFound,
                ErrorCode::VersionNotReady,
                ErrorCode::VersionSuperseded,
            ],
        ],
    },
    ApiOperation {
        method: "post",
        path: "/v1/ns/{ns}/versions/rollback",
        id: "rollBack",
        summary: "Roll back",
        about: "Activates the version that was live before. Writes made since are in it. Needs the grant write.",
        parameters: &[&NS, &DRY_RUN],
        body: None,
        answers: CHANGED,
        errors: &[ANY, STORE, &[ErrorCode::VersionSuperseded]],
    },
    ApiOperation {
        method: "delete",
        path: "/v1/ns/{ns}/versions/{version}",
        id: "removeVersion",
        summary: "Drop a version",
        about: "Drops a version that is kept; its space is reclaimed. Needs the grant write.",
        parameters: &[&NS, &VERSION, &DRY_RUN],
        body: None,
        answers: CHANGED,
        errors: &[
            ANY,
            STORE,
            &[
                ErrorCode::VersionInUse,
                ErrorCode::VersionNotFound,
                ErrorCode::VersionSuperseded,
            ],
        ],
    },
];
