//! The admin API of requests that run, in the `OpenAPI` document.

use umbo_api::ErrorCode;

use super::admin::{ADMIN, GET, word};
use super::operation::{ApiOperation, In, Parameter, answer, empty};
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
        path: "/admin/v1/requests",
        id: "listRunningRequests",
        summary: "List the requests that run",
        about: "Of this server: requests that have waited for a shard or its store for 10 ms, and ranges and scans \
                that are streamed in more than one chunk.",
        answers: &[answer(200, "The requests.", "RunningList")],
        ..GET
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
        answers: &[empty(204, "It is being ended.")],
        errors: &[
            ADMIN,
            &[ErrorCode::RequestNotRunning, ErrorCode::InvalidHeader],
        ],
    },
];
