//! Metrics of the reports of a store: its shards, their disk, and the connections to shard nodes.

use std::time::Duration;

use umbo_store::{DiskSpace, NodeStatus, RemoteStats, ShardState, ShardStatus};
use umbo_types::ShardId;

use super::visit::{Families, MetricValue};
use crate::metric::Metric;
use crate::metric_names as names;

/// Shows the status of shards. `bad_reads` are the failed reads of shards whose files are in this process.
pub fn visit_shards(
    families: &mut Families<'_>,
    shards: &[ShardStatus],
    bad_reads: &[(ShardId, u64)],
) {
    type Pick = fn(&ShardStatus) -> MetricValue;
    let metrics: [(&'static Metric, Pick); 16] = [
        (&names::SHARD_AVAILABLE, |one| {
            (one.state == ShardState::Available).into()
        }),
        (&names::SHARD_SYNC_TIME, |one| {
            MetricValue::Nanos(one.sync_nanos)
        }),
        (&names::SHARD_COMPACTION_TIME, |one| {
            MetricValue::Nanos(one.compaction_nanos)
        }),
        (&names::SHARD_HELD_TIME, |one| {
            MetricValue::Nanos(one.held_nanos)
        }),
        (&names::SHARD_ROWS, |one| one.rows.into()),
        (&names::SHARD_FILE_BYTES, |one| one.file_bytes.into()),
        (&names::SHARD_QUEUED_MUTATIONS, |one| one.queued.into()),
        (&names::SHARD_COMMITS, |one| one.commits.into()),
        (&names::SHARD_SYNCS, |one| one.syncs.into()),
        (&names::SHARD_COMPACTIONS, |one| one.compactions.into()),
        (&names::ROW_CACHE_HITS, |one| one.cache_hits.into()),
        (&names::ROW_CACHE_MISSES, |one| one.cache_misses.into()),
        (&names::SHARD_MUTATIONS, |one| one.mutations.into()),
        (&names::SHARD_RECLAIMED_ROWS, |one| one.reclaimed.into()),
        (&names::SHARD_EXPIRED_ROWS, |one| one.expired.into()),
        (&names::SHARD_PURGING_NAMESPACES, |one| one.purging.into()),
    ];
    for (metric, value) in metrics {
        let samples = shards.iter();
        let samples = samples.map(|one| ([one.shard.to_string()], value(one)));
        families.family(metric, samples);
    }
    let live = shards.iter();
    let live = live.filter_map(|one| Some(([one.shard.to_string()], one.live_bytes()?)));
    families.family(&names::SHARD_LIVE_BYTES, live);
    let bad_reads = shards.iter().map(|one| {
        let of_it = bad_reads.iter().find(|(shard, _)| *shard == one.shard);
        let count = of_it.map_or(0, |(_, count)| *count);
        ([one.shard.to_string()], count)
    });
    families.family(&names::STORE_BAD_READS, bad_reads);
}

/// Shows the disk of the shards.
pub fn visit_disk(families: &mut Families<'_>, disk: DiskSpace) {
    families.single(&names::DISK_SIZE, disk.size);
    families.single(&names::DISK_FREE, disk.free);
}

/// Shows the nodes of a dispatcher, and the counters of its connections to all of them, if it has such counters.
pub fn visit_nodes(families: &mut Families<'_>, nodes: &[NodeStatus], stats: Option<&RemoteStats>) {
    let label = |node: &NodeStatus| [node.name.clone()];
    let up = nodes.iter();
    let up = up.map(|node| (label(node), node.failure.is_none()));
    families.family(&names::REMOTE_NODE_UP, up);
    let versions = nodes.iter();
    let versions = versions.filter_map(|node| Some((label(node), node.map_version?)));
    families.family(&names::REMOTE_NODE_MAP_VERSION, versions);
    let offsets = nodes.iter().filter_map(|node| {
        let ahead = node.clock_ahead?;
        let seconds = Duration::from_micros(ahead.unsigned_abs()).as_secs_f64();
        Some((label(node), if ahead < 0 { -seconds } else { seconds }))
    });
    families.family(&names::REMOTE_NODE_CLOCK_OFFSET, offsets);
    let in_flight = nodes.iter();
    let in_flight = in_flight.filter_map(|node| Some((label(node), node.in_flight?)));
    families.family(&names::REMOTE_IN_FLIGHT, in_flight);
    let Some(stats) = stats else {
        return;
    };
    let totals = [
        (&names::REMOTE_REQUESTS, stats.requests),
        (&names::REMOTE_SENT_FRAMES, stats.frames),
        (&names::REMOTE_FRAMES, stats.answer_frames),
        (&names::REMOTE_RETRIES, stats.retries),
        (&names::REMOTE_CONNECTIONS, stats.connections),
        (
            &names::REMOTE_CONNECTIONS_REFUSED,
            stats.connections_refused,
        ),
        (&names::REMOTE_CONNECTIONS_LOST, stats.connections_lost),
    ];
    for (metric, total) in totals {
        families.single(metric, total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::MetricsText;

    #[test]
    fn every_series_of_nodes_is_written() {
        let node = |name: &str| NodeStatus {
            name: name.to_owned(),
            address: "[::1]:7201".to_owned(),
            failure: None,
            map_version: None,
            shards: Vec::new(),
            in_flight: Some(0),
            clock_ahead: None,
            program_version: None,
        };
        let nodes = [
            NodeStatus {
                map_version: Some(7),
                in_flight: Some(3),
                clock_ahead: Some(-1_500_000),
                ..node("a")
            },
            NodeStatus {
                failure: Some("away".to_owned()),
                ..node("b")
            },
        ];
        let stats = RemoteStats {
            requests: 100,
            frames: 40,
            retries: 2,
            ..RemoteStats::default()
        };
        let text = MetricsText::render(|visitor| {
            visit_nodes(&mut Families::new(visitor), &nodes, Some(&stats));
        });
        for metric in names::REMOTE {
            let head = format!("# TYPE {} {}\n", metric.name, metric.kind.as_str());
            assert!(text.contains(&head), "{head} in\n{text}");
        }
        for line in [
            "umbo_remote_node_up{node=\"a\"} 1",
            "umbo_remote_node_up{node=\"b\"} 0",
            "umbo_remote_node_map_version{node=\"a\"} 7",
            "umbo_remote_node_clock_offset_seconds{node=\"a\"} -1.5",
            "umbo_remote_requests_in_flight{node=\"a\"} 3",
            "umbo_remote_requests_total 100",
            "umbo_remote_sent_frames_total 40",
            "umbo_remote_retries_total 2",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in\n{text}");
        }
        let unknown = "umbo_remote_node_map_version{node=\"b\"}";
        assert!(!text.contains(unknown), "{text}");
    }
}
