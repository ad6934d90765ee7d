//! Header names of Umbo's own, in the lower case that HTTP/2 asks for.

/// With what all of them begin.
pub const PREFIX: &str = "umbo-";
/// Request id: taken from the request where it is 1 to 64 characters of `[A-Za-z0-9._-]`, made
/// otherwise; on every answer.
pub const REQUEST_ID: &str = "umbo-request-id";
/// Time the caller still has, in milliseconds (1 to 600,000); includes queueing.
pub const TIMEOUT_MS: &str = "umbo-timeout-ms";
/// Criticality that the caller claims.
pub const CRITICALITY: &str = "umbo-criticality";
/// Criticality in effect, on answers to requests that claimed a higher one than their token may.
pub const CRITICALITY_APPLIED: &str = "umbo-criticality-applied";
/// Time to live of a row: seconds (1 to 315,360,000), or a duration with units (`5m`).
pub const TTL: &str = "umbo-ttl";
/// Expiry of a row, in milliseconds since the Unix epoch (10¹² or more); on requests and answers.
pub const EXPIRES_AT: &str = "umbo-expires-at";
/// When a write is acknowledged: `sync` or `async`.
pub const DURABILITY: &str = "umbo-durability";
/// Exact wait before a repetition, in milliseconds; beside `Retry-After`.
pub const RETRY_AFTER_MS: &str = "umbo-retry-after-ms";
/// Retry ticket: on a rejection, and sent back with the retry once the wait is over, which then has
/// priority over new requests. Opaque; good once at the dispatcher that issued it.
pub const RETRY_TICKET: &str = "umbo-retry-ticket";
/// Code of the problem (the last part of its `type`), also where the answer has no body; on every problem.
pub const PROBLEM: &str = "umbo-problem";
/// Whether a failed write took effect: `applied`, `not-applied` or `unknown`.
pub const OUTCOME: &str = "umbo-outcome";
/// Whether there was a row: `true` or `false`; on answers to a delete that was applied.
pub const EXISTED: &str = "umbo-existed";
/// What the request was charged, in request units, as an exact decimal; on every answer.
pub const RU: &str = "umbo-ru";
/// Caller whose quota is to pay. This and the next three are 1 to 128 visible ASCII characters, and
/// honoured only where the credential has the grant `delegate` on the namespace.
pub const QUOTA_USER: &str = "umbo-quota-user";
/// User on whose behalf the caller sends the request.
pub const USER: &str = "umbo-user";
/// Session in which the caller calls.
pub const SESSION: &str = "umbo-session";
/// Organisation for which the caller calls.
pub const ORG: &str = "umbo-org";
/// Why an operator makes a change, 1 to 256 bytes of UTF-8 on one line: shown with the change among the events.
pub const REASON: &str = "umbo-reason";
/// Names a write, so that a repetition is answered as the first was (draft-ietf-httpapi-idempotency-key-header): a
/// quoted string of 1 to 255 visible ASCII characters, chosen by the client.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// How long a repetition with the same idempotency key is recognised: seconds (1 to 86,400), or a duration with units
/// (`10m`); an hour where absent.
pub const IDEMPOTENCY_TTL: &str = "umbo-idempotency-ttl";
/// What is added to the number that a row holds: a signed 64-bit number. Makes a `PATCH` an increment.
pub const INCREMENT: &str = "umbo-increment";
/// Whether the answer is that of an earlier request with the same idempotency key (`?1`), so that nothing was applied
/// now; on answers to requests that were recognised.
pub const REPLAYED: &str = "umbo-replayed";
/// Which attempt of the same request this is (1 to 100); 1 where absent.
pub const ATTEMPT: &str = "umbo-attempt";
/// The payer: the caller, then `;user="…"`, `;session="…"` and `;org="…"` for those honoured. On
/// answers to requests that carried any of the four names above.
pub const CHARGED_TO: &str = "umbo-charged-to";
/// State of the bucket of the tightest limit, exactly: the policy, then `;unit=`, `;rate=` (units a
/// second), `;burst=`, `;balance=` (negative in debt) and `;ms=` (milliseconds between two refills).
pub const QUOTA_STATE: &str = "umbo-quota-state";
/// What is left of the tightest limit (draft-ietf-httpapi-ratelimit-headers).
pub const RATELIMIT: &str = "ratelimit";
/// What the tightest limit is (draft-ietf-httpapi-ratelimit-headers).
pub const RATELIMIT_POLICY: &str = "ratelimit-policy";
