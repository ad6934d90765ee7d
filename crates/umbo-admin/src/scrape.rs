//! One scrape: the reports of a dispatcher as metrics, for any exporter.
//!
//! Owns where each figure comes from. Only a bounded number of callers, namespaces and hot keys has series. Costs time
//! in proportion to the accounts of callers, once a scrape and not on the path of requests.

mod hot_keys;
mod overload;
mod quota;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use umbo_bulk::Bulk;
use umbo_control::RecordsReport;
use umbo_dispatcher::Dispatcher;
use umbo_http::RequestError;
use umbo_telemetry::metric_names as names;
use umbo_telemetry::metrics::{
    CallLatency, Families, MetricVisitor, MetricsText, ProcessSample, visit_disk, visit_nodes,
    visit_shards,
};

use crate::diagnosis;

/// Renders the metrics of a process.
pub(crate) async fn render(bulk: &Arc<Bulk>) -> Result<String, RequestError> {
    let worker = Arc::clone(bulk);
    // Many callers take their time to add up: not on a thread that serves requests.
    let text = move || MetricsText::render(|visitor| visit(&worker, visitor));
    let text = tokio::task::spawn_blocking(text);
    text.await
        .map_err(|error| RequestError::Internal(error.to_string()))
}

/// Shows the metrics of a process to a visitor.
pub fn visit(bulk: &Bulk, visitor: &mut dyn MetricVisitor) {
    visit_sampled(bulk, visitor);
    quota::visit_namespaces(&mut Families::new(visitor), bulk.dispatcher());
}

/// Shows the metrics, without the families that the history keeps nothing of and that take time to add up.
pub(crate) fn visit_sampled(bulk: &Bulk, visitor: &mut dyn MetricVisitor) {
    let dispatcher = bulk.dispatcher();
    let (now, store) = (dispatcher.clock.monotonic(), &dispatcher.store);
    let shards = store.status();
    let families = &mut Families::new(visitor);
    let version = env!("CARGO_PKG_VERSION");
    families.family(&names::BUILD_INFO, [([version], 1_u64)]);
    dispatcher.metrics.visit(families);
    quota::visit(families, dispatcher, &shards);
    // A layer that is off has no series.
    if let Some(report) = dispatcher.hot_keys.report(now) {
        hot_keys::visit(families, dispatcher, &report);
    }
    if let Some(load) = &dispatcher.overload {
        let queues = load.statuses(now);
        overload::visit(families, &load.controller().report(now), &queues);
    }
    let loads = bulk.count_by_state().into_iter();
    let loads = loads.map(|(state, count)| ([state.as_str()], count));
    families.family(&names::LOADS, loads);
    families.single(&names::LOADS_STUCK, bulk.stuck());
    visit_records(families, &dispatcher.control.records_report());
    families.single(&names::ANSWER_BYTES, dispatcher.answer_memory.held_bytes());
    families.single(&names::BODY_BYTES, dispatcher.body_memory.held_bytes());
    visit_shards(families, &shards, &store.bad_reads());
    visit_latencies(families, dispatcher);
    let (nodes, stats) = (store.nodes(), store.remote_stats());
    if stats.is_some() || !nodes.is_empty() {
        visit_nodes(families, &nodes, stats.as_ref());
    }
    if let Some(disk) = store.disk_space() {
        visit_disk(families, disk);
    }
    if let Some(process) = ProcessSample::read() {
        process.visit(families);
    }
}

/// Shows how long calls of the shards took.
fn visit_latencies(families: &mut Families<'_>, dispatcher: &Dispatcher) {
    let nodes = diagnosis::node_facts(dispatcher);
    let shards = nodes.iter().flat_map(|node| {
        let own = node.shards.iter();
        own.filter_map(|shard| {
            let latency = dispatcher.latencies.of(&[*shard])?;
            let labels = [shard.to_string(), node.name.clone()];
            Some((labels, latency))
        })
    });
    let shards: Vec<_> = shards.collect();
    let seconds = |pick: fn(&CallLatency) -> f64| {
        let shards = shards.iter();
        shards.map(move |(labels, latency)| (labels.clone(), pick(latency) / 1e3))
    };
    families.family(&names::SHARD_CALL_P50, seconds(|latency| latency.p50_ms));
    families.family(&names::SHARD_CALL_P99, seconds(|latency| latency.p99_ms));
}

fn visit_records(families: &mut Families<'_>, report: &RecordsReport) {
    families.single(&names::RECORDS_EPOCH, report.revision.epoch);
    families.single(&names::RECORDS_REVISION, report.revision.number);
    families.single(&names::RECORDS_AGE, report.age);
    families.single(&names::RECORDS_UNREADABLE, report.is_unreadable);
    families.single(&names::NAMESPACES_REMOVING, report.removals);
}
