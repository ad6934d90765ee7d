//! The second verb: who calls, whether they may, how critical it is and until when.
//!
//! Hot path. A caller is identified before anything else of the request is read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderValue;
use umbo_types::{Caller, Criticality, Deadline, Operation, Timestamp, Verb};

use crate::failure::Failure;
use crate::fields::{Fields, Freshness};
use crate::pod::Dispatcher;

/// What is known of a request beside what it asks.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    /// Time of day at which the request began.
    pub(crate) now: Timestamp,
    /// When nobody waits any more.
    pub(crate) deadline: Deadline,
    /// The time that was given for it.
    pub(crate) timeout: Duration,
    /// Whether the client named that time.
    pub(crate) is_timeout_named: bool,
    /// How old an answer may be.
    pub(crate) freshness: Freshness,
}

/// Identifies the caller.
pub(crate) fn caller(
    pod: &Dispatcher,
    fields: &Fields<'_>,
    now: Timestamp,
) -> Result<Arc<Caller>, Failure> {
    let authorization = fields.authorization.map(HeaderValue::as_bytes);
    Ok(pod.tokens.authenticate(authorization, now)?)
}

/// Refuses a caller that holds no grant.
pub(crate) fn authorize(caller: &Caller, verb: Verb, namespace: &str) -> Result<(), Failure> {
    if caller.is_allowed(verb, namespace) {
        return Ok(());
    }
    Err(Failure::Forbidden {
        caller: caller.id.as_str().to_owned(),
        verb: verb.as_str(),
        namespace: namespace.to_owned(),
    })
}

/// Returns the tier: what the caller claims, or the operation's default, no higher than its cap.
pub(crate) fn criticality(
    operation: Operation,
    fields: &Fields<'_>,
    caller: &Caller,
) -> Result<Criticality, Failure> {
    let unmarked = match operation {
        Operation::Scan => Criticality::Sheddable,
        _ => Criticality::default(),
    };
    let claimed = fields.claimed_criticality()?.unwrap_or(unmarked);
    Ok(claimed.min(caller.criticality_max))
}

/// Reads the deadline.
pub(crate) fn context(
    pod: &Dispatcher,
    fields: &Fields<'_>,
    now: Timestamp,
    started: Instant,
) -> Result<Context, Failure> {
    let named = fields.timeout()?;
    let timeout = named.unwrap_or(pod.limits.default_timeout);
    Ok(Context {
        now,
        deadline: Deadline::after(started, timeout),
        timeout,
        is_timeout_named: named.is_some(),
        freshness: fields.freshness,
    })
}
