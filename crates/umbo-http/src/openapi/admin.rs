//! The admin API and the service routes in the `OpenAPI` document.

use serde_json::{Value, json};
use umbo_api::ErrorCode;

use super::operation::{ApiOperation, Content, In, Parameter, answer, empty, tagged};
use super::parameter::{CONTENT_ENCODING, DRY_RUN, IF_MATCH, IF_NONE, NS, REASON};

/// What any request of the admin API can meet.
pub(super) const ADMIN: &[ErrorCode] = &[
    ErrorCode::Forbidden,
    ErrorCode::ForeignHost,
    ErrorCode::HeadersTooLarge,
    ErrorCode::Internal,
    ErrorCode::InvalidQuery,
    ErrorCode::InvalidRequest,
    ErrorCode::DeadlineInStore,
    ErrorCode::RecordsStale,
    ErrorCode::RecordsUnavailable,
    ErrorCode::RecordsUnreadable,
    ErrorCode::RequestTimeout,
    ErrorCode::ShardUnavailable,
    ErrorCode::ShuttingDown,
    ErrorCode::StorageFailed,
    ErrorCode::StorageFull,
    ErrorCode::Unauthenticated,
    ErrorCode::UriTooLong,
    ErrorCode::WriteQueueFull,
];
pub(super) const BODY: &[ErrorCode] = &[
    ErrorCode::BodyNotJson,
    ErrorCode::BodyTooLarge,
    ErrorCode::ClientClosed,
    ErrorCode::InvalidBody,
    ErrorCode::UnsupportedCoding,
];
/// What a request without credentials can meet.
const SERVICE: &[ErrorCode] = &[
    ErrorCode::ForeignHost,
    ErrorCode::HeadersTooLarge,
    ErrorCode::InvalidRequest,
    ErrorCode::RequestTimeout,
    ErrorCode::UriTooLong,
];

/// A read without parameters that meets the errors of the admin API; an entry of a table says what differs.
pub(super) const GET: ApiOperation = ApiOperation {
    method: "get",
    path: "",
    id: "",
    summary: "",
    about: "",
    parameters: &[],
    body: None,
    answers: &[],
    errors: &[ADMIN],
};

pub(super) fn word() -> Value {
    json!({"type": "string", "minLength": 1})
}

const ABANDON_SHARD: Parameter = Parameter {
    name: "abandon_shard",
    place: In::Query,
    schema: || json!({"type": "integer", "minimum": 0, "maximum": 65535}),
    about: "Do without the confirmation of this shard, because it never comes back. A number that no shard has \
            is refused.",
};
const TOKEN_ID: Parameter = Parameter {
    name: "id",
    place: In::Path,
    schema: word,
    about: "Id, the middle part of the token.",
};
const CODE: Parameter = Parameter {
    name: "code",
    place: In::Path,
    schema: word,
    about: "Error code.",
};

/// The operations.
pub(super) const OPERATIONS: &[ApiOperation] = &[
    ApiOperation {
        path: "/admin/v1/namespaces",
        id: "listNamespaces",
        summary: "List namespaces",
        about: "Those on which the caller holds any grant, each with its size. The shards count their rows with every \
                commit, so that this costs no read of the store.",
        answers: &[answer(200, "The namespaces, by name.", "NamespaceList")],
        ..GET
    },
    ApiOperation {
        path: "/admin/v1/loads",
        id: "listAllLoads",
        summary: "List the loads of all namespaces",
        about: "Those that have not ended, and of the others the latest: 256 at most, each with what it waits for.",
        answers: &[answer(200, "The loads.", "LoadList")],
        ..GET
    },
    ApiOperation {
        path: "/admin/v1/namespaces/{ns}",
        id: "describeNamespace",
        summary: "Describe a namespace",
        parameters: &[&NS],
        answers: &[tagged(200, "The namespace.", "NamespaceInfo")],
        errors: &[
            ADMIN,
            &[ErrorCode::InvalidKey, ErrorCode::NamespaceNotFound],
        ],
        ..GET
    },
    ApiOperation {
        method: "put",
        path: "/admin/v1/namespaces/{ns}",
        id: "putNamespace",
        summary: "Create a namespace",
        about: "An absent body is one without fields. A namespace that exists is not changed: the answer says so, \
                or is 409 where the body names another setting than it has. With If-Match its settings are \
                replaced, and a field that is absent takes its default.",
        parameters: &[&NS, &CONTENT_ENCODING, &IF_MATCH, &IF_NONE, &REASON],
        body: Some((Content::Json("NamespaceSpec"), false)),
        answers: &[
            tagged(
                200,
                "It exists; `change` says whether it was changed.",
                "NamespaceInfo",
            ),
            tagged(201, "It was created.", "NamespaceInfo"),
        ],
        errors: &[
            ADMIN,
            BODY,
            &[
                ErrorCode::InvalidHeader,
                ErrorCode::InvalidKey,
                ErrorCode::NamespaceBeingRemoved,
                ErrorCode::NamespaceExists,
                ErrorCode::PreconditionFailed,
            ],
        ],
    },
    ApiOperation {
        method: "patch",
        path: "/admin/v1/namespaces/{ns}",
        id: "changeNamespace",
        summary: "Change settings of a namespace",
        about: "A merge patch (RFC 7396): a field that is absent stays as it is, null is its default. An absent body is \
                one without fields.",
        parameters: &[&NS, &CONTENT_ENCODING, &IF_MATCH],
        body: Some((Content::Json("NamespaceSpec"), false)),
        answers: &[tagged(
            200,
            "What it is now; `change` says whether it was changed.",
            "NamespaceInfo",
        )],
        errors: &[
            ADMIN,
            BODY,
            &[
                ErrorCode::InvalidHeader,
                ErrorCode::InvalidKey,
                ErrorCode::NamespaceBeingRemoved,
                ErrorCode::NamespaceNotFound,
                ErrorCode::PreconditionFailed,
            ],
        ],
    },
    ApiOperation {
        method: "delete",
        path: "/admin/v1/namespaces/{ns}",
        id: "removeNamespace",
        summary: "Remove a namespace with all its rows",
        about: "The namespace is of no use from the first moment on, and its name is free once every shard has \
                confirmed that it refuses it. A shard that is away keeps the name until it is back, or an \
                operator vouches that it never comes back. The space of the rows is reclaimed in the \
                background.",
        parameters: &[&NS, &DRY_RUN, &ABANDON_SHARD, &REASON],
        body: None,
        answers: &[
            answer(
                200,
                "What would be removed: of a dry run.",
                "NamespaceRemoval",
            ),
            answer(
                202,
                "It is being removed, and some shards have not confirmed that.",
                "NamespaceRemoving",
            ),
            empty(204, "It is no more."),
        ],
        errors: &[
            ADMIN,
            &[
                ErrorCode::DataDamaged,
                ErrorCode::InvalidKey,
                ErrorCode::NamespaceNotFound,
            ],
        ],
    },
    ApiOperation {
        path: "/admin/v1/tokens",
        id: "listTokens",
        summary: "List tokens",
        about: "Without their secrets, which the server does not keep.",
        answers: &[answer(200, "The tokens, by id.", "TokenList")],
        ..GET
    },
    ApiOperation {
        method: "post",
        path: "/admin/v1/tokens",
        id: "createToken",
        summary: "Create a token",
        about: "From the first token on, every request needs one; so the first must hold admin:*. Where it is \
                not known whether the token was made, the problem holds it, so that no token takes effect \
                that no caller holds.",
        parameters: &[&CONTENT_ENCODING],
        body: Some((Content::Json("NewToken"), true)),
        answers: &[answer(201, "The token, shown this once.", "CreatedToken")],
        errors: &[ADMIN, BODY, &[ErrorCode::LastAdmin]],
    },
    ApiOperation {
        method: "delete",
        path: "/admin/v1/tokens/{id}",
        id: "revokeToken",
        summary: "Revoke a token",
        about: "At once on this server, within a second on the others; on one that is cut off from the home \
                of the records after records.stale_max at the latest.",
        parameters: &[&TOKEN_ID, &DRY_RUN, &REASON],
        body: None,
        answers: &[
            answer(
                200,
                "The token that would be revoked: of a dry run.",
                "TokenInfo",
            ),
            empty(204, "The token is no more."),
        ],
        errors: &[
            ADMIN,
            &[
                ErrorCode::LastAdmin,
                ErrorCode::TokenNotFound,
                ErrorCode::TokenOfFile,
            ],
        ],
    },
    ApiOperation {
        path: "/admin/v1/config",
        id: "showConfig",
        summary: "Show the settings in effect",
        about: "Secrets are hidden.",
        answers: &[(200, "TOML.", Content::Text("text/plain"), &[])],
        ..GET
    },
    ApiOperation {
        path: "/",
        id: "root",
        summary: "Say what this is",
        about: "Header Link names the document, the contract and the status (RFC 8631). A client that prefers \
                text/html gets what /page answers.",
        answers: &[(
            200,
            "The server and the paths of what describes it.",
            Content::Json("ServiceInfo"),
            &["Link"],
        )],
        errors: &[SERVICE],
        ..GET
    },
    ApiOperation {
        path: "/page",
        id: "showPage",
        summary: "Show the operators' page",
        about: "For browsers. It needs no token; what it shows it asks the admin API for, with the token that it is \
                given. Its files are below /page/.",
        answers: &[(200, "The page.", Content::Text("text/html"), &[])],
        errors: &[SERVICE],
        ..GET
    },
    ApiOperation {
        path: "/contract",
        id: "contract",
        summary: "Read the contract for services",
        answers: &[(
            200,
            "The contract.",
            Content::Text("text/markdown; charset=utf-8"),
            &[],
        )],
        errors: &[SERVICE],
        ..GET
    },
    ApiOperation {
        path: "/healthz",
        id: "health",
        summary: "Is the process alive",
        answers: &[answer(200, "It is.", "Health")],
        errors: &[SERVICE],
        ..GET
    },
    ApiOperation {
        path: "/readyz",
        id: "readiness",
        summary: "Should new requests come",
        about: "Ready is also a server of which some shards do not serve, or whose long work is refused its lower priority: it says degraded.",
        answers: &[
            answer(200, "They should.", "Health"),
            answer(
                503,
                "They should not: it drains, no shard serves, or its records are too old.",
                "Health",
            ),
        ],
        errors: &[SERVICE],
        ..GET
    },
    ApiOperation {
        path: "/openapi.json",
        id: "document",
        summary: "This document",
        answers: &[(200, "OpenAPI 3.1.", Content::Document, &[])],
        errors: &[SERVICE],
        ..GET
    },
    ApiOperation {
        path: "/v1/errors/{code}",
        id: "explainError",
        summary: "What an error code means",
        about: "The type of every problem leads here.",
        parameters: &[&CODE],
        answers: &[(200, "Its meaning.", Content::Text("text/plain"), &[])],
        errors: &[SERVICE, &[ErrorCode::RouteNotFound]],
        ..GET
    },
];
