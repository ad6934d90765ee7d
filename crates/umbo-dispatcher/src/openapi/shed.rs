//! The admin API of overload in the `OpenAPI` document.

use super::admin::ADMIN;
use super::{Content, Operation};

/// The operations.
pub(super) const OPERATIONS: &[Operation] = &[Operation {
    method: "get",
    path: "/admin/v1/shed",
    id: "showOverload",
    summary: "Show what is overloaded and shed",
    about: "Of each shard of this pod: service times and their latency ratio by class, what each tier \
            pays and how it waits; and the engagements there were.",
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
