//! The admin API of quotas in the `OpenAPI` document.

use serde_json::json;
use umbo_api::ErrorCode;

use super::admin::{ADMIN, BODY, GET, word};
use super::operation::{ApiOperation, Content, In, Parameter, answer, tagged};
use super::parameter::{CONTENT_ENCODING, DRY_RUN, IF_MATCH, IF_NONE, REASON};

/// What a change of a policy can meet.
const CHANGE: &[ErrorCode] = &[
    ErrorCode::InvalidHeader,
    ErrorCode::PreconditionFailed,
    ErrorCode::QuotaOfFile,
];

const NAME: Parameter = Parameter {
    name: "name",
    place: In::Path,
    schema: word,
    about: "Name of the policy.",
};
const LIMIT: Parameter = Parameter {
    name: "limit",
    place: In::Query,
    schema: || json!({"type": "integer", "minimum": 1, "maximum": 10_000, "default": 100}),
    about: "Most users.",
};
const CALLERS: Parameter = Parameter {
    name: "limit",
    place: In::Query,
    schema: || json!({"type": "integer", "minimum": 1, "maximum": 10_000, "default": 1000}),
    about: "Most callers.",
};
const CALLER: Parameter = Parameter {
    name: "caller",
    place: In::Path,
    schema: word,
    about: "Name of the caller.",
};

/// The operations.
pub(super) const OPERATIONS: &[ApiOperation] = &[
    ApiOperation {
        path: "/admin/v1/callers",
        id: "listCallers",
        summary: "List callers",
        about: "What each has spent through this pod since it was started, on all namespaces together.",
        parameters: &[&CALLERS],
        answers: &[answer(
            200,
            "The callers, highest usage first.",
            "CallerList",
        )],
        ..GET
    },
    ApiOperation {
        path: "/admin/v1/callers/{caller}",
        id: "describeCaller",
        summary: "Describe a caller",
        about: "What it has spent through this pod since it was started, by namespace and operation.",
        parameters: &[&CALLER],
        answers: &[answer(200, "Its usage.", "CallerUsage")],
        ..GET
    },
    ApiOperation {
        path: "/admin/v1/quotas",
        id: "listPolicies",
        summary: "List quota policies",
        about: "Those in effect on this pod and what they did there: built-in, of the policy file, \
                and stored ones.",
        answers: &[answer(200, "The policies, by name.", "PolicyList")],
        ..GET
    },
    ApiOperation {
        path: "/admin/v1/quotas/{name}",
        id: "describePolicy",
        summary: "Describe a quota policy",
        about: "A stored one has an ETag, under which it can be changed.",
        parameters: &[&NAME],
        answers: &[tagged(200, "The policy.", "PolicyInfo")],
        errors: &[ADMIN, &[ErrorCode::QuotaNotFound]],
        ..GET
    },
    ApiOperation {
        method: "put",
        path: "/admin/v1/quotas/{name}",
        id: "putPolicy",
        summary: "Store a quota policy",
        about: "In effect at once on this pod, at the next refresh on the others. Conditions are \
                about the stored policy of this name, also where one is built in. Without a \
                condition a stored one stays: 200 where it is the same, 409 where it is another. \
                A field that is absent takes its default.",
        parameters: &[
            &NAME,
            &DRY_RUN,
            &CONTENT_ENCODING,
            &IF_MATCH,
            &IF_NONE,
            &REASON,
        ],
        body: Some((Content::Json("PolicySpec"), true)),
        answers: &[
            tagged(
                200,
                "It replaced a stored one, or is the same; or what it would change, in a dry run.",
                "PolicyChange",
            ),
            tagged(201, "None was stored under this name.", "PolicyChange"),
        ],
        errors: &[
            ADMIN,
            BODY,
            CHANGE,
            &[ErrorCode::QuotaExists, ErrorCode::QuotaInvalid],
        ],
    },
    ApiOperation {
        method: "delete",
        path: "/admin/v1/quotas/{name}",
        id: "removePolicy",
        summary: "Remove a stored quota policy",
        about: "Where one of the same name is built in, that one is in effect again.",
        parameters: &[&NAME, &DRY_RUN, &IF_MATCH, &IF_NONE, &REASON],
        body: None,
        answers: &[answer(
            200,
            "What was, or would be, changed.",
            "PolicyChange",
        )],
        errors: &[ADMIN, CHANGE, &[ErrorCode::QuotaNotFound]],
    },
    ApiOperation {
        path: "/admin/v1/quotas/{name}/users",
        id: "listQuotaUsers",
        summary: "List who a policy counts",
        about: "Those with a bucket on this pod, the busiest first.",
        parameters: &[&NAME, &LIMIT],
        answers: &[answer(200, "The users.", "QuotaUsers")],
        errors: &[ADMIN, &[ErrorCode::QuotaNotFound]],
        ..GET
    },
    ApiOperation {
        method: "post",
        path: "/admin/v1/quotas/simulate",
        id: "simulatePolicy",
        summary: "Try a quota policy on the requests of late",
        about: "Says what it would have rejected of what this pod has recorded. Changes nothing.",
        parameters: &[&CONTENT_ENCODING],
        body: Some((Content::Json("SimulateBody"), true)),
        answers: &[answer(200, "What it would have done.", "SimulateAnswer")],
        errors: &[ADMIN, BODY, &[ErrorCode::QuotaInvalid]],
    },
];
