//! The admin API of overload in the `OpenAPI` document.

use super::admin::ADMIN;
use super::operation::{ApiOperation, Content};

/// The operations.
pub(super) const OPERATIONS: &[ApiOperation] = &[ApiOperation {
    method: "get",
    path: "/admin/v1/shed",
    id: "showOverload",
    summary: "Show what is overloaded and shed",
    about: "Of each shard of this dispatcher: service times, latency ratio and pressure by class, by how \
            much the price of each tier is raised and how it waits; and the overloads there were.",
    parameters: &[],
    body: None,
    answers: &[(
        200,
        "The shards, in their order.",
        Content::Json("ShedStatus"),
        &[],
    )],
    errors: &[ADMIN],
}];
