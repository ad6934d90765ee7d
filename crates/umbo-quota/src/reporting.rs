//! Reports of a limiter: usage, policies, buckets, explanations, replays.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use umbo_types::{Operation, RequestUnits, ShardId};

use crate::bucket::Bucket;
use crate::caller_state::{CallerNamespaceUsage, MatchedPolicy, PolicyStats};
use crate::dimension::Dimension;
use crate::limiter::{ActivePolicies, Limiter};
use crate::penalty::covered_at;
use crate::policy::{Limit, Policy};
use crate::replay::{Replay, replay};
use crate::report::{
    BucketReport, Explanation, Meeting, MetPolicy, NamespaceShardUsage, PolicyReport,
    PricedRequest, Tally, UsageLine, UsageReport,
};
use crate::request::QuotaRequest;
use crate::reservation::{ShardShare, part};
use crate::schedule::Millis;
use crate::subject::Subject;
use crate::usage_steps::UsageSteps;

impl Limiter {
    /// Does the periodic work: ends the windows of observed rates, and records usage. Call it about once a second, from
    /// one thread at a time.
    pub fn maintain(&self, now: Instant) {
        let now = self.pricing.millis(now);
        self.buckets.for_each(|bucket| bucket.roll(now));
        self.shadow_buckets.for_each(|bucket| bucket.roll(now));
        for active in self.active_policies.load().by_name.values() {
            if let Some(bucket) = active.stats.overflow.get() {
                bucket.roll(now);
            }
        }
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        if history.advance(now) {
            self.accounts
                .for_each(|entry| history.note(&entry.account.record));
            history.forget_idle();
        }
    }

    /// Returns the usage since the start.
    pub fn usage(&self) -> UsageReport {
        let mut report = UsageReport::default();
        self.visit_records(|record| report.rows.extend(rows(record)));
        report.rows.sort_by(|one, other| {
            let key =
                |row: &UsageLine| (row.namespace_id.0, Arc::clone(&row.caller), row.operation);
            key(one).cmp(&key(other))
        });
        report.shards = self.shard_usage();
        report.residuals = Operation::ALL
            .into_iter()
            .filter_map(|operation| self.pricing.residuals.of(operation))
            .collect();
        report
    }

    /// Returns the usage of each namespace since the start, by name: the sum of all callers and operations. Lacks
    /// accounts that are evicted meanwhile, and counts nothing twice.
    pub fn namespace_usage(&self) -> BTreeMap<Arc<str>, Tally> {
        let mut sums = BTreeMap::<_, Tally>::new();
        self.visit_records(|record| {
            let sum = sums.entry(Arc::clone(&record.namespace)).or_default();
            *sum = sum.plus(&record.sum());
        });
        sums
    }

    /// Shows all records. Records of evicted accounts come first: an account that is evicted meanwhile is then not seen
    /// twice.
    fn visit_records(&self, mut see: impl FnMut(&CallerNamespaceUsage)) {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<_> = others.values().cloned().collect();
        drop(others);
        for record in gone {
            see(&record);
        }
        self.accounts.for_each(|entry| see(&entry.account.record));
    }

    /// Adds the usage of a second that has ended to the steps; `second` counts from the Unix epoch, and
    /// the last sample was `elapsed` seconds ago, by a clock that never jumps. Shows the usage of
    /// each namespace by each caller since its account was made, summed over the operations. One pass over the accounts,
    /// without an allocation for idle ones: for once a second, from one thread at a time.
    pub fn sample_usage(
        &self,
        steps: &mut UsageSteps,
        (second, elapsed): (u64, u64),
        mut see: impl FnMut(&Arc<str>, &Tally),
    ) {
        steps.begin_second(second, elapsed);
        self.visit_records(|record| see(&record.caller, &steps.note(record)));
    }

    /// Returns the usage of one namespace by one caller since the start, or since its account was last evicted. One
    /// look-up, however many callers there are.
    pub fn usage_of(&self, subject: &Subject<'_>) -> Vec<UsageLine> {
        let found = self.accounts.get(self.identities.account(subject));
        found.map_or_else(Vec::new, |entry| rows(&entry.account.record).collect())
    }

    fn shard_usage(&self) -> Vec<NamespaceShardUsage> {
        let spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        let mut usage = Vec::new();
        for space in spaces.values() {
            for (shard, cell) in (0..).zip(&space.shards) {
                let requests = cell.requests.load(Relaxed);
                if requests > 0 {
                    usage.push(NamespaceShardUsage {
                        namespace: Arc::clone(&space.namespace),
                        namespace_id: space.namespace_id,
                        shard: ShardId(shard),
                        requests,
                        charged: RequestUnits::from_micros(cell.charged.load(Relaxed)),
                    });
                }
            }
        }
        usage.sort_by_key(|usage| (usage.namespace_id.0, usage.shard));
        usage
    }

    /// Returns the counters of each policy, in the order of their names.
    pub fn policy_report(&self, now: Instant) -> Vec<PolicyReport> {
        let now = self.pricing.millis(now);
        let mut seen: HashMap<Arc<str>, (u64, f64)> = HashMap::new();
        let mut see = |bucket: &Bucket| {
            let (buckets, highest) = seen.entry(Arc::clone(&bucket.policy)).or_default();
            *buckets += 1;
            *highest = highest.max(share(bucket.observed(now), bucket.limit().rate));
        };
        let active_policies = self.active_policies.load();
        self.each_in_effect(&active_policies, |_, bucket| see(bucket));
        let report = |policy: &Arc<Policy>| {
            let (buckets, utilisation) = seen.get(&policy.name).copied().unwrap_or_default();
            let stats = active_policies
                .by_name
                .get(&policy.name)
                .map(|active| &active.stats);
            let count = |pick: fn(&PolicyStats) -> &AtomicU64| {
                stats.map_or(0, |stats| pick(stats).load(Relaxed))
            };
            PolicyReport {
                policy: Arc::clone(policy),
                rejected: count(|stats| &stats.rejected),
                shadow_rejected: count(|stats| &stats.shadow_rejected),
                forgiven: count(|stats| &stats.forgiven),
                buckets,
                utilisation,
            }
        };
        active_policies.set.iter().map(report).collect()
    }

    /// Shows the buckets that the policies in effect use. Those of an earlier mode, scope, unit or set of dimensions are
    /// kept until their room is needed, and show nothing that counts.
    fn each_in_effect(&self, active: &ActivePolicies, mut see: impl FnMut(&Policy, &Bucket)) {
        for buckets in [&self.buckets, &self.shadow_buckets] {
            buckets.for_each(|bucket| {
                if let Some(active) = active.by_name.get(&bucket.policy)
                    && active.policy.bucket_kind() == bucket.kind
                {
                    see(&active.policy, bucket);
                }
            });
        }
    }

    /// Returns at most `max` buckets of a policy, the highest observed demand first.
    pub fn buckets(&self, policy: &str, now: Instant, max: usize) -> Vec<BucketReport> {
        let now = self.pricing.millis(now);
        let mut found: Vec<BucketReport> = Vec::new();
        let mut see = |bucket: &Bucket, limit: Limit| {
            let (observed, label) = (bucket.observed(now), &*bucket.label);
            let at = found.partition_point(|one| {
                (Reverse(one.observed), &*one.label) < (Reverse(observed), label)
            });
            if at < max {
                let report = BucketReport {
                    label: label.to_owned(),
                    limit,
                    balance: bucket.balance(now).min(limit.burst.cast_signed()),
                    observed,
                    rejected: bucket.refusals(),
                };
                found.truncate(max - 1);
                found.insert(at, report);
            }
        };
        let active_policies = self.active_policies.load();
        self.each_in_effect(&active_policies, |owner, bucket| {
            if &*owner.name == policy {
                // A bucket takes a changed limit with its next request. With overrides, only the request tells which.
                let is_told = owner.overrides.is_empty();
                see(bucket, if is_told { owner.limit } else { bucket.limit() });
            }
        });
        let overflow = active_policies.by_name.get(policy);
        if let Some(bucket) = overflow.and_then(|active| active.stats.overflow.get()) {
            see(bucket, bucket.limit());
        }
        found
    }

    /// Returns the price of a request and the policies that it meets. Takes nothing from any bucket.
    pub fn explain(
        &self,
        request: &QuotaRequest<'_>,
        shares: &[ShardShare],
        now: Instant,
    ) -> Explanation {
        let mut meets = Vec::new();
        let priced = self.visit_policies(request, shares, now, |met| {
            meets.push(Meeting {
                policy: Arc::clone(met.policy),
                label: met.bucket.label.to_string(),
                shard: met.shard,
                limit: met.bucket.limit(),
                price: met.price,
                balance: met.balance,
                admits: met.is_covered || !met.is_enforced,
                wait: met.wait,
            });
        });
        meets.sort_by(|one: &Meeting, other| one.policy.name.cmp(&other.policy.name));
        Explanation {
            estimate: priced.estimate,
            breakdown: priced.breakdown,
            price_multiplier: request.price_multiplier,
            samples: priced.samples,
            meets,
        }
    }

    /// Shows every policy that a request meets to a visitor, with the state of its bucket, and returns the price of the
    /// request. Takes nothing from any bucket, and allocates nothing for accounts and buckets that are known.
    pub fn visit_policies(
        &self,
        request: &QuotaRequest<'_>,
        shares: &[ShardShare],
        now: Instant,
        mut see: impl FnMut(&MetPolicy<'_>),
    ) -> PricedRequest {
        let now = self.pricing.millis(now);
        let subject = &request.subject;
        let account = self.account(subject, now);
        let cell = account.record.cell(subject.operation);
        let (charge, _) = account.estimate(&self.pricing, subject.operation, &request.hint);
        let plain = RequestUnits::from_micros(charge.ru);
        let penalty = request.price_multiplier.penalty(plain);
        let all = shares.iter().map(|share| share.parts).sum::<u32>().max(1);
        let mut pays_penalty = false;
        for matched in account
            .matched_policies()
            .filter(|matched| matched.is_met(subject))
        {
            let price = charge.in_unit(matched.unit);
            pays_penalty |= matched.pays_penalty;
            if matched.active.policy.per.contains(Dimension::Shard) {
                for share in shares {
                    let bucket = self.find_bucket(&matched.active, subject, Some(share.shard), now);
                    let price = part(price, (share.parts, all));
                    let shard = Some(share.shard);
                    see(&met(matched, &bucket, shard, (price, 0), now));
                }
            } else {
                let own = self.own_bucket(matched, subject, None, now);
                if let Some(bucket) = own.as_ref().or(matched.bucket()) {
                    let penalty = if matched.pays_penalty {
                        penalty.as_micros()
                    } else {
                        0
                    };
                    see(&met(matched, bucket, None, (price, penalty), now));
                }
            }
        }
        let weights = &self.pricing.weights;
        let mut breakdown = cell.breakdown(weights, subject.operation, &request.hint, plain);
        if pays_penalty {
            breakdown.penalty = penalty;
        }
        PricedRequest {
            estimate: plain.saturating_add(breakdown.penalty),
            breakdown,
            samples: cell.samples(),
        }
    }

    /// Returns how a policy would have treated the recorded demand of the last time span.
    pub fn replay(&self, policy: &Policy, last: Duration) -> Replay {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        replay(&history, policy, self.shards, last)
    }

    /// Returns the number of accounts and of buckets that are kept.
    pub fn sizes(&self) -> (usize, usize) {
        (
            self.accounts.len(),
            self.buckets.len() + self.shadow_buckets.len(),
        )
    }

    /// Returns all that was charged to the buckets of a policy, in atoms. Exact while no request spends.
    pub fn spent(&self, policy: &str) -> i64 {
        let mut spent = 0;
        let mut see = |bucket: &Bucket| {
            if &*bucket.policy == policy {
                spent += bucket.spent();
            }
        };
        self.buckets.for_each(|bucket| see(bucket));
        self.shadow_buckets.for_each(|bucket| see(bucket));
        if let Some(bucket) = self
            .active_policies
            .load()
            .by_name
            .get(policy)
            .and_then(|active| active.stats.overflow.get())
        {
            see(bucket);
        }
        spent
    }
}

/// Returns the operations of a record that have been used.
fn rows(record: &CallerNamespaceUsage) -> impl Iterator<Item = UsageLine> {
    let row = |operation| UsageLine {
        caller: Arc::clone(&record.caller),
        namespace: Arc::clone(&record.namespace),
        namespace_id: record.namespace_id,
        operation,
        tally: record.cell(operation).tally(operation),
    };
    let rows = Operation::PRICED.into_iter().map(row);
    rows.filter(|row| row.tally.requests > 0 || row.tally.rejected > 0)
}

fn met<'a>(
    matched: &'a MatchedPolicy,
    bucket: &'a Bucket,
    shard: Option<ShardId>,
    (plain, penalty): (u64, u64),
    now: Millis,
) -> MetPolicy<'a> {
    let look = bucket.look(plain, now, None);
    let price = plain.saturating_add(penalty);
    let due = (!look.admits).then(|| bucket.due(now, None));
    let covered_at = (penalty > 0)
        .then(|| covered_at(bucket, bucket.scaled(price), look.balance, now))
        .flatten();
    let due = due.max(covered_at);
    MetPolicy {
        policy: &matched.active.policy,
        shard,
        price,
        balance: look.balance,
        is_covered: due.is_none(),
        is_enforced: matched.is_enforced,
        wait: due.map_or(Duration::ZERO, |due| now.until(due)),
        bucket,
    }
}

#[expect(clippy::cast_precision_loss)] // a share for a graph
fn share(observed: u64, rate: u64) -> f64 {
    observed as f64 / rate.max(1) as f64
}

#[cfg(test)]
mod tests {
    use umbo_types::{Attributes, NamespaceId};

    use super::*;
    use crate::cost::Weights;
    use crate::limiter::LimiterSettings;
    use crate::policy::PolicySet;
    use crate::report::OTHERS;

    #[test]
    fn an_account_that_is_evicted_during_a_report_does_not_count_twice() {
        let settings = LimiterSettings {
            weights: Weights::default(),
            // Two stripes.
            accounts_max: 32,
            buckets_max: 32,
            shards: 1,
            seed: 7,
        };
        let origin = Instant::now();
        let limiter = Limiter::new(settings, PolicySet::built_in(), origin);
        let account = |caller: String| {
            let subject = Subject {
                caller: &caller,
                namespace: "n",
                namespace_id: NamespaceId(1),
                attributes: Attributes::NONE,
                operation: Operation::Get,
            };
            limiter.account(&subject, limiter.pricing.millis(origin))
        };
        for at in 0..100 {
            let account = account(format!("c{at}"));
            account.record.cell(Operation::Get).count_rejected();
        }
        assert_eq!(limiter.namespace_usage()["n"].rejected, 100);
        let (mut rejected, mut late) = (0, 0);
        limiter.visit_records(|record| {
            rejected += record.sum().rejected;
            if &*record.caller != OTHERS {
                for at in late..late + 100 {
                    account(format!("late{at}"));
                }
                late += 100;
            }
        });
        assert!(late > 0 && rejected <= 100, "{rejected}");
        assert_eq!(limiter.namespace_usage()["n"].rejected, 100);
    }
}
