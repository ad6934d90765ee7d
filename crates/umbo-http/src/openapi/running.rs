//! The admin API of requests that run, in the `OpenAPI` document.

use umbo_api::ErrorCode;

use super::admin::{ADMIN, word};
use super::operation::{ApiOperation, Content, In, Parameter};
use super::parameter::REASON;

const ID: Parameter = Parameter {
    name: "id",
    place: In::Path,
    schema: word,
    about: "Id of the request.",
};

/// The operations.
pub(super) const OPERATIONS: &[ApiOperation] = &[
    ApiOperation {
        method: "get",
        path: "/admin/v1/requests",
        id: "listRunningRequests",
        summary: "List the requests that run",
        about: "Of this server: requests that have waited for a shard or its store for 10 ms, and ranges and scans \
                that are streamed in more than one chunk.",
        parameters: &[],
        body: None,
        answers: &[(200, "The requests.", Content::Json("RunningList"), &[])],
        errors: &[ADMIN],
    },
    ApiOperation {
        method: "delete",
        path: "/admin/v1/requests/{id}",
        id: "killRequest",
        summary: "End a request that runs",
        about: "A stream ends after the chunk under way, with an error line that has the reason and the cursor to go \
                on; a request that waits is refused. A write that has reached the store is not undone. What was done \
                is charged.",
        parameters: &[&ID, &REASON],
        body: None,
        answers: &[(204, "It is being ended.", Content::None, &[])],
        errors: &[
            ADMIN,
            &[ErrorCode::RequestNotRunning, ErrorCode::InvalidHeader],
        ],
    },
];
