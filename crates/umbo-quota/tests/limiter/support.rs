//! What the stories need: policies, requests, random numbers.

use std::time::{Duration, Instant};

use umbo_api::quota::PolicySource;
use umbo_quota::{
    ActualUsage, BroughtTicket, CostHint, Dimension, Limit, Limiter, LimiterSettings, Matcher,
    Mode, Policy, PolicyScope, PolicySet, QuotaRequest, RetryTicket, Subject, Unit, Weights,
};
use umbo_types::{Attributes, NamespaceId, Operation, PriceMultiplier};

pub(crate) use crate::random::Random;

pub(crate) const RU: u64 = 1_000_000;

pub(crate) fn policy(name: &str, per: &[Dimension], rate: u64, burst: u64) -> Policy {
    Policy {
        name: name.into(),
        matches: Matcher::default(),
        per: per.iter().copied().collect(),
        unit: Unit::Ru,
        limit: Limit { rate, burst },
        refill: Duration::from_millis(50),
        scope: if per.contains(&Dimension::Shard) {
            PolicyScope::Shard
        } else {
            PolicyScope::Pod
        },
        mode: Mode::Enforce,
        status: 429,
        source: PolicySource::Stored,
        overrides: vec![],
    }
}

pub(crate) fn set(policies: impl IntoIterator<Item = Policy>) -> PolicySet {
    PolicySet::new(policies.into_iter().collect()).expect("the policies are sound")
}

pub(crate) fn limiter(policies: impl IntoIterator<Item = Policy>, origin: Instant) -> Limiter {
    let settings = LimiterSettings {
        weights: Weights::default(),
        accounts_max: 1_000,
        buckets_max: 1_000,
        shards: 4,
        seed: 7,
    };
    Limiter::new(settings, set(policies), origin)
}

pub(crate) fn subject(caller: &str, operation: Operation) -> Subject<'_> {
    Subject {
        caller,
        namespace: "n",
        namespace_id: NamespaceId(1),
        attributes: Attributes::NONE,
        operation,
    }
}

pub(crate) fn get(caller: &str) -> QuotaRequest<'_> {
    QuotaRequest {
        subject: subject(caller, Operation::Get),
        hint: CostHint::default(),
        ticket: None,
        price_multiplier: PriceMultiplier::NONE,
    }
}

/// Returns a get that brings a ticket.
pub(crate) fn retry(caller: &str, ticket: RetryTicket) -> QuotaRequest<'_> {
    QuotaRequest {
        ticket: Some(BroughtTicket::Issued(ticket)),
        ..get(caller)
    }
}

/// Work of a get that costs exactly 1 RU.
pub(crate) fn work() -> ActualUsage {
    ActualUsage::default()
}

pub(crate) fn admit(limiter: &Limiter, request: &QuotaRequest<'_>, now: Instant) -> bool {
    let Ok(mut reservation) = limiter.admit(request, now, 0) else {
        return false;
    };
    reservation.settle(&work());
    true
}
