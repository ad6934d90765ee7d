//! One scrape: the state of a pod as Prometheus reads it.
//!
//! Owns where each figure comes from; the text is the telemetry's. Costs time in proportion to the
//! accounts of callers, once a scrape and beside the path of requests.

use std::sync::Arc;

use umbo_store::{NodeStatus, RemoteStats, ShardState, ShardStatus};
use umbo_telemetry::metrics::{ProcessSample, RemoteGauges, RemoteNodeGauges, Scrape, ShardGauges};

use crate::failure::Failure;
use crate::hot_keys::HotKeySample;
use crate::overload_gauges::OverloadSample;
use crate::pod::Dispatcher;
use crate::quota_gauges::QuotaSample;

/// Renders the metrics of a pod.
pub(crate) async fn render(pod: &Arc<Dispatcher>) -> Result<String, Failure> {
    let worker = Arc::clone(pod);
    // Many callers take their time to add up: not on a thread that serves requests.
    let text = tokio::task::spawn_blocking(move || render_now(&worker));
    text.await
        .map_err(|error| Failure::Internal(error.to_string()))
}

fn render_now(pod: &Dispatcher) -> String {
    let now = pod.clock.monotonic();
    let quota = QuotaSample::take(&pod.quota, now);
    let status = pod.store.status();
    let shards: Vec<ShardGauges> = status.iter().map(|status| gauges(status, &quota)).collect();
    let hotkey = HotKeySample::take(pod);
    let overload = pod.overload.as_ref();
    let overload = overload.map(|overload| OverloadSample::take(overload, now));
    let (nodes, counted) = (pod.store.nodes(), pod.store.remote_stats());
    let nodes: Vec<_> = nodes.iter().map(node).collect();
    let remote = counted.map(|counted| way_to(&nodes, &counted));
    quota.show(|quota| {
        let scrape = Scrape {
            version: env!("CARGO_PKG_VERSION"),
            shards: &shards,
            quota,
            hotkey: None,
            overload: overload.as_ref().map(OverloadSample::gauges),
            remote,
            process: ProcessSample::read(),
        };
        let Some(hotkey) = &hotkey else {
            // The layer is off: it has no series.
            return pod.metrics.render(&scrape);
        };
        hotkey.show(|hotkey| {
            let hotkey = Some(hotkey);
            pod.metrics.render(&Scrape { hotkey, ..scrape })
        })
    })
}

fn gauges(status: &ShardStatus, quota: &QuotaSample) -> ShardGauges {
    let (requests, charged) = quota.of_shard(status.shard);
    ShardGauges {
        shard: status.shard.0,
        is_available: status.state == ShardState::Available,
        requests,
        charged,
        rows: status.rows,
        file_bytes: status.file_bytes,
        queued_mutations: status.queued,
        commits: status.commits,
        mutations: status.mutations,
        reclaimed_rows: status.reclaimed,
    }
}

fn node(status: &NodeStatus) -> RemoteNodeGauges<'_> {
    RemoteNodeGauges {
        name: &status.name,
        is_up: status.failure.is_none(),
        map_version: status.map_version,
        in_flight: status.in_flight,
    }
}

fn way_to<'a>(nodes: &'a [RemoteNodeGauges<'a>], stats: &RemoteStats) -> RemoteGauges<'a> {
    RemoteGauges {
        nodes,
        requests: stats.requests,
        sent_frames: stats.frames,
        frames: stats.answer_frames,
        retries: stats.retries,
        hedges: stats.hedges,
        hedges_won: stats.hedges_won,
        connections: stats.connections,
        connections_refused: stats.connections_refused,
        connections_lost: stats.connections_lost,
    }
}
