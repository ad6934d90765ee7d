//! The admin API of overload in the `OpenAPI` document.

use super::admin::GET;
use super::operation::{ApiOperation, answer};

/// The operations.
pub(super) const OPERATIONS: &[ApiOperation] = &[ApiOperation {
    path: "/admin/v1/shed",
    id: "showOverload",
    summary: "Show what is overloaded and shed",
    about: "Of each shard of this dispatcher: service times, latency ratio and pressure by class, by how \
            much the price of each tier is raised and how it waits; and the overloads there were.",
    answers: &[answer(200, "The shards, in their order.", "ShedStatus")],
    ..GET
}];
