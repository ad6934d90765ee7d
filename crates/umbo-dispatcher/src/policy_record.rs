//! The record of each policy that counted a request.

use std::sync::Arc;
use std::time::Duration;

use umbo_http::rejection;
use umbo_observe::request_records::{PolicyRecord, PolicyVerdict};
use umbo_quota::{Dimension, MetPolicy, PolicyScope, Rejection};

/// Returns the record of the policy that rejected the request.
pub(crate) fn rejected_by(rejection: &Rejection) -> PolicyRecord {
    PolicyRecord {
        policy: Arc::clone(&rejection.policy.name),
        balance: rejection.balance,
        price: rejection.price,
        rate: rejection.limit.rate,
        observed: rejection.observed,
        wait_millis: wait_millis(rejection.wait),
        unit: rejection.policy.unit as u8,
        is_of_shard: rejection.policy.per.contains(Dimension::Shard),
        is_of_fleet: rejection.policy.scope == PolicyScope::Fleet,
        verdict: PolicyVerdict::Rejected,
    }
}

/// Returns the record of a policy that did not reject the request.
pub(crate) fn asked(met: &MetPolicy<'_>, is_refused: bool) -> PolicyRecord {
    let verdict = match (met.is_enforced, is_refused) {
        (false, _) if !met.is_covered => PolicyVerdict::WouldReject,
        (true, false) => PolicyVerdict::Admitted,
        (true, true) if !met.is_covered => PolicyVerdict::Rejected,
        _ => PolicyVerdict::WouldAdmit,
    };
    PolicyRecord {
        policy: Arc::clone(&met.policy.name),
        balance: met.balance,
        price: met.price,
        rate: met.limit().rate,
        observed: 0,
        wait_millis: if met.wait.is_zero() {
            0
        } else {
            wait_millis(met.wait)
        },
        unit: met.policy.unit as u8,
        is_of_shard: met.shard.is_some(),
        is_of_fleet: met.policy.scope == PolicyScope::Fleet,
        verdict,
    }
}

/// Returns a wait as answers name it.
fn wait_millis(wait: Duration) -> u32 {
    u32::try_from(rejection::wait_ms(wait)).unwrap_or(u32::MAX)
}
