//! The questions why requests were refused or slow, in the `OpenAPI` document.

use serde_json::json;
use umbo_api::ErrorCode;

use super::admin::{ADMIN, GET, word};
use super::operation::{ApiOperation, In, Parameter, answer};

const REQUEST_ID: Parameter = Parameter {
    name: "request_id",
    place: In::Path,
    schema: word,
    about: "Id of the request, as its answer told it.",
};
const CALLER: Parameter = Parameter {
    name: "caller",
    place: In::RequiredQuery,
    schema: word,
    about: "The caller that was refused: who pays.",
};
const LAST: Parameter = Parameter {
    name: "last",
    place: In::Query,
    schema: || json!({"type": "string", "pattern": "^([1-9][0-9]{0,3}s|[1-9][0-9]?m|1h)$", "default": "15m"}),
    about: "How far back, at most an hour; counted by whole minutes.",
};

/// The operations.
pub(super) const OPERATIONS: &[ApiOperation] = &[
    ApiOperation {
        path: "/admin/v1/why/{request_id}",
        id: "explainRequest",
        summary: "Show why a request was refused or slow",
        about: "What this server recorded of the request: where its time went, what it cost, every policy that was \
                asked, and how its shard was. Of two requests with the same id the newer one. Every refused, failed \
                or slow request leaves a record, and one in 1,024 of the others; the last 100,000 are kept, of each \
                caller its share. A caller needs no grant for its own requests and those that it pays for.",
        parameters: &[&REQUEST_ID],
        answers: &[answer(200, "The record.", "RequestExplanation")],
        errors: &[ADMIN, &[ErrorCode::RecordNotFound]],
        ..GET
    },
    ApiOperation {
        path: "/admin/v1/why",
        id: "explainRefusals",
        summary: "Count why a caller was refused",
        about: "Refusals of one caller by reason, with the id of the last request of each; counted for an hour, \
                also where the records are gone. A caller needs no grant for its own.",
        parameters: &[&CALLER, &LAST],
        answers: &[answer(
            200,
            "The reasons, the most frequent first.",
            "CallerRefusals",
        )],
        ..GET
    },
];
