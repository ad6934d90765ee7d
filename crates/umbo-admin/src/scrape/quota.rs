//! Metrics of the quotas, from the reports of the limiter: by policy, caller, shard and namespace, and the quality of
//! estimates.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use umbo_dispatcher::{Dispatcher, FleetQuotas};
use umbo_observe::TOP_CALLERS;
use umbo_quota::{
    NamespaceShardUsage, OTHERS, PolicyReport, RESIDUAL_CLASSES, Residual, Tally, UsageLine,
};
use umbo_store::ShardStatus;
use umbo_telemetry::metric::Metric;
use umbo_telemetry::metric_names as names;
use umbo_telemetry::metrics::{Families, MetricValue, NAMESPACES_MAX, NamespaceUse};
use umbo_types::RequestUnits;

/// Upper bounds of the limiter's classes of actual over estimate: odd powers of the root of two.
const RATIOS: [&str; RESIDUAL_CLASSES] = [
    "0.088", "0.177", "0.354", "0.707", "1.414", "2.828", "5.657", "11.314", "+Inf",
];

/// Shows what the limiter reports. Every shard of `shards` has series.
pub(super) fn visit(families: &mut Families<'_>, dispatcher: &Dispatcher, shards: &[ShardStatus]) {
    let top = dispatcher.top_callers.lock();
    let top = top.unwrap_or_else(PoisonError::into_inner).top();
    let top = top.into_iter().map(|(caller, _)| caller).collect();
    let usage = dispatcher.quota.usage();
    let now = dispatcher.clock.monotonic();
    visit_estimates(families, &usage.residuals);
    visit_policies(families, &dispatcher.quota.policy_report(now));
    if let Some(quotas) = dispatcher.fleet_quotas.get() {
        visit_fleet(families, quotas);
    }
    visit_callers(families, &usage.rows, &top);
    visit_shards(families, &usage.shards, shards);
}

pub(super) fn visit_estimates(families: &mut Families<'_>, residuals: &[Residual]) {
    families.head(&names::ESTIMATES);
    for one in residuals {
        for (bound, count) in RATIOS.iter().zip(one.counts) {
            families.sample(&names::ESTIMATES, &[one.operation.as_str(), bound], count);
        }
    }
    let estimated = residuals.iter();
    let estimated = estimated.map(|one| ([one.operation.as_str()], one.estimated));
    families.family(&names::ESTIMATED_REQUEST_UNITS, estimated);
    let actual = residuals.iter();
    let actual = actual.map(|one| ([one.operation.as_str()], one.actual));
    families.family(&names::SAMPLED_REQUEST_UNITS, actual);
}

pub(super) fn visit_policies(families: &mut Families<'_>, policies: &[PolicyReport]) {
    type Pick = fn(&PolicyReport) -> MetricValue;
    let metrics: [(&'static Metric, Pick); 5] = [
        (&names::POLICY_REJECTED, |one| one.rejected.into()),
        (&names::POLICY_SHADOW_REJECTED, |one| {
            one.shadow_rejected.into()
        }),
        (&names::POLICY_BUCKETS, |one| one.buckets.into()),
        (&names::POLICY_FORGIVEN, |one| {
            one.policy.unit.as_f64(one.forgiven).into()
        }),
        (&names::POLICY_UTILISATION, |one| one.utilisation.into()),
    ];
    for (metric, value) in metrics {
        let samples = policies.iter();
        let samples = samples.map(|one| ([Arc::clone(&one.policy.name)], value(one)));
        families.family(metric, samples);
    }
}

fn visit_fleet(families: &mut Families<'_>, quotas: &FleetQuotas) {
    let counts = [
        ("answered", &quotas.answered),
        ("unanswered", &quotas.unanswered),
    ];
    let counts = counts.map(|(outcome, count)| ([outcome], count.load(Ordering::Relaxed)));
    families.family(&names::FLEET_QUOTA_MESSAGES, counts);
    let report = quotas.core.report();
    families.single(&names::FLEET_QUOTA_SILENT_OWNERS, report.silent.len());
    families.single(&names::FLEET_QUOTA_REVISION, report.row.revision);
    families.single(&names::FLEET_QUOTA_REPORTED, report.reported);
    families.single(&names::FLEET_QUOTA_OWNED, report.owned);
}

fn visit_callers(families: &mut Families<'_>, rows: &[UsageLine], top: &HashSet<Arc<str>>) {
    let mut charged: HashMap<&Arc<str>, RequestUnits> = HashMap::new();
    for row in rows.iter().filter(|row| &*row.caller != OTHERS) {
        let sum = charged.entry(&row.caller).or_default();
        *sum = sum.saturating_add(row.tally.charged);
    }
    let callers = charged.into_iter();
    let callers = callers.map(|(caller, charged)| (Arc::clone(caller), charged));
    let callers = chosen(callers.collect(), top).into_iter();
    let samples = callers.map(|(caller, charged)| ([caller], charged));
    families.family(&names::CALLER_REQUEST_UNITS, samples);
}

/// Chooses the callers that have series: first the few that use most now, then the callers that have used most since
/// the start.
fn chosen(
    mut callers: Vec<(Arc<str>, RequestUnits)>,
    top: &HashSet<Arc<str>>,
) -> Vec<(Arc<str>, RequestUnits)> {
    callers.sort_by_cached_key(|(caller, charged)| {
        let is_top = top.contains(caller);
        (Reverse((is_top, *charged)), Arc::clone(caller))
    });
    callers.truncate(TOP_CALLERS);
    callers
}

fn visit_shards(
    families: &mut Families<'_>,
    usage: &[NamespaceShardUsage],
    shards: &[ShardStatus],
) {
    let none = (0_u64, RequestUnits::default());
    let shards = shards.iter().map(|status| (status.shard, none));
    let mut sums: BTreeMap<_, _> = shards.collect();
    for one in usage {
        if let Some((requests, charged)) = sums.get_mut(&one.shard) {
            *requests += one.requests;
            *charged = charged.saturating_add(one.charged);
        }
    }
    let requests = sums.iter();
    let requests = requests.map(|(shard, sum)| ([shard.to_string()], sum.0));
    families.family(&names::SHARD_REQUESTS, requests);
    let charged = sums.iter();
    let charged = charged.map(|(shard, sum)| ([shard.to_string()], sum.1));
    families.family(&names::SHARD_REQUEST_UNITS, charged);
}

/// Shows the use of namespaces.
pub(super) fn visit_namespaces(families: &mut Families<'_>, dispatcher: &Dispatcher) {
    let usage = dispatcher.quota.namespace_usage();
    let live = dispatcher.control.namespaces.live().into_iter();
    let used = figures(usage, live.map(|info| info.name));
    dispatcher.metrics.visit_namespaces(families, &used);
}

/// Returns the figures of namespaces. Series begin at zero, before the first request, if all `live` can have some.
fn figures(
    usage: BTreeMap<Arc<str>, Tally>,
    live: impl ExactSizeIterator<Item = String>,
) -> Vec<(Arc<str>, NamespaceUse)> {
    let of = |sum: &Tally| {
        let charged = sum.charged.as_micros();
        [
            sum.requests,
            charged,
            sum.rows,
            sum.read_bytes,
            sum.write_bytes,
        ]
    };
    let used = usage.into_iter().map(|(name, sum)| (name, of(&sum)));
    let mut used: Vec<_> = used.collect();
    if live.len() <= NAMESPACES_MAX {
        used.extend(live.map(|name| (name.into(), NamespaceUse::default())));
    }
    used
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

    #[test]
    fn namespaces_have_figures_before_they_are_used_while_there_is_room() {
        let tally = Tally {
            requests: 2,
            rejected: 1,
            charged: RequestUnits::from_micros(1_500_000),
            rows: 3,
            read_bytes: 40,
            write_bytes: 5,
            ..Tally::default()
        };
        let of = |live: usize| {
            let usage = BTreeMap::from([("removed".into(), tally)]);
            figures(usage, (0..live).map(|at| format!("n{at}")))
        };
        let used = ("removed".into(), [2, 1_500_000, 3, 40, 5]);
        assert_eq!(
            of(1),
            [used.clone(), ("n0".into(), NamespaceUse::default())]
        );
        assert_eq!(of(NAMESPACES_MAX).len(), NAMESPACES_MAX + 1);
        assert_eq!(of(NAMESPACES_MAX + 1), [used]);
    }
}
