//! Loads in the `OpenAPI` document.

use serde_json::json;
use umbo_api::ErrorCode;
use umbo_api::loads::{PART_NUMBER_MAX, REJECTS_LISTED_MAX};

use super::admin::GET;
use super::data::{ANY, BODY, QUOTA, STORE, WRITE};
use super::operation::{Answer, ApiOperation, Content, In, Parameter, answer};
use super::parameter::{CRITICALITY, DRY_RUN, IDEMPOTENCY_KEY, NS};

const LOAD: Parameter = Parameter {
    name: "load",
    place: In::Path,
    schema: || json!({"type": "string", "pattern": "^[0-9a-f]{11}-[0-9a-f]{8}$"}),
    about: "Id of the load.",
};
const PART: Parameter = Parameter {
    name: "part",
    place: In::Path,
    schema: || json!({"type": "integer", "minimum": 0, "maximum": PART_NUMBER_MAX}),
    about: "Number of the part.",
};
const UPLOAD_OFFSET: Parameter = Parameter {
    name: "Upload-Offset",
    place: In::RequiredHeader,
    schema: || json!({"type": "integer", "minimum": 0}),
    about: "Bytes of the part before this piece.",
};
const UPLOAD_COMPLETE: Parameter = Parameter {
    name: "Upload-Complete",
    place: In::Header,
    schema: || json!({"type": "string", "enum": ["?0", "?1"]}),
    about: "?1 with the last piece of a part.",
};
const CONTENT_DIGEST: Parameter = Parameter {
    name: "Content-Digest",
    place: In::Header,
    schema: || json!({"type": "string"}),
    about: "SHA-256 of the body (RFC 9530), sha-256=:BASE64:. The body is refused where it has another one.",
};
const PART_CODING: Parameter = Parameter {
    name: "Content-Encoding",
    place: In::Header,
    schema: || json!({"type": "string", "enum": ["gzip", "zstd", "identity"]}),
    about: "How the part is compressed. It is stored as it is sent.",
};

const REJECTS_LIMIT: Parameter = Parameter {
    name: "limit",
    place: In::Query,
    schema: || {
        json!({
            "type": "integer", "minimum": 1, "maximum": REJECTS_LISTED_MAX, "default": REJECTS_LISTED_MAX
        })
    },
    about: "Most rows of this page.",
};
const REJECTS_CURSOR: Parameter = Parameter {
    name: "cursor",
    place: In::Query,
    schema: || json!({"type": "string", "pattern": "^[0-9]{1,5}-[0-9]{1,20}$"}),
    about: "Part and line of the last row before this page.",
};

const FOUND: &[ErrorCode] = &[ErrorCode::LoadNotFound];
const CHANGE: &[ErrorCode] = &[ErrorCode::LoadNotFound, ErrorCode::LoadState];
const UPLOAD: &[ErrorCode] = &[
    ErrorCode::DigestMismatch,
    ErrorCode::LoadNotFound,
    ErrorCode::LoadState,
    ErrorCode::OffsetMismatch,
    ErrorCode::PartDiffers,
    ErrorCode::UnsupportedFormat,
];
const INFO: &[Answer] = &[answer(200, "The load as it is now.", "LoadInfo")];

macro_rules! step {
    ($name:literal, $path:literal, $summary:literal, $about:literal, $parameters:expr) => {
        ApiOperation {
            method: "post",
            path: $path,
            id: $name,
            summary: $summary,
            about: $about,
            parameters: $parameters,
            body: None,
            answers: INFO,
            errors: &[ANY, STORE, CHANGE],
        }
    };
}

/// The operations.
pub(super) const OPERATIONS: &[ApiOperation] = &[
    ApiOperation {
        method: "post",
        path: "/v1/ns/{ns}/loads",
        id: "createLoad",
        summary: "Create a load",
        about: "A load takes a dataset in parts and applies it to the namespace once it is sealed. Needs the grant \
                write. Who creates it pays for its rows. In mode replace its rows become the next version of the \
                namespace; the answer comes once every shard makes all writes in that, too, and data that is read \
                afterwards misses none of them. With an idempotency key, which is known as long as the load is, a \
                request that is repeated finds the load that it has created.",
        parameters: &[&NS, &IDEMPOTENCY_KEY],
        body: Some((Content::Json("LoadSpec"), false)),
        answers: &[(201, "The load.", Content::Json("LoadInfo"), &["Location"])],
        errors: &[
            ANY,
            BODY,
            QUOTA,
            &[
                ErrorCode::IdempotencyMismatch,
                ErrorCode::InvalidBody,
                ErrorCode::LoadBuilding,
                ErrorCode::LoadLimit,
                ErrorCode::ShardUnavailable,
                ErrorCode::UnsupportedCoding,
            ],
        ],
    },
    ApiOperation {
        path: "/v1/ns/{ns}/loads",
        id: "listLoads",
        summary: "List loads",
        about: "Those that have not ended, and the last fourteen that have, for a fortnight; without their parts and \
                counts.",
        parameters: &[&NS],
        answers: &[answer(200, "The loads.", "LoadList")],
        errors: &[ANY, QUOTA],
        ..GET
    },
    ApiOperation {
        path: "/v1/ns/{ns}/loads/{load}",
        id: "describeLoad",
        summary: "Look at a load",
        about: "Its state, its parts, and how many rows were applied, skipped and rejected.",
        parameters: &[&NS, &LOAD],
        answers: INFO,
        errors: &[ANY, STORE, FOUND],
        ..GET
    },
    ApiOperation {
        path: "/v1/ns/{ns}/loads/{load}/rejects",
        id: "listRejects",
        summary: "List rejected rows",
        about: "The first 1,000 rows that cannot be read, by part and line, with the reason and their bytes: at most 256 KiB \
                a page.",
        parameters: &[&NS, &LOAD, &REJECTS_LIMIT, &REJECTS_CURSOR],
        answers: &[(200, "The rows.", Content::Lines(&["RejectLine"]), &["Link"])],
        errors: &[ANY, STORE, FOUND, &[ErrorCode::InvalidCursor]],
        ..GET
    },
    ApiOperation {
        method: "put",
        path: "/v1/ns/{ns}/loads/{load}/parts/{part}",
        id: "putPart",
        summary: "Upload a part",
        about: "Rows as NDJSON (as lines of a batch write, without conditions), CSV (text/csv has the \
                parameters delimiter, null and columns) or Parquet, at most 256 MiB as sent. Parts may come in any order, \
                at the same time and again. A body that breaks off can be continued with PATCH.",
        parameters: &[
            &NS,
            &LOAD,
            &PART,
            &PART_CODING,
            &CONTENT_DIGEST,
            &CRITICALITY,
        ],
        body: Some((Content::AnyBytes, false)),
        answers: &[
            answer(200, "The part was there already.", "PartInfo"),
            answer(201, "The part is stored.", "PartInfo"),
        ],
        errors: &[ANY, STORE, WRITE, BODY, UPLOAD],
    },
    ApiOperation {
        method: "head",
        path: "/v1/ns/{ns}/loads/{load}/parts/{part}",
        id: "headPart",
        summary: "Look at what is kept of a part",
        about: "Upload-Offset is where to continue. Needs the grant write.",
        parameters: &[&NS, &LOAD, &PART],
        body: None,
        answers: &[(
            204,
            "Something of it is kept.",
            Content::None,
            &["Upload-Offset", "Upload-Complete"],
        )],
        errors: &[
            ANY,
            STORE,
            &[ErrorCode::LoadNotFound, ErrorCode::PartNotFound],
        ],
    },
    ApiOperation {
        method: "patch",
        path: "/v1/ns/{ns}/loads/{load}/parts/{part}",
        id: "patchPart",
        summary: "Upload a piece of a part",
        about: "The piece begins where what is kept ends. Content-Type and Content-Encoding are those of the part; a later \
                piece may leave them out. Content-Digest is that of the piece.",
        parameters: &[
            &NS,
            &LOAD,
            &PART,
            &UPLOAD_OFFSET,
            &UPLOAD_COMPLETE,
            &PART_CODING,
            &CONTENT_DIGEST,
            &CRITICALITY,
        ],
        body: Some((Content::AnyBytes, false)),
        answers: &[(
            204,
            "The piece is stored.",
            Content::None,
            &["Upload-Offset", "Upload-Complete"],
        )],
        errors: &[ANY, STORE, WRITE, BODY, UPLOAD],
    },
    ApiOperation {
        method: "post",
        path: "/v1/ns/{ns}/loads/{load}/seal",
        id: "sealLoad",
        summary: "Seal a load",
        about: "All parts are there, numbered from 0: the rows are checked and then applied.",
        parameters: &[&NS, &LOAD],
        body: Some((Content::Json("SealBody"), true)),
        answers: INFO,
        errors: &[
            ANY,
            STORE,
            BODY,
            CHANGE,
            &[
                ErrorCode::InvalidBody,
                ErrorCode::PartsMissing,
                ErrorCode::UnsupportedCoding,
            ],
        ],
    },
    step!(
        "pauseLoad",
        "/v1/ns/{ns}/loads/{load}/pause",
        "Pause a load",
        "No row is applied until it is resumed. Parts are still taken.",
        &[&NS, &LOAD]
    ),
    step!(
        "resumeLoad",
        "/v1/ns/{ns}/loads/{load}/resume",
        "Resume a load",
        "Goes on where it was paused.",
        &[&NS, &LOAD]
    ),
    step!(
        "abortLoad",
        "/v1/ns/{ns}/loads/{load}/abort",
        "Abort a load",
        "Its parts are reclaimed. Rows that were applied stay.",
        &[&NS, &LOAD, &DRY_RUN]
    ),
];
