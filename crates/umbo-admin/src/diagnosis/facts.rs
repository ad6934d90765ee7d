//! The facts of a second, as the reports for operators have them.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use umbo_api::hot::{BusyShardInfo, HotReport};
use umbo_api::shed::ShardOverload;
use umbo_dispatcher::Dispatcher;
use umbo_store::{DiskSpace, ShardStatus};
use umbo_telemetry::metrics::CallLatency;
use umbo_types::{Operation, ShardId};

use crate::admin::{heat, shed};
use crate::hot_report;

/// The dispatcher itself in place of a node, if the shards are in its process.
pub(crate) const LOCAL: &str = "local";
/// Fewest seconds, of the last five, and calls in each for a latency of a node: one stall of a few milliseconds is in
/// one second.
const NODE_SECONDS_MIN: usize = 3;
const NODE_CALLS_MIN: f64 = 3.0;

/// Most policies that are looked at, the first by their rejections: each look is a pass over the buckets.
const POLICIES_MAX: usize = 8;
/// A policy rejects much from this many requests a second on.
pub(super) const REJECTED_MIN: f64 = 1.0;

/// Rates of a caller, a second.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CallerFacts {
    pub(super) requests: f64,
    pub(super) rejected: f64,
    pub(super) ru: f64,
}

/// A policy that rejects, with its bucket that is asked most.
#[derive(Debug, Clone, Default)]
pub(super) struct PolicyFacts {
    pub(super) name: String,
    /// Requests rejected a second.
    pub(super) rejected: f64,
    /// Dimension values of the bucket.
    pub(super) bucket: String,
    /// Asked for and allowed a second, in the unit.
    pub(super) asked: f64,
    pub(super) limit: f64,
    pub(super) unit: &'static str,
}

/// A node, or the dispatcher itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeFacts {
    pub(crate) name: String,
    pub(crate) shards: Vec<ShardId>,
    pub(super) latency: Option<CallLatency>,
    /// Commits since its start that were waited for until they were on the disk, and their time in nanoseconds.
    pub(super) commits: [u64; 2],
}

impl NodeFacts {
    /// Returns a p99 that all of the last five seconds but one have reached, in milliseconds, if there were enough calls.
    pub(super) fn p99_ms(&self) -> Option<f64> {
        let seconds = &self.latency.as_ref()?.seconds;
        let busy = seconds.iter().filter(|(calls, _)| *calls >= NODE_CALLS_MIN);
        let mut p99s: Vec<f64> = busy.map(|(_, p99_ms)| *p99_ms).collect();
        p99s.sort_by(f64::total_cmp);
        (p99s.len() >= NODE_SECONDS_MIN).then(|| p99s[(p99s.len() - 1) / 4])
    }
}

/// The facts of a second.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// Requests of clients a second, and failed ones.
    pub(super) requests: f64,
    pub(super) failed: f64,
    /// Request units charged a second.
    pub(super) ru: f64,
    /// By name; the first ones.
    pub(super) callers: BTreeMap<String, CallerFacts>,
    pub(super) policies: Vec<PolicyFacts>,
    /// `None` if the layer is off.
    pub(super) hot: Option<HotReport>,
    pub(super) busy: Vec<BusyShardInfo>,
    /// Empty if overload control is off.
    pub(super) shards: Vec<ShardOverload>,
    pub(super) nodes: Vec<NodeFacts>,
    pub(super) disk: Option<DiskSpace>,
    pub(super) loads_stuck: u64,
}

impl Facts {
    /// Gathers the facts of a second, since the Unix epoch, that the history has recorded.
    pub(super) fn gather(dispatcher: &Dispatcher, second: u64, stuck: u64) -> Self {
        let now = (dispatcher.clock.monotonic(), dispatcher.clock.wall());
        let mut facts = Self {
            hot: hot_report::report(dispatcher, |_| true).ok(),
            busy: heat::busy_report(dispatcher, &dispatcher.busy.now(), None).shards,
            nodes: node_facts(dispatcher),
            disk: dispatcher.store.disk_space(),
            loads_stuck: stuck,
            ..Self::default()
        };
        if let Some(overload) = &dispatcher.overload {
            facts.shards = shed::status(overload, now).shards;
        }
        let history = dispatcher.history.lock();
        let history = history.unwrap_or_else(PoisonError::into_inner);
        let mut policies = Vec::new();
        for (key, value) in history.step(0, second) {
            let (label, value) = (&*key.value, f64::from(value));
            match key.series.name {
                "ru" => facts.ru += value,
                name @ ("served" | "rejected" | "shed" | "refused" | "failed")
                    if !is_of_operators(label) =>
                {
                    facts.requests += value;
                    facts.failed += if name == "failed" { value } else { 0.0 };
                }
                "caller_requests" => facts.caller(label).requests = value,
                "caller_rejected" => facts.caller(label).rejected = value,
                "caller_ru" => facts.caller(label).ru = value,
                "policy_rejected" if value >= REJECTED_MIN => {
                    policies.push((label.to_owned(), value));
                }
                _ => {}
            }
        }
        drop(history);
        policies.sort_by(|one, other| other.1.total_cmp(&one.1));
        let policies = policies.into_iter().take(POLICIES_MAX);
        let policies = policies.filter_map(|(name, rejected)| policy(dispatcher, name, rejected));
        facts.policies = policies.collect();
        facts
    }

    fn caller(&mut self, name: &str) -> &mut CallerFacts {
        self.callers.entry(name.to_owned()).or_default()
    }
}

fn is_of_operators(operation: &str) -> bool {
    [Operation::Admin, Operation::Service]
        .map(Operation::as_str)
        .contains(&operation)
}

/// Returns the nodes with their latencies.
pub(crate) fn node_facts(dispatcher: &Dispatcher) -> Vec<NodeFacts> {
    let status = dispatcher.store.status();
    let facts = |name: String, shards: Vec<ShardId>| {
        let own = status.iter().filter(|one| shards.contains(&one.shard));
        let add = |[syncs, nanos]: [u64; 2], one: &ShardStatus| {
            [syncs + one.syncs, nanos.saturating_add(one.sync_nanos)]
        };
        NodeFacts {
            latency: dispatcher.latencies.of(&shards),
            commits: own.fold([0; 2], add),
            name,
            shards,
        }
    };
    let mut nodes = dispatcher.store.nodes();
    nodes.retain(|node| !node.shards.is_empty());
    if nodes.is_empty() {
        let shards = 0..dispatcher.shard_map.shards() as u16;
        return vec![facts(LOCAL.to_owned(), shards.map(ShardId).collect())];
    }
    let nodes = nodes.into_iter();
    nodes.map(|node| facts(node.name, node.shards)).collect()
}

fn policy(dispatcher: &Dispatcher, name: String, rejected: f64) -> Option<PolicyFacts> {
    let unit = dispatcher.quota.policies().get(&name)?.unit;
    let buckets = dispatcher
        .quota
        .buckets(&name, dispatcher.clock.monotonic(), 1);
    let bucket = buckets.into_iter().next()?;
    Some(PolicyFacts {
        name,
        rejected,
        asked: unit.as_f64(bucket.observed),
        limit: unit.as_f64(bucket.limit.rate),
        bucket: bucket.label,
        unit: unit.as_str(),
    })
}
