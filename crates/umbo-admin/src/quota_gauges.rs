//! What a scrape shows of the quotas, taken from the limiter's reports.
//!
//! Owns which callers have a series: the few that use most now, and in the places that are left those that have
//! used most since the start. Costs time in proportion to the
//! accounts, once a scrape and beside the path of requests.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use umbo_observe::{TOP_CALLERS, TopCallers};
use umbo_quota::{Limiter, OTHERS, PolicyReport, RESIDUAL_CLASSES, Residual};
use umbo_telemetry::metrics::{Estimates, PolicyGauges, QuotaGauges};
use umbo_types::{RequestUnits, ShardId};

/// Upper bounds of the limiter's classes of actual over estimate: odd powers of the root of two.
const RATIOS: [&str; RESIDUAL_CLASSES] = [
    "0.088", "0.177", "0.354", "0.707", "1.414", "2.828", "5.657", "11.314", "+Inf",
];

/// What a scrape shows of the quotas at one instant.
#[derive(Debug)]
pub(crate) struct QuotaSample {
    pub(crate) gauges: QuotaGauges,
    shards: HashMap<ShardId, (u64, RequestUnits)>,
}

impl QuotaSample {
    /// Asks the limiter.
    pub(crate) fn take(quota: &Limiter, now: Instant, top: &TopCallers) -> Self {
        let usage = quota.usage();
        let mut by_caller: HashMap<&Arc<str>, RequestUnits> = HashMap::new();
        for row in usage.rows.iter().filter(|row| &*row.caller != OTHERS) {
            let charged = by_caller.entry(&row.caller).or_default();
            *charged = charged.saturating_add(row.tally.charged);
        }
        let callers = by_caller
            .into_iter()
            .map(|(caller, charged)| (Arc::clone(caller), charged));
        let top: HashSet<Arc<str>> = top.top().into_iter().map(|(caller, _)| caller).collect();
        let callers = chosen(callers.collect(), &top);
        let mut shards: HashMap<ShardId, (u64, RequestUnits)> = HashMap::new();
        for usage in &usage.shards {
            let (requests, charged) = shards.entry(usage.shard).or_default();
            *requests += usage.requests;
            *charged = charged.saturating_add(usage.charged);
        }
        let policies = quota.policy_report(now);
        Self {
            gauges: QuotaGauges {
                policies: policies.iter().map(gauges).collect(),
                callers,
                estimates: usage.residuals.iter().map(estimates).collect(),
            },
            shards,
        }
    }

    /// Returns the requests that concerned a shard, and what was charged for its part of them.
    pub(crate) fn of_shard(&self, shard: ShardId) -> (u64, RequestUnits) {
        self.shards.get(&shard).copied().unwrap_or_default()
    }
}

/// Chooses those that have series, those that use most now first.
fn chosen(
    mut callers: Vec<(Arc<str>, RequestUnits)>,
    top: &HashSet<Arc<str>>,
) -> Vec<(Arc<str>, RequestUnits)> {
    let order = |(caller, charged): &(Arc<str>, RequestUnits)| {
        (
            Reverse((top.contains(caller), *charged)),
            Arc::clone(caller),
        )
    };
    callers.sort_by_cached_key(order);
    callers.truncate(TOP_CALLERS);
    callers
}

fn estimates(residual: &Residual) -> Estimates {
    Estimates {
        operation: residual.operation,
        ratios: RATIOS.into_iter().zip(residual.counts).collect(),
        estimated: residual.estimated,
        actual: residual.actual,
    }
}

fn gauges(report: &PolicyReport) -> PolicyGauges {
    PolicyGauges {
        policy: report.policy.name.to_string(),
        rejected: report.rejected,
        shadow_rejected: report.shadow_rejected,
        forgiven: report.policy.unit.as_f64(report.forgiven),
        buckets: report.buckets,
        utilisation: report.utilisation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_uses_most_now_has_a_series_before_who_once_did() {
        let caller = |at: u64| (Arc::from(format!("c{at}")), RequestUnits::from_micros(at));
        let callers: Vec<_> = (0..50).map(caller).collect();
        let top = HashSet::from([Arc::from("c1"), Arc::from("c3"), Arc::from("gone")]);
        let chosen = chosen(callers, &top);
        assert_eq!(chosen.len(), TOP_CALLERS);
        let names: Vec<&str> = chosen.iter().map(|(caller, _)| &**caller).collect();
        assert_eq!(names[..4], ["c3", "c1", "c49", "c48"]);
    }
}
