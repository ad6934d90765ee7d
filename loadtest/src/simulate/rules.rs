//! The policies of simulations, written as a person would and read as the server reads them.

use std::time::Duration;

use umbo_api::Quantity;
use umbo_api::quota::{PolicySource, PolicySpec};
use umbo_quota::{Policy, PolicyScope, PolicySet, Unit, format_amount};

use super::ideal::Quota;

/// The usual refill.
pub(crate) const REFILL: Duration = Duration::from_millis(50);

/// Returns a policy that gives each caller this quota.
fn per_caller(unit: Unit, quota: Quota, refill: Duration) -> Policy {
    let amount = |atoms| Quantity::number(format_amount(unit, atoms));
    let spec = PolicySpec {
        per: vec!["caller".to_owned()],
        burst: Some(amount(quota.burst)),
        refill: Some(format!("{}ms", refill.as_millis())),
        ..PolicySpec::new("quota", unit.as_str(), amount(quota.rate))
    };
    Policy::parse(&spec, PolicySource::File).expect("a simulated policy is one that can be written")
}

/// Returns a set of one enforced policy: each caller has this quota in the whole fleet.
pub(crate) fn one_fleet_quota(unit: Unit, quota: Quota, refill: Duration) -> PolicySet {
    let policy = Policy {
        scope: PolicyScope::Fleet,
        ..per_caller(unit, quota, refill)
    };
    PolicySet::new(vec![policy]).expect("one policy has no other of its name")
}

/// Returns a set of one enforced policy: each caller has this quota.
pub(crate) fn one_quota(unit: Unit, quota: Quota, refill: Duration) -> PolicySet {
    PolicySet::new(vec![per_caller(unit, quota, refill)])
        .expect("one policy has no other of its name")
}
