//! The data plane in the `OpenAPI` document.

use umbo_api::ErrorCode;

use super::admin::GET;
use super::operation::{Answer, ApiOperation, Content, Parameter, answer};
use super::parameter::{
    ACCEPT_ENCODING, ALL, ATOMIC, BYTE_RANGE, CONTENT_DIGEST, CONTENT_ENCODING, CRITICALITY,
    CURSOR, DRY_RUN, DURABILITY, ENC, END, EXPIRES, IDEMPOTENCY_KEY, IDEMPOTENCY_TTL, IF_MATCH,
    IF_NONE, IF_NONE_MATCH, IF_RANGE, INCREMENT, KEYS_ONLY, LIMIT, MAX_BYTES, NS, PK, PREFER,
    PREFIX, REVERSE, SK, START, TIMEOUT, TTL,
};

/// What any request can meet.
pub(super) const ANY: &[ErrorCode] = &[
    ErrorCode::Forbidden,
    ErrorCode::ForeignHost,
    ErrorCode::HeadersTooLarge,
    ErrorCode::Internal,
    ErrorCode::InvalidHeader,
    ErrorCode::InvalidKey,
    ErrorCode::InvalidQuery,
    ErrorCode::InvalidRequest,
    ErrorCode::NamespaceNotFound,
    ErrorCode::RecordsStale,
    ErrorCode::RecordsUnavailable,
    ErrorCode::RequestTimeout,
    ErrorCode::ShuttingDown,
    ErrorCode::Unauthenticated,
    ErrorCode::UriTooLong,
];
/// What a request can meet that asks no shard itself, and has a price.
pub(super) const QUOTA: &[ErrorCode] =
    &[ErrorCode::AbnormalUsageDetected, ErrorCode::QuotaExceeded];
pub(super) const STORE: &[ErrorCode] = &[
    ErrorCode::AbnormalUsageDetected,
    ErrorCode::DataDamaged,
    ErrorCode::DeadlineBeforeStore,
    ErrorCode::DeadlineInStore,
    ErrorCode::KeyTooLarge,
    ErrorCode::Overloaded,
    ErrorCode::QuotaExceeded,
    ErrorCode::RequestKilled,
    ErrorCode::ShardUnavailable,
    ErrorCode::StorageFailed,
    ErrorCode::TooManyReaders,
    ErrorCode::TooManyRequestsInFlight,
    ErrorCode::AnswerMemoryFull,
];
pub(super) const WRITE: &[ErrorCode] = &[ErrorCode::StorageFull, ErrorCode::WriteQueueFull];
/// What a write with an idempotency key can meet.
const KEYED: &[ErrorCode] = &[ErrorCode::IdempotencyFull, ErrorCode::IdempotencyMismatch];
pub(super) const BODY: &[ErrorCode] = &[
    ErrorCode::BodyMemoryFull,
    ErrorCode::BodyTooLarge,
    ErrorCode::ClientClosed,
    ErrorCode::DigestMismatch,
];

/// Parameters of a read that is asked for in a body.
const READ_MANY: &[&Parameter] = &[
    &NS,
    &CONTENT_DIGEST,
    &CONTENT_ENCODING,
    &ACCEPT_ENCODING,
    &TIMEOUT,
    &CRITICALITY,
    &PREFER,
];

const ROW_HEADERS: &[&str] = &[
    "Accept-Ranges",
    "Content-Digest",
    "Repr-Digest",
    "ETag",
    "Umbo-Expires-At",
    "Cache-Status",
    "Age",
    "Vary",
    "Content-Security-Policy",
    "X-Content-Type-Options",
];
const PART_HEADERS: &[&str] = &[
    "Accept-Ranges",
    "Content-Range",
    "Repr-Digest",
    "ETag",
    "Umbo-Expires-At",
    "Cache-Status",
    "Age",
    "Vary",
    "Content-Security-Policy",
    "X-Content-Type-Options",
];
const CACHE_HEADERS: &[&str] = &["Cache-Status", "Age"];

const GET_ANSWERS: &[Answer] = &[
    (
        200,
        "The value, as it was stored.",
        Content::Bytes,
        ROW_HEADERS,
    ),
    (
        206,
        "The part of the value that Range asks for.",
        Content::Bytes,
        PART_HEADERS,
    ),
    (
        304,
        "The client has this version already.",
        Content::None,
        ROW_HEADERS,
    ),
];
const HEAD_ANSWERS: &[Answer] = &[
    (
        200,
        "The row is there; Content-Length is its size.",
        Content::None,
        ROW_HEADERS,
    ),
    (
        304,
        "The client has this version already.",
        Content::None,
        ROW_HEADERS,
    ),
];
const PUT_ANSWERS: &[Answer] = &[
    (
        201,
        "Stored; there was no row.",
        Content::None,
        &["ETag", "Umbo-Replayed"],
    ),
    (
        204,
        "Stored; a row was replaced.",
        Content::None,
        &["ETag", "Umbo-Replayed"],
    ),
];
const TOUCH_ANSWERS: &[Answer] = &[
    (
        200,
        "The new number, as decimal text: of an increment.",
        Content::Text("text/plain"),
        &["ETag", "Umbo-Existed", "Umbo-Replayed"],
    ),
    (
        204,
        "The row has the new expiry, and a new version.",
        Content::None,
        &["ETag", "Umbo-Replayed"],
    ),
];
const DELETE_ANSWERS: &[Answer] = &[
    answer(
        200,
        "What a delete would remove: of a dry run.",
        "DeleteRangeAnswer",
    ),
    (
        204,
        "No row has this key now.",
        Content::None,
        &["Umbo-Existed", "Umbo-Replayed"],
    ),
];
const GET_ERRORS: &[&[ErrorCode]] = &[
    ANY,
    STORE,
    &[
        ErrorCode::KeyNotFound,
        ErrorCode::NotAcceptable,
        ErrorCode::PreconditionFailed,
    ],
];
const PART_ERRORS: &[&[ErrorCode]] = &[
    ANY,
    STORE,
    &[
        ErrorCode::KeyNotFound,
        ErrorCode::NotAcceptable,
        ErrorCode::PreconditionFailed,
        ErrorCode::RangeNotSatisfiable,
    ],
];
const PUT_ERRORS: &[&[ErrorCode]] = &[
    ANY,
    STORE,
    WRITE,
    KEYED,
    BODY,
    &[
        ErrorCode::PreconditionFailed,
        ErrorCode::UploadGone,
        ErrorCode::ValueTooLarge,
    ],
];
const TOUCH_ERRORS: &[&[ErrorCode]] = &[
    ANY,
    STORE,
    WRITE,
    KEYED,
    &[
        ErrorCode::IncrementOverflow,
        ErrorCode::InvalidBody,
        ErrorCode::KeyNotFound,
        ErrorCode::NotANumber,
        ErrorCode::PreconditionFailed,
    ],
];
const DELETE_ERRORS: &[&[ErrorCode]] =
    &[ANY, STORE, WRITE, KEYED, &[ErrorCode::PreconditionFailed]];

macro_rules! key_operations {
    ($path:literal, $suffix:literal, [$($key:expr),*]) => {
        [
            ApiOperation { path: $path, id: concat!("get", $suffix), summary: "Get a row",
                about: "Answers the raw bytes with the content type and encoding they came with. A value of more than 1 MiB is \
                        read as it is sent, with its SHA-256 in Repr-Digest, and in Content-Digest where it is sent \
                        whole.",
                parameters: &[&NS, $($key,)* &ENC, &IF_MATCH, &IF_NONE_MATCH, &ACCEPT_ENCODING,
                    &BYTE_RANGE, &IF_RANGE, &TIMEOUT, &CRITICALITY, &PREFER], answers: GET_ANSWERS, errors: PART_ERRORS,
                ..GET
            },
            ApiOperation {
                method: "head", path: $path, id: concat!("head", $suffix),
                summary: "Look at a row", about: "As get, without the bytes.",
                parameters: &[&NS, $($key,)* &ENC, &IF_MATCH, &IF_NONE_MATCH, &ACCEPT_ENCODING,
                    &TIMEOUT, &CRITICALITY, &PREFER],
                body: None, answers: HEAD_ANSWERS, errors: GET_ERRORS,
            },
            ApiOperation {
                method: "put", path: $path, id: concat!("put", $suffix), summary: "Put a row",
                about: "Stores the raw body and its Content-Type, whichever it is. Acknowledged means on the disk, unless durability \
                        is async. A body of more than 1 MiB, and up to 64, is stored \
                        in chunks as it comes, each charged by itself, and becomes visible whole or not at all.",
                parameters: &[&NS, $($key,)* &ENC, &TTL, &EXPIRES, &IF_MATCH, &IF_NONE, &CONTENT_DIGEST,
                    &IDEMPOTENCY_KEY, &IDEMPOTENCY_TTL, &DURABILITY, &TIMEOUT, &CRITICALITY, &PREFER],
                body: Some((Content::AnyBytes, false)), answers: PUT_ANSWERS, errors: PUT_ERRORS,
            },
            ApiOperation {
                method: "patch", path: $path, id: concat!("touch", $suffix),
                summary: "Increment the number of a row, or change its expiry",
                about: "The request has no body. With Umbo-Increment the number that the row holds, decimal text of a \
                        signed 64-bit number, is incremented atomically, and answered; an absent row counts as 0. The \
                        row keeps its media type, and its expiry unless one is named; a new row is text/plain and \
                        gets the namespace's default expiry. Costs as much as a put of the number. Without \
                        Umbo-Increment the value stays, and Umbo-TTL or Umbo-Expires-At is \
                        needed. The row gets a new version, as if the same value had been put. Costs as much as \
                        that put, and the bytes that are read for it. 412 also where the row is written again \
                        and again meanwhile.",
                parameters: &[&NS, $($key,)* &ENC, &INCREMENT, &TTL, &EXPIRES, &IF_MATCH, &IF_NONE,
                    &IDEMPOTENCY_KEY, &IDEMPOTENCY_TTL, &DURABILITY, &TIMEOUT, &CRITICALITY, &PREFER],
                body: None, answers: TOUCH_ANSWERS, errors: TOUCH_ERRORS,
            },
            ApiOperation {
                method: "delete", path: $path, id: concat!("delete", $suffix),
                summary: "Delete a row", about: "Succeeds whether or not the row was there.",
                parameters: &[&NS, $($key,)* &ENC, &DRY_RUN, &IF_MATCH, &IF_NONE, &IDEMPOTENCY_KEY,
                    &IDEMPOTENCY_TTL, &DURABILITY, &TIMEOUT, &CRITICALITY, &PREFER],
                body: None, answers: DELETE_ANSWERS, errors: DELETE_ERRORS,
            },
        ]
    };
}

const PLAIN: [ApiOperation; 5] = key_operations!("/v1/ns/{ns}/kv/{pk}", "", [&PK]);
const SORTED: [ApiOperation; 5] = key_operations!("/v1/ns/{ns}/kv/{pk}/{sk}", "Sorted", [&PK, &SK]);

const RANGE: [ApiOperation; 2] = [
    ApiOperation {
        path: "/v1/ns/{ns}/range/{pk}",
        id: "range",
        summary: "Read rows of a partition in order",
        about: "Streams one line a row and then exactly one end line; a stream without it failed. \
                Each chunk of the stream is one snapshot, the whole is not. With Accept: \
                application/json an array of at most 1,000 rows and the end line.",
        parameters: &[
            &NS,
            &PK,
            &START,
            &END,
            &PREFIX,
            &REVERSE,
            &LIMIT,
            &MAX_BYTES,
            &CURSOR,
            &KEYS_ONLY,
            &ENC,
            &ACCEPT_ENCODING,
            &TIMEOUT,
            &CRITICALITY,
            &PREFER,
        ],
        answers: &[(
            200,
            "Rows, then the end line.",
            Content::StreamLines,
            CACHE_HEADERS,
        )],
        errors: &[ANY, STORE, &[ErrorCode::InvalidCursor]],
        ..GET
    },
    ApiOperation {
        method: "delete",
        path: "/v1/ns/{ns}/range/{pk}",
        id: "deleteRange",
        summary: "Delete rows of a partition",
        about: "Removes the rows in steps; each step is atomic, the whole is not. Name a bound, \
                or say all=true.",
        parameters: &[
            &NS,
            &PK,
            &START,
            &END,
            &PREFIX,
            &ALL,
            &DRY_RUN,
            &ENC,
            &DURABILITY,
            &TIMEOUT,
            &CRITICALITY,
            &PREFER,
        ],
        body: None,
        answers: &[answer(200, "How many rows.", "DeleteRangeAnswer")],
        errors: &[ANY, STORE, WRITE, &[ErrorCode::UnboundedDelete]],
    },
];

const MANY: [ApiOperation; 3] = [
    ApiOperation {
        method: "post",
        path: "/v1/ns/{ns}/batch/get",
        id: "multiGet",
        summary: "Read many rows by key",
        about: "Answers a line a key in the order asked for, then the end line. An absent row has \
                status 404 in its line; any other failure makes the whole 207.",
        parameters: READ_MANY,
        body: Some((Content::Json("MultiGetBody"), true)),
        answers: &[
            (
                200,
                "Every row was read or is absent.",
                Content::Lines(&["MultiGetRow", "BatchEndLine"]),
                CACHE_HEADERS,
            ),
            (
                207,
                "Some rows failed.",
                Content::Lines(&["MultiGetRow", "BatchEndLine"]),
                CACHE_HEADERS,
            ),
        ],
        errors: &[
            ANY,
            STORE,
            BODY,
            &[
                ErrorCode::BatchTooLarge,
                ErrorCode::InvalidBody,
                ErrorCode::UnsupportedCoding,
            ],
        ],
    },
    ApiOperation {
        method: "post",
        path: "/v1/ns/{ns}/batch/write",
        id: "batchWrite",
        summary: "Write many rows",
        about: "Takes a WriteLine a line, at most 10,000 and 16 MiB. Answers a line a row, then \
                the end line; 207 where any row failed, and the others are done. Lines of one key \
                are applied in order. With an idempotency key there is one record for each partition, and a \
                repetition is answered row by row: rows that were decided as they were, others by doing them now.",
        parameters: &[
            &NS,
            &ATOMIC,
            &IDEMPOTENCY_KEY,
            &IDEMPOTENCY_TTL,
            &CONTENT_DIGEST,
            &CONTENT_ENCODING,
            &ACCEPT_ENCODING,
            &DURABILITY,
            &TIMEOUT,
            &CRITICALITY,
            &PREFER,
        ],
        body: Some((Content::JsonLines("WriteLine"), true)),
        answers: &[
            (
                200,
                "Every row was applied.",
                Content::Lines(&["WriteRow", "BatchEndLine"]),
                &["Umbo-Replayed"],
            ),
            (
                207,
                "Some rows failed.",
                Content::Lines(&["WriteRow", "BatchEndLine"]),
                &["Umbo-Replayed"],
            ),
        ],
        errors: &[
            ANY,
            STORE,
            WRITE,
            KEYED,
            BODY,
            &[
                ErrorCode::BatchTooLarge,
                ErrorCode::InvalidBody,
                ErrorCode::UnsupportedCoding,
                ErrorCode::UnsupportedFormat,
            ],
        ],
    },
    ApiOperation {
        method: "post",
        path: "/v1/ns/{ns}/scan",
        id: "scan",
        summary: "Read a whole namespace",
        about: "As range, over all partitions of a segment. The segments together are the \
                namespace, each row once. Needs the scan grant; sheddable unless marked.",
        parameters: READ_MANY,
        body: Some((Content::Json("ScanBody"), false)),
        answers: &[(200, "Rows, then the end line.", Content::StreamLines, &[])],
        errors: &[
            ANY,
            STORE,
            BODY,
            &[
                ErrorCode::InvalidBody,
                ErrorCode::InvalidCursor,
                ErrorCode::UnsupportedCoding,
            ],
        ],
    },
];

/// The operations, by path.
pub(super) const GROUPS: [&[ApiOperation]; 4] = [&PLAIN, &SORTED, &RANGE, &MANY];
