//! Umbo's own header names, in lower case as HTTP/2 requires.

/// The prefix of all of them.
pub const PREFIX: &str = "umbo-";
/// Request id, on every answer. It is copied from the request if it is 1 to 64 characters of `[A-Za-z0-9._-]`, and
/// otherwise generated.
pub const REQUEST_ID: &str = "umbo-request-id";
/// Time the caller still has, in milliseconds (1 to 600,000); includes queueing.
pub const TIMEOUT_MS: &str = "umbo-timeout-ms";
/// Criticality that the caller claims.
pub const CRITICALITY: &str = "umbo-criticality";
/// Criticality in effect; on answers to requests that claimed a higher one than their token allows.
pub const CRITICALITY_APPLIED: &str = "umbo-criticality-applied";
/// Time to live of a row: seconds (1 to 315,360,000), or a duration with units (`5m`).
pub const TTL: &str = "umbo-ttl";
/// Expiry of a row, in milliseconds since the Unix epoch (10¹² or more); on requests and answers.
pub const EXPIRES_AT: &str = "umbo-expires-at";
/// When a write is acknowledged: `sync` or `async`.
pub const DURABILITY: &str = "umbo-durability";
/// Exact wait before a repetition, in milliseconds; sent together with `Retry-After`.
pub const RETRY_AFTER_MS: &str = "umbo-retry-after-ms";
/// Opaque retry ticket. A rejection carries it, and the client sends it with the retry once the wait is over. The retry
/// then has priority over new requests. Valid once, at the dispatcher that issued it.
pub const RETRY_TICKET: &str = "umbo-retry-ticket";
/// Code of the problem (the last part of its `type`); on every problem, also if the answer has no body.
pub const PROBLEM: &str = "umbo-problem";
/// Whether a failed write took effect: `applied`, `not-applied` or `unknown`.
pub const OUTCOME: &str = "umbo-outcome";
/// Whether the row existed: `true` or `false`; on answers to a delete that was applied.
pub const EXISTED: &str = "umbo-existed";
/// Request units charged, as an exact decimal; on every answer.
pub const RU: &str = "umbo-ru";
/// Caller whose quota is to be charged. This and the next three are 1 to 128 visible ASCII characters, and are honoured
/// only if the credential has the grant `delegate` on the namespace.
pub const QUOTA_USER: &str = "umbo-quota-user";
/// User on whose behalf the caller sends the request.
pub const USER: &str = "umbo-user";
/// Session of the caller.
pub const SESSION: &str = "umbo-session";
/// Organisation on whose behalf the caller sends the request.
pub const ORG: &str = "umbo-org";
/// Why an operator makes a change: 1 to 256 bytes of UTF-8 on one line, shown with the change among the events.
pub const REASON: &str = "umbo-reason";
/// Names a write, so that a repetition gets the answer of the first request
/// (draft-ietf-httpapi-idempotency-key-header): a quoted string of 1 to 255 visible ASCII characters, chosen by the
/// client.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// How long a repetition with the same idempotency key is recognised: seconds (1 to 86,400), or a duration with units
/// (`10m`). Default: one hour.
pub const IDEMPOTENCY_TTL: &str = "umbo-idempotency-ttl";
/// Signed 64-bit number to add to the number in a row. Makes a `PATCH` an increment.
pub const INCREMENT: &str = "umbo-increment";
/// `?1` if the request was recognised by its idempotency key: the answer repeats the first one, and nothing was applied
/// now.
pub const REPLAYED: &str = "umbo-replayed";
/// Number of this attempt of the same request (1 to 100). Default: 1.
pub const ATTEMPT: &str = "umbo-attempt";
/// The payer: the caller, then `;user="…"`, `;session="…"` and `;org="…"` for the honoured names. On answers to
/// requests that carried any of the four headers above.
pub const CHARGED_TO: &str = "umbo-charged-to";
/// Exact state of the bucket of the tightest limit: the policy, then `;unit=`, `;rate=` (units a second), `;burst=`,
/// `;balance=` (negative in debt) and `;ms=` (milliseconds between two refills).
pub const QUOTA_STATE: &str = "umbo-quota-state";
/// Remaining amount under the tightest limit (draft-ietf-httpapi-ratelimit-headers).
pub const RATELIMIT: &str = "ratelimit";
/// The tightest limit (draft-ietf-httpapi-ratelimit-headers).
pub const RATELIMIT_POLICY: &str = "ratelimit-policy";
