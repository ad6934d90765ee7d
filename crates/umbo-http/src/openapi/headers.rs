//! Header fields of answers in the `OpenAPI` document, each described once.

use serde_json::{Map, Value, json};

/// What every answer has.
const ANY: [&str; 2] = ["Umbo-Request-Id", "Umbo-RU"];

/// Name and meaning.
const ALL: &[(&str, &str)] = &[
    ("Accept-Encoding", "Content codings that the route reads."),
    ("Accept-Ranges", "bytes: parts of the value can be read."),
    ("Age", "Age of an answer from the local cache, in seconds."),
    (
        "Cache-Status",
        "How a read was answered: from the local cache, together with another request, or by the store (RFC 9211).",
    ),
    (
        "Content-Digest",
        "The SHA-256 of the body, as sha-256=:BASE64:, where it is a large value as a whole.",
    ),
    (
        "Content-Range",
        "Which part of the value it is, and the length of the whole.",
    ),
    (
        "Content-Security-Policy",
        "sandbox: a stored document runs nothing in a browser, and has no origin.",
    ),
    ("ETag", "Version, in quotes."),
    ("Link", "What describes the server (RFC 8631)."),
    (
        "Link",
        "Where the next page is, if others follow: <PATH>; rel=\"next\".",
    ),
    ("Location", "Where what was created is."),
    (
        "RateLimit",
        "What is left of the tightest limit (draft-ietf-httpapi-ratelimit-headers).",
    ),
    (
        "RateLimit-Policy",
        "What the tightest limit is (draft-ietf-httpapi-ratelimit-headers).",
    ),
    (
        "Repr-Digest",
        "The SHA-256 of all bytes of a large value, as sha-256=:BASE64:, also where a part is sent.",
    ),
    (
        "Retry-After",
        "Wait before a repetition, in seconds, rounded up.",
    ),
    (
        "Upload-Complete",
        "Whether all of a part is kept: ?1 or ?0.",
    ),
    ("Upload-Offset", "Bytes that are kept of a part."),
    (
        "Umbo-Charged-To",
        "Who paid, where the request named a payer.",
    ),
    (
        "Umbo-Criticality-Applied",
        "Criticality in effect, where it is lower than the one that the request named.",
    ),
    ("Umbo-Existed", "Whether there was a row: true or false."),
    (
        "Umbo-Expires-At",
        "Expiry of the row, in milliseconds since the Unix epoch.",
    ),
    (
        "Umbo-Outcome",
        "Whether a failed change took effect: applied, not-applied or unknown.",
    ),
    (
        "Umbo-Problem",
        "Code of the problem, also where the answer has no body.",
    ),
    (
        "Umbo-Quota-State",
        "State of the token bucket of the tightest limit, exactly.",
    ),
    ("Umbo-RU", "What the request was charged, in request units."),
    (
        "Umbo-Replayed",
        "?1 where this is the answer to an earlier request with the same Idempotency-Key, and nothing was applied now.",
    ),
    ("Umbo-Request-Id", "Id of the request."),
    (
        "Umbo-Retry-After-Ms",
        "Wait before a repetition, in milliseconds.",
    ),
    (
        "Umbo-Retry-Ticket",
        "To be sent with the retry, which then has priority over new requests.",
    ),
    ("Vary", "Request fields that the answer depends on."),
    ("WWW-Authenticate", "Bearer."),
    (
        "X-Content-Type-Options",
        "nosniff: a stored value is of its media type and no other.",
    ),
];

/// Returns the descriptions, by name.
pub(super) fn components() -> Map<String, Value> {
    let describe = |(name, about): &(&str, &str)| {
        let header = json!({"description": about, "schema": {"type": "string"}});
        ((*name).to_owned(), header)
    };
    ALL.iter().map(describe).collect()
}

/// Returns references to the descriptions of these fields and of those that every answer has.
pub(super) fn references(names: &[&str]) -> Value {
    let mut headers = Map::new();
    for name in names.iter().copied().chain(ANY) {
        let reference = format!("#/components/headers/{name}");
        headers.insert(name.to_owned(), json!({"$ref": reference}));
    }
    headers.into()
}
