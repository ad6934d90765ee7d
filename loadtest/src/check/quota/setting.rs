//! Limiters, policies and requests as the checks use them.

use std::time::{Duration, Instant};

use umbo_api::Quantity;
use umbo_api::quota::{PolicySource, PolicySpec};
use umbo_quota::{
    ActualUsage, CostHint, Limiter, LimiterSettings, Policy, PolicySet, QuotaRequest, Subject,
    Weights,
};
use umbo_types::{Attributes, NamespaceId, Operation, PriceMultiplier};

/// Accounts that a limiter keeps.
pub(super) const ACCOUNTS_MAX: usize = 20_000;
/// Buckets that it keeps.
pub(super) const BUCKETS_MAX: usize = 20_000;

/// A policy as a person would write it.
#[derive(Debug, Clone, Copy)]
pub(super) struct CheckedPolicy {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) per: &'static [&'static str],
    /// Units a second.
    pub(super) rate: u64,
    /// Units.
    pub(super) burst: u64,
    pub(super) refill_ms: u64,
    pub(super) scope: &'static str,
    pub(super) mode: &'static str,
}

/// One quota for each caller, enforced; what differs is named where it is used.
pub(super) const USUAL: CheckedPolicy = CheckedPolicy {
    name: "callers",
    unit: "ru",
    per: &["caller"],
    rate: 1_000,
    burst: 1_000,
    refill_ms: 50,
    scope: "pod",
    mode: "enforce",
};

impl CheckedPolicy {
    fn spec(&self) -> PolicySpec {
        let amount = |amount: u64| Quantity::number(amount.to_string());
        PolicySpec {
            per: self.per.iter().map(|&one| one.to_owned()).collect(),
            burst: Some(amount(self.burst)),
            refill: Some(format!("{}ms", self.refill_ms)),
            scope: Some(self.scope.to_owned()),
            mode: Some(self.mode.to_owned()),
            ..PolicySpec::new(self.name, self.unit, amount(self.rate))
        }
    }

    pub(super) fn policy(&self) -> Policy {
        Policy::parse(&self.spec(), PolicySource::File)
            .expect("the rules of the checks can be written")
    }
}

/// Returns a set of these rules, whose names differ.
pub(super) fn set(rules: &[CheckedPolicy]) -> PolicySet {
    let policies = rules.iter().map(CheckedPolicy::policy).collect();
    PolicySet::new(policies).expect("the rules of the checks have names of their own")
}

pub(super) fn limiter(rules: &[CheckedPolicy], origin: Instant, seed: u64) -> Limiter {
    let settings = LimiterSettings {
        weights: Weights::default(),
        accounts_max: ACCOUNTS_MAX,
        buckets_max: BUCKETS_MAX,
        shards: 4,
        seed,
    };
    Limiter::new(settings, set(rules), origin)
}

/// Makes a put whose length is known, so that its estimate is what it costs.
pub(super) fn put(caller: &str, body_len: u64) -> QuotaRequest<'_> {
    QuotaRequest {
        subject: Subject {
            caller,
            namespace: "checked",
            namespace_id: NamespaceId(1),
            attributes: Attributes::NONE,
            operation: Operation::Put,
        },
        hint: CostHint {
            body_len: Some(body_len),
            ..CostHint::default()
        },
        ticket: None,
        price_multiplier: PriceMultiplier::NONE,
    }
}

/// Returns what such a put does.
pub(super) fn work_of_put(body_len: u64) -> ActualUsage {
    ActualUsage {
        rows: 1,
        write_bytes: body_len,
        writes: 1,
        service_time: Duration::ZERO,
        ..ActualUsage::default()
    }
}
