//! Cost and quotas in the `OpenAPI` document: what every request of the data plane can say and is
//! told of them, and the two routes that explain and account.

use serde_json::{Value, json};
use umbo_api::ErrorCode;

use super::admin::GET;
use super::data::{ANY, BODY};
use super::operation::{ApiOperation, Content, In, Parameter, answer};
use super::parameter::{ACCEPT_ENCODING, CONTENT_ENCODING, NS};

fn name() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$"})
}
fn ticket() -> Value {
    // Any text: a ticket that is no good counts for nothing.
    json!({"type": "string"})
}

/// What any request of the data plane can say of who pays.
pub(super) const FIELDS: &[Parameter] = &[
    Parameter {
        name: "Umbo-Quota-User",
        place: In::Header,
        schema: name,
        about: "Caller who pays instead of the credential's. This and the next three are honoured \
                only where the credential holds the grant delegate on the namespace, and are \
                ignored otherwise; Umbo-Charged-To says who paid.",
    },
    Parameter {
        name: "Umbo-User",
        place: In::Header,
        schema: name,
        about: "User for whom the caller calls.",
    },
    Parameter {
        name: "Umbo-Session",
        place: In::Header,
        schema: name,
        about: "Session in which the caller calls.",
    },
    Parameter {
        name: "Umbo-Org",
        place: In::Header,
        schema: name,
        about: "Organisation for which the caller calls.",
    },
    Parameter {
        name: "Umbo-Attempt",
        place: In::Header,
        schema: || json!({"type": "integer", "minimum": 1, "maximum": 100, "default": 1}),
        about: "Which attempt of the same request this is. Only counted.",
    },
    Parameter {
        name: "Umbo-Retry-Ticket",
        place: In::Header,
        schema: ticket,
        about: "The ticket of the rejection of an earlier attempt. Once the wait is over, the retry \
                has priority over new requests, up to the cost of that attempt. Good once, for a \
                minute, at the server that issued it; another server, and one that finds it \
                malformed, takes the request as a new one.",
    },
];

/// Returns what answers of an operation of the data plane say of quotas, where there is something to say. What is
/// free meets no quota.
pub(super) fn answer_fields(operation: &ApiOperation) -> &'static [&'static str] {
    const ANY: &[&str] = &["Umbo-Charged-To", "Umbo-Criticality-Applied"];
    const CHARGED: &[&str] = &[
        "Umbo-Charged-To",
        "Umbo-Criticality-Applied",
        "Umbo-Quota-State",
        "RateLimit-Policy",
        "RateLimit",
    ];
    let is_free = OPERATIONS.iter().any(|one| one.id == operation.id);
    if is_free { ANY } else { CHARGED }
}

/// What a rejection says besides.
pub(super) const WAIT_FIELDS: &[&str] =
    &["Retry-After", "Umbo-Retry-After-Ms", "Umbo-Retry-Ticket"];

/// Status of a rejection by a policy that says so, instead of 429.
pub(super) const OTHER_STATUS: u16 = 419;

/// The operations.
pub(super) const OPERATIONS: &[ApiOperation] = &[
    ApiOperation {
        method: "post",
        path: "/v1/ns/{ns}/explain",
        id: "explain",
        summary: "What would a request cost",
        about: "Says what a request of this caller would cost, which shards it would reach and \
                which policies it would meet. Nothing of it is done and nothing is charged. A \
                price is 1 for a read or 6 for a write, 0.05 a row, 1 for 4,096 bytes of sort keys \
                and values (and of partition keys that do not stand in the path) and 0.1 a \
                millisecond of the store, unless the settings say otherwise. Removals write no \
                bytes, and a condition that is false costs as much as one that is true.",
        parameters: &[&NS, &CONTENT_ENCODING, &ACCEPT_ENCODING],
        body: Some((Content::Json("ExplainBody"), true)),
        answers: &[answer(200, "The answer.", "ExplainAnswer")],
        errors: &[
            ANY,
            BODY,
            &[
                ErrorCode::InvalidBody,
                ErrorCode::KeyTooLarge,
                ErrorCode::UnsupportedCoding,
            ],
        ],
    },
    ApiOperation {
        path: "/v1/ns/{ns}/usage",
        id: "usage",
        summary: "What was spent",
        about: "By caller, operation and shard, through this pod since it was started. Needs the grant \
                read or observe; without observe it has the rows of the caller alone, and no shards.",
        parameters: &[&NS],
        answers: &[answer(200, "The usage.", "UsageAnswer")],
        errors: &[ANY],
        ..GET
    },
];
