//! The admin API and the service routes in the `OpenAPI` document.

use serde_json::{Value, json};
use umbo_api::ErrorCode;

use super::data::NS;
use super::{Content, In, Operation, Parameter};

/// What any request of the admin API can meet.
pub(super) const ADMIN: &[ErrorCode] = &[
    ErrorCode::Forbidden,
    ErrorCode::HeadersTooLarge,
    ErrorCode::Internal,
    ErrorCode::InvalidQuery,
    ErrorCode::InvalidRequest,
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
    ErrorCode::BodyTooLarge,
    ErrorCode::ClientClosed,
    ErrorCode::InvalidBody,
];
/// What a request without credentials can meet.
const SERVICE: &[ErrorCode] = &[
    ErrorCode::HeadersTooLarge,
    ErrorCode::InvalidRequest,
    ErrorCode::RequestTimeout,
    ErrorCode::UriTooLong,
];

pub(super) fn flag() -> Value {
    json!({"type": "boolean", "default": false})
}
pub(super) fn word() -> Value {
    json!({"type": "string", "minLength": 1})
}

const DRY_RUN: Parameter = Parameter {
    name: "dry_run",
    place: In::Query,
    schema: flag,
    about: "Only count the rows.",
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
pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        method: "get",
        path: "/admin/v1/namespaces",
        id: "listNamespaces",
        summary: "List namespaces",
        about: "Those on which the caller holds any grant.",
        parameters: &[],
        body: None,
        answers: &[(
            200,
            "The namespaces, by name.",
            Content::Json("NamespaceList"),
            &[],
        )],
        errors: &[ADMIN],
    },
    Operation {
        method: "get",
        path: "/admin/v1/namespaces/{ns}",
        id: "describeNamespace",
        summary: "Describe a namespace",
        about: "",
        parameters: &[&NS],
        body: None,
        answers: &[(200, "The namespace.", Content::Json("NamespaceInfo"), &[])],
        errors: &[
            ADMIN,
            &[ErrorCode::InvalidKey, ErrorCode::NamespaceNotFound],
        ],
    },
    Operation {
        method: "put",
        path: "/admin/v1/namespaces/{ns}",
        id: "putNamespace",
        summary: "Create a namespace or change its settings",
        about: "An absent body is one without fields; a field that is absent takes its default.",
        parameters: &[&NS],
        body: Some((Content::Json("NamespaceSettings"), false)),
        answers: &[
            (
                200,
                "Its settings are these now.",
                Content::Json("NamespaceInfo"),
                &[],
            ),
            (201, "It was created.", Content::Json("NamespaceInfo"), &[]),
        ],
        errors: &[ADMIN, BODY, &[ErrorCode::InvalidKey]],
    },
    Operation {
        method: "delete",
        path: "/admin/v1/namespaces/{ns}",
        id: "removeNamespace",
        summary: "Remove a namespace with all its rows",
        about: "The rows are unreachable at once; their space is reclaimed in the background.",
        parameters: &[&NS, &DRY_RUN],
        body: None,
        answers: &[(
            200,
            "What was, or would be, removed.",
            Content::Json("NamespaceRemoval"),
            &[],
        )],
        errors: &[
            ADMIN,
            &[
                ErrorCode::DataDamaged,
                ErrorCode::InvalidKey,
                ErrorCode::NamespaceNotFound,
            ],
        ],
    },
    Operation {
        method: "get",
        path: "/admin/v1/tokens",
        id: "listTokens",
        summary: "List tokens",
        about: "Without their secrets, which nobody has.",
        parameters: &[],
        body: None,
        answers: &[(200, "The tokens, by id.", Content::Json("TokenList"), &[])],
        errors: &[ADMIN],
    },
    Operation {
        method: "post",
        path: "/admin/v1/tokens",
        id: "createToken",
        summary: "Create a token",
        about: "From the first token on, every request needs one; so the first must hold admin:*.",
        parameters: &[],
        body: Some((Content::Json("NewToken"), true)),
        answers: &[(
            201,
            "The token, shown this once.",
            Content::Json("CreatedToken"),
            &[],
        )],
        errors: &[ADMIN, BODY, &[ErrorCode::LastAdmin]],
    },
    Operation {
        method: "delete",
        path: "/admin/v1/tokens/{id}",
        id: "revokeToken",
        summary: "Revoke a token",
        about: "At once on this pod, at the next refresh (quota.refresh, 30 seconds) on the others.",
        parameters: &[&TOKEN_ID],
        body: None,
        answers: &[(204, "The token is no more.", Content::None, &[])],
        errors: &[
            ADMIN,
            &[
                ErrorCode::LastAdmin,
                ErrorCode::TokenNotFound,
                ErrorCode::TokenOfFile,
            ],
        ],
    },
    Operation {
        method: "get",
        path: "/admin/v1/config",
        id: "showConfig",
        summary: "Show the settings in effect",
        about: "Secrets are hidden.",
        parameters: &[],
        body: None,
        answers: &[(200, "TOML.", Content::Text("application/toml"), &[])],
        errors: &[ADMIN],
    },
    Operation {
        method: "get",
        path: "/healthz",
        id: "health",
        summary: "Is the process alive",
        about: "",
        parameters: &[],
        body: None,
        answers: &[(200, "It is.", Content::Json("Health"), &[])],
        errors: &[SERVICE],
    },
    Operation {
        method: "get",
        path: "/readyz",
        id: "readiness",
        summary: "Should new requests come",
        about: "Ready is also a server of which some shards do not serve: it says degraded.",
        parameters: &[],
        body: None,
        answers: &[
            (200, "They should.", Content::Json("Health"), &[]),
            (
                503,
                "They should not: it drains, or no shard serves.",
                Content::Json("Health"),
                &[],
            ),
        ],
        errors: &[SERVICE],
    },
    Operation {
        method: "get",
        path: "/openapi.json",
        id: "document",
        summary: "This document",
        about: "",
        parameters: &[],
        body: None,
        answers: &[(200, "OpenAPI 3.1.", Content::Document, &[])],
        errors: &[SERVICE],
    },
    Operation {
        method: "get",
        path: "/v1/errors/{code}",
        id: "explainError",
        summary: "What an error code means",
        about: "The type of every problem leads here.",
        parameters: &[&CODE],
        body: None,
        answers: &[(200, "Its meaning.", Content::Text("text/plain"), &[])],
        errors: &[SERVICE, &[ErrorCode::RouteNotFound]],
    },
];
