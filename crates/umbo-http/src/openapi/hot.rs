//! The admin API of hot keys, and of metrics, in the `OpenAPI` document.

use serde_json::json;
use umbo_api::ErrorCode;

use super::admin::{ADMIN, BODY, GET, word};
use super::observe::AT;
use super::operation::{ApiOperation, Content, In, Parameter, answer, empty, tagged};
use super::parameter::{CONTENT_ENCODING, DRY_RUN, ENC, IF_MATCH, IF_NONE, NS, PK, REASON, SK};

const LIST: Parameter = Parameter {
    name: "list",
    place: In::Path,
    schema: || json!({"$ref": "#/components/schemas/HotList"}),
    about: "pinned: answers of the key are kept, however seldom it is read. blocked: whatever reads \
            or writes the row is refused before it costs anything.",
};
const ID: Parameter = Parameter {
    name: "id",
    place: In::Path,
    schema: word,
    about: "Id of the key, as the report tells it.",
};

const SHARD: Parameter = Parameter {
    name: "shard",
    place: In::Query,
    schema: || json!({"type": "integer", "minimum": 0, "maximum": u16::MAX}),
    about: "Only this shard.",
};

/// What a change of a list can meet.
const CHANGE: &[ErrorCode] = &[
    ErrorCode::HotKeysDisabled,
    ErrorCode::InvalidKey,
    ErrorCode::NamespaceNotFound,
];

/// What listing a key can meet beside that.
const LISTED: &[ErrorCode] = &[
    ErrorCode::HotKeyListed,
    ErrorCode::HotListFull,
    ErrorCode::PreconditionFailed,
];

const ABOUT_PUT: &str = "In effect at once on this server, within a second on the others, and after a \
                         restart. A key that is listed already \
                         is left as it is, or is 409 where the request names another reason or time. With If-Match \
                         that is replaced, and a field that is absent takes its default. An absent body is one \
                         without fields.";
const ABOUT_REMOVE: &str = "In effect at once on this server, within a second on the others.";

/// Both changes of one path: a put lists a key, a delete unlists it.
macro_rules! list_operations {
    ($path:literal, $what:literal, [$($parameter:expr),+], $more:expr) => {
        [
            ApiOperation {
                method: "put",
                path: $path,
                id: concat!("list", $what),
                summary: "Pin or block a key",
                about: ABOUT_PUT,
                parameters: &[&LIST, $($parameter,)+ &DRY_RUN, &CONTENT_ENCODING, &IF_MATCH, &IF_NONE, &REASON],
                body: Some((Content::Json("HotListingSpec"), false)),
                answers: &[
                    tagged(200, "It was listed already; or how it would stand, in a dry run.", "HotListed"),
                    tagged(201, "It is listed now.", "HotListed"),
                ],
                errors: &[ADMIN, BODY, CHANGE, $more, LISTED],
            },
            ApiOperation {
                method: "delete",
                path: $path,
                id: concat!("unlist", $what),
                summary: "Unpin or unblock a key",
                about: ABOUT_REMOVE,
                parameters: &[&LIST, $($parameter),+],
                body: None,
                answers: &[empty(204, "It is not listed any more.")],
                errors: &[ADMIN, CHANGE, $more, &[ErrorCode::HotKeyNotListed]],
            },
        ]
    };
}

const BY_ID: [ApiOperation; 2] =
    list_operations!("/admin/v1/hot/{list}/id/{id}", "HotKey", [&ID], &[]);
const BY_ROW: [ApiOperation; 2] = list_operations!(
    "/admin/v1/hot/{list}/ns/{ns}/kv/{pk}",
    "Row",
    [&NS, &PK, &ENC],
    &[ErrorCode::KeyTooLarge]
);
const BY_SORTED_ROW: [ApiOperation; 2] = list_operations!(
    "/admin/v1/hot/{list}/ns/{ns}/kv/{pk}/{sk}",
    "SortedRow",
    [&NS, &PK, &SK, &ENC],
    &[ErrorCode::KeyTooLarge]
);

const REPORTS: [ApiOperation; 3] = [
    ApiOperation {
        path: "/admin/v1/hot",
        id: "reportHotKeys",
        summary: "List hot keys",
        about: "Keys that are hot, pinned or blocked on this pod, of namespaces on which the caller \
                holds observe, and what the layer of hot keys does.",
        answers: &[answer(200, "The keys, those read most first.", "HotReport")],
        errors: &[ADMIN, &[ErrorCode::HotKeysDisabled]],
        ..GET
    },
    ApiOperation {
        path: "/admin/v1/hot/busy",
        id: "reportBusySources",
        summary: "Show whose work keeps shards busy",
        about: "The largest sources of the busy time of each shard: caller, operation, namespace and partition, of reads \
                and writes of every kind. Of requests to the server that answers, since its start; now is the last \
                two seconds.",
        parameters: &[&SHARD, &AT],
        answers: &[answer(200, "The shards that were busy.", "BusyReport")],
        ..GET
    },
    ApiOperation {
        path: "/admin/v1/metrics",
        id: "showMetrics",
        summary: "Show the metrics",
        about: "What /metrics of the admin port answers, to callers with observe on every namespace.",
        answers: &[(200, "Prometheus text.", Content::Text("text/plain"), &[])],
        ..GET
    },
];

/// The operations.
pub(super) const GROUPS: [&[ApiOperation]; 4] = [&REPORTS, &BY_ID, &BY_ROW, &BY_SORTED_ROW];
