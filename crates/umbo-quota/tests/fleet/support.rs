//! More randomness, policies and requests for worlds of dispatchers.

use std::time::{Duration, Instant};

use umbo_api::quota::PolicySource;
use umbo_quota::{
    ActualUsage, CostHint, Dimension, Limit, Limiter, LimiterSettings, Matcher, Mode, Policy,
    PolicyScope, PolicySet, QuotaRequest, Rejection, Reservation, ShardShare, Subject, Unit,
    Weights,
};
use umbo_types::{Attributes, NamespaceId, Operation, PriceMultiplier, ShardId};

pub(crate) use crate::random::Random;

pub(crate) const RU: u64 = 1_000_000;
/// The secret of the store.
pub(crate) const SECRET: [u8; 32] = [7; 32];

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}

/// Returns a set of one policy: each caller has this limit in the whole fleet, at each shard if the scope says so.
pub(crate) fn fleet_quota(limit: Limit, scope: PolicyScope) -> PolicySet {
    let per: &[Dimension] = match scope {
        PolicyScope::Shard => &[Dimension::Caller, Dimension::Shard],
        _ => &[Dimension::Caller],
    };
    let policy = Policy {
        name: "quota".into(),
        matches: Matcher::default(),
        per: per.iter().copied().collect(),
        unit: Unit::Ru,
        limit,
        refill: Duration::from_millis(50),
        scope,
        mode: Mode::Enforce,
        status: 429,
        source: PolicySource::Stored,
        overrides: vec![],
    };
    PolicySet::new(vec![policy]).expect("the policy is sound")
}

/// Makes a limiter with little room for buckets.
pub(crate) fn limiter(policies: PolicySet, seed: u64, origin: Instant) -> Limiter {
    let settings = LimiterSettings {
        weights: Weights::default(),
        accounts_max: 64,
        buckets_max: 64,
        shards: 4,
        seed,
    };
    Limiter::new(settings, policies, origin)
}

/// Admits a request to a shard.
pub(crate) fn admit(
    limiter: &Limiter,
    request: &QuotaRequest<'_>,
    shard: ShardId,
    now: Instant,
    random: u64,
) -> Result<Reservation, Box<Rejection>> {
    let mut reservation = limiter.admit(request, now, random)?;
    let shares = [ShardShare { shard, parts: 1 }];
    limiter.admit_shards(&mut reservation, request, &shares, now, random)?;
    Ok(reservation)
}

/// Returns a write with a body of this length.
pub(crate) fn put(caller: &str, len: u64) -> QuotaRequest<'_> {
    QuotaRequest {
        subject: Subject {
            caller,
            namespace: "n",
            namespace_id: NamespaceId(1),
            attributes: Attributes::NONE,
            operation: Operation::Put,
        },
        hint: CostHint {
            body_len: Some(len),
            ..CostHint::default()
        },
        ticket: None,
        price_multiplier: PriceMultiplier::NONE,
    }
}

/// Returns the work of a write of a row of this length.
pub(crate) fn written(len: u64) -> ActualUsage {
    ActualUsage {
        rows: 1,
        writes: 1,
        write_bytes: len,
        ..ActualUsage::default()
    }
}
