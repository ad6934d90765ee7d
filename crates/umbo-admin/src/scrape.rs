//! One scrape: the state of a dispatcher as Prometheus reads it.
//!
//! Owns where each figure comes from; the text is the telemetry's. Costs time in proportion to the
//! accounts of callers, once a scrape and beside the path of requests.

use std::sync::{Arc, PoisonError};

use umbo_bulk::Bulk;
use umbo_control::RecordsReport;
use umbo_http::RequestError;
use umbo_store::{DiskSpace, NodeStatus, RemoteStats, ShardState, ShardStatus};
use umbo_telemetry::metrics::{
    DiskGauges, LoadGauges, MetricVisitor, MetricsText, ProcessSample, RecordsGauges, RemoteGauges,
    RemoteNodeGauges, Scrape, ShardGauges,
};
use umbo_types::ShardId;

use crate::quota_gauges::QuotaSample;
use crate::{hot_report, overload_gauges};

/// Renders the metrics of a process.
pub(crate) async fn render(bulk: &Arc<Bulk>) -> Result<String, RequestError> {
    let worker = Arc::clone(bulk);
    // Many callers take their time to add up: not on a thread that serves requests.
    let text = tokio::task::spawn_blocking(move || render_now(&worker));
    text.await
        .map_err(|error| RequestError::Internal(error.to_string()))
}

fn render_now(bulk: &Bulk) -> String {
    let mut text = MetricsText::new();
    visit(bulk, &mut text);
    text.into_text()
}

/// Shows the metrics of a process to a visitor.
pub fn visit(bulk: &Bulk, visitor: &mut dyn MetricVisitor) {
    let dispatcher = bulk.dispatcher();
    let now = dispatcher.clock.monotonic();
    let top = dispatcher.top_callers.lock();
    let top = top.unwrap_or_else(PoisonError::into_inner);
    let quota = QuotaSample::take(&dispatcher.quota, now, &top);
    drop(top);
    let status = dispatcher.store.status();
    let bad_reads = dispatcher.store.bad_reads();
    let gauges = |status| gauges(status, &quota, &bad_reads);
    let shards: Vec<ShardGauges> = status.iter().map(gauges).collect();
    let records = records(&dispatcher.control.records_report());
    let overload = dispatcher.overload.as_ref();
    let (nodes, counted) = (dispatcher.store.nodes(), dispatcher.store.remote_stats());
    let nodes: Vec<_> = nodes.iter().map(node).collect();
    let remote = counted.map(|counted| way_to(&nodes, &counted));
    let loads = bulk.count_by_state().into_iter();
    let scrape = Scrape {
        version: env!("CARGO_PKG_VERSION"),
        records,
        loads: LoadGauges {
            by_state: loads
                .map(|(state, count)| (state.as_str(), count))
                .collect(),
            stuck: bulk.stuck(),
        },
        shards: &shards,
        answer_bytes: dispatcher.answer_memory.held_bytes(),
        body_bytes: dispatcher.body_memory.held_bytes(),
        quota: quota.gauges,
        // A layer that is off has no series.
        hotkey: hot_report::gauges(dispatcher),
        overload: overload.map(|overload| overload_gauges::gauges(overload, now)),
        remote,
        disk: dispatcher.store.disk_space().map(disk),
        process: ProcessSample::read(),
    };
    dispatcher.metrics.visit(&scrape, visitor);
}

fn records(report: &RecordsReport) -> RecordsGauges {
    RecordsGauges {
        epoch: report.revision.epoch,
        revision: report.revision.number,
        age: report.age,
        is_unreadable: report.is_unreadable,
        removing: report.removals as u64,
    }
}

fn gauges(status: &ShardStatus, quota: &QuotaSample, bad_reads: &[(ShardId, u64)]) -> ShardGauges {
    let (requests, charged) = quota.of_shard(status.shard);
    ShardGauges {
        shard: status.shard.0,
        is_available: status.state == ShardState::Available,
        requests,
        charged,
        rows: status.rows,
        file_bytes: status.file_bytes,
        live_bytes: status.live_bytes(),
        queued_mutations: status.queued,
        commits: status.commits,
        syncs: status.syncs,
        sync_nanos: status.sync_nanos,
        cache_hits: status.cache_hits,
        cache_misses: status.cache_misses,
        compactions: status.compactions,
        compaction_nanos: status.compaction_nanos,
        mutations: status.mutations,
        reclaimed_rows: status.reclaimed,
        lost_async_writes: status.lost_async,
        bad_reads: (bad_reads.iter())
            .find(|(shard, _)| *shard == status.shard)
            .map_or(0, |(_, count)| *count),
        expired_rows: status.expired,
        purging_namespaces: status.purging,
    }
}

fn disk(space: DiskSpace) -> DiskGauges {
    DiskGauges {
        size_bytes: space.size,
        free_bytes: space.free,
    }
}

fn node(status: &NodeStatus) -> RemoteNodeGauges<'_> {
    RemoteNodeGauges {
        name: &status.name,
        is_up: status.failure.is_none(),
        map_version: status.map_version,
        in_flight: status.in_flight,
        clock_ahead: status.clock_ahead,
    }
}

fn way_to<'a>(nodes: &'a [RemoteNodeGauges<'a>], stats: &RemoteStats) -> RemoteGauges<'a> {
    RemoteGauges {
        nodes,
        requests: stats.requests,
        sent_frames: stats.frames,
        frames: stats.answer_frames,
        retries: stats.retries,
        connections: stats.connections,
        connections_refused: stats.connections_refused,
        connections_lost: stats.connections_lost,
    }
}
