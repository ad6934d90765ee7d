//! Parameters of the data plane in the `OpenAPI` document, and the schemas of their values.

use serde_json::{Value, json};
use umbo_api::row::EXPIRES_AT_MS;
use umbo_api::time_to_live;
use umbo_types::limits;

use super::operation::{In, Parameter};

fn text() -> Value {
    json!({"type": "string"})
}
fn key() -> Value {
    json!({"type": "string", "minLength": 1})
}
fn flag() -> Value {
    json!({"type": "boolean", "default": false})
}
fn ttl() -> Value {
    json!({"type": "string", "pattern": time_to_live::PATTERN})
}
fn instant() -> Value {
    let (first, last) = EXPIRES_AT_MS.into_inner();
    json!({"type": "integer", "format": "int64", "minimum": first, "maximum": last})
}
fn tags() -> Value {
    json!({"type": "string", "pattern": "^(\\*|((W/)?\"[!#-~]*\"( *, *(W/)?\"[!#-~]*\")*)?)$"})
}

pub(super) const NS: Parameter = Parameter {
    name: "ns",
    place: In::Path,
    schema: || json!({"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,63}$"}),
    about: "Namespace.",
};
pub(super) const PK: Parameter = Parameter {
    name: "pk",
    place: In::Path,
    schema: key,
    about: "Partition key: 1 to 1,024 bytes, percent-encoded or, with enc=b64u, base64url.",
};
pub(super) const SK: Parameter = Parameter {
    name: "sk",
    place: In::Path,
    schema: key,
    about: "Sort key: up to 2,048 bytes; it may hold slashes.",
};
pub(super) const ENC: Parameter = Parameter {
    name: "enc",
    place: In::Query,
    schema: || json!({"type": "string", "enum": ["percent", "b64u"], "default": "percent"}),
    about: "How every key of the request is written: percent-encoded bytes or unpadded base64url.",
};
pub(super) const TIMEOUT: Parameter = Parameter {
    name: "Umbo-Timeout-Ms",
    place: In::Header,
    schema: || json!({"type": "integer", "minimum": 1, "maximum": 600_000}),
    about: "Time the caller still has, queueing included.",
};
pub(super) const CRITICALITY: Parameter = Parameter {
    name: "Umbo-Criticality",
    place: In::Header,
    schema: || json!({"type": "string", "enum": ["critical-plus", "critical", "sheddable-plus", "sheddable"]}),
    about: "How much the request matters under overload; lowered to what the token may claim, and the answer \
            says so in Umbo-Criticality-Applied.",
};
pub(super) const TTL: Parameter = Parameter {
    name: "Umbo-TTL",
    place: In::Header,
    schema: ttl,
    about: "Time to live: seconds, or with a unit (60s, 5m, 12h, 30d).",
};
pub(super) const EXPIRES: Parameter = Parameter {
    name: "Umbo-Expires-At",
    place: In::Header,
    schema: instant,
    about: "Expiry, in milliseconds since the Unix epoch; not together with Umbo-TTL.",
};
pub(super) const DURABILITY: Parameter = Parameter {
    name: "Umbo-Durability",
    place: In::Header,
    schema: || json!({"type": "string", "enum": ["sync", "async"]}),
    about: "When the write is acknowledged: on the disk, or once readers see it.",
};
pub(super) const IDEMPOTENCY_KEY: Parameter = Parameter {
    name: "Idempotency-Key",
    place: In::Header,
    schema: || json!({"type": "string", "minLength": 1, "maxLength": 512}),
    about: "Names the request: a quoted string of 1 to 255 visible ASCII characters, chosen by the client. A second \
            request of the same caller with the same key, in the same partition, changes nothing and is answered as \
            the first was, with Umbo-Replayed: ?1; a different one is refused with 422. What failed for want of \
            time, room or quota is not recorded, and done by the repetition. The record is charged as written bytes.",
};
pub(super) const IDEMPOTENCY_TTL: Parameter = Parameter {
    name: "Umbo-Idempotency-TTL",
    place: In::Header,
    schema: ttl,
    about: "How long repetitions with the key are recognised: 1 second to 24 hours; an hour where absent.",
};
pub(super) const INCREMENT: Parameter = Parameter {
    name: "Umbo-Increment",
    place: In::Header,
    schema: || json!({"type": "integer", "format": "int64"}),
    about: "What is added to the number that the row holds, or to 0 where there is no row.",
};
/// Of a change by an operator.
pub(super) const REASON: Parameter = Parameter {
    name: "Umbo-Reason",
    place: In::Header,
    schema: || json!({"type": "string", "minLength": 1, "maxLength": 256}),
    about: "Why the change is made: shown with it among the events. UTF-8, 256 bytes at most.",
};
pub(super) const IF_MATCH: Parameter = Parameter {
    name: "If-Match",
    place: In::Header,
    schema: tags,
    about: "Entity tags, or *. Not together with If-None-Match.",
};
pub(super) const IF_NONE_MATCH: Parameter = Parameter {
    name: "If-None-Match",
    place: In::Header,
    schema: tags,
    about: "Entity tags, or *. Not together with If-Match.",
};
/// The same of a write.
pub(super) const IF_NONE: Parameter = Parameter {
    name: "If-None-Match",
    place: In::Header,
    schema: || json!({"type": "string", "enum": ["*"]}),
    about: "Only where there is none. Not together with If-Match.",
};
pub(super) const CONTENT_ENCODING: Parameter = Parameter {
    name: "Content-Encoding",
    place: In::Header,
    schema: || json!({"type": "string", "enum": ["gzip", "zstd", "identity"]}),
    about: "How the body is compressed.",
};
pub(super) const ACCEPT_ENCODING: Parameter = Parameter {
    name: "Accept-Encoding",
    place: In::Header,
    schema: text,
    about: "gzip or zstd: answers of 1 KiB and more are compressed. A stored value whose coding is not accepted is \
            decoded, or refused with 406.",
};
pub(super) const BYTE_RANGE: Parameter = Parameter {
    name: "Range",
    place: In::Header,
    schema: text,
    about: "One part of the value: bytes=FIRST-LAST, bytes=FIRST- or bytes=-LENGTH. Anything else is ignored, several \
            ranges too.",
};
pub(super) const IF_RANGE: Parameter = Parameter {
    name: "If-Range",
    place: In::Header,
    schema: text,
    about: "An entity tag: the part is sent only where the value still has it, the whole otherwise.",
};
pub(super) const CONTENT_DIGEST: Parameter = Parameter {
    name: "Content-Digest",
    place: In::Header,
    schema: text,
    about: "sha-256=:BASE64: of the body as it is sent (RFC 9530); another body is refused. Other algorithms are \
            ignored.",
};
pub(super) const START: Parameter = Parameter {
    name: "start",
    place: In::Query,
    schema: text,
    about: "First sort key, included.",
};
pub(super) const END: Parameter = Parameter {
    name: "end",
    place: In::Query,
    schema: text,
    about: "Last sort key, excluded; none where empty.",
};
pub(super) const PREFIX: Parameter = Parameter {
    name: "prefix",
    place: In::Query,
    schema: text,
    about: "Only sort keys that begin so.",
};
pub(super) const REVERSE: Parameter = Parameter {
    name: "reverse",
    place: In::Query,
    schema: flag,
    about: "Last row first.",
};
pub(super) const LIMIT: Parameter = Parameter {
    name: "limit",
    place: In::Query,
    schema: || json!({"type": "integer", "minimum": 1}),
    about: "Most rows of this page.",
};
pub(super) const MAX_BYTES: Parameter = Parameter {
    name: "max_bytes",
    place: In::Query,
    schema: || {
        json!({
            "type": "integer", "minimum": 1,
            "maximum": limits::PAGE_BYTES_MAX, "default": limits::PAGE_BYTES_DEFAULT
        })
    },
    about: "The page ends with the row that reaches this many bytes.",
};
pub(super) const CURSOR: Parameter = Parameter {
    name: "cursor",
    place: In::Query,
    schema: text,
    about: "Cursor of the page before; start, end, prefix and reverse absent or as they were.",
};
pub(super) const KEYS_ONLY: Parameter = Parameter {
    name: "keys_only",
    place: In::Query,
    schema: flag,
    about: "Leave the values out.",
};
pub(super) const DRY_RUN: Parameter = Parameter {
    name: "dry_run",
    place: In::Query,
    schema: flag,
    about: "Change nothing, and answer what would change.",
};
pub(super) const ALL: Parameter = Parameter {
    name: "all",
    place: In::Query,
    schema: flag,
    about: "Must be true to remove a whole partition, where no bound is named or one is empty.",
};
pub(super) const ATOMIC: Parameter = Parameter {
    name: "atomic",
    place: In::Query,
    schema: || json!({"type": "string", "enum": ["partition", "none"], "default": "none"}),
    about: "Apply the rows of a partition all together or not at all.",
};
pub(super) const PREFER: Parameter = Parameter {
    name: "Prefer",
    place: In::Header,
    schema: text,
    about: "umbo-timing asks for Server-Timing; on a batch write return=minimal asks for the \
            failed rows only.",
};
