//! Metrics of the connections from a dispatcher to its shard nodes.
//!
//! Owns the series and their order. The owner of the connections passes the values in: gauges by node,
//! counters for all nodes together.

use std::time::Duration;

use super::visit::Families;
use crate::metric::Metric;
use crate::metric_names as names;

/// State of the connections to the shard nodes at the time of a scrape; totals since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemoteGauges<'a> {
    /// Nodes, in the order of the map.
    pub nodes: &'a [RemoteNodeGauges<'a>],
    /// Requests sent, retries included.
    pub requests: u64,
    /// Messages that carried them.
    pub sent_frames: u64,
    /// Messages received.
    pub frames: u64,
    /// Requests that were sent again.
    pub retries: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Connections that could not be made, or were refused.
    pub connections_refused: u64,
    /// Connections that were lost, or closed because the node was silent.
    pub connections_lost: u64,
}

/// One shard node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemoteNodeGauges<'a> {
    /// Name of the node in the cluster map.
    pub name: &'a str,
    /// Whether it is reachable.
    pub is_up: bool,
    /// Version of the map that it uses; none until it has reported it.
    pub map_version: Option<u64>,
    /// Requests in flight at it.
    pub in_flight: u64,
    /// How far the clock of the dispatcher is ahead of its own, in microseconds; none until it has told its time.
    pub clock_ahead: Option<i64>,
}

impl RemoteGauges<'_> {
    pub(super) fn visit(&self, families: &mut Families<'_>) {
        let label = |node: &RemoteNodeGauges<'_>| [String::from(node.name)];
        let nodes = || self.nodes.iter();
        let up = nodes().map(|node| (label(node), u64::from(node.is_up)));
        families.family(&names::REMOTE_NODE_UP, up);
        let versions = nodes().filter_map(|node| Some((label(node), node.map_version?)));
        families.family(&names::REMOTE_NODE_MAP_VERSION, versions);
        let offsets = nodes().filter_map(|node| {
            let ahead = node.clock_ahead?;
            let seconds = Duration::from_micros(ahead.unsigned_abs()).as_secs_f64();
            Some((label(node), if ahead < 0 { -seconds } else { seconds }))
        });
        families.family(&names::REMOTE_NODE_CLOCK_OFFSET, offsets);
        let in_flight = nodes().map(|node| (label(node), node.in_flight));
        families.family(&names::REMOTE_IN_FLIGHT, in_flight);
        let totals: [(&'static Metric, u64); 7] = [
            (&names::REMOTE_REQUESTS, self.requests),
            (&names::REMOTE_SENT_FRAMES, self.sent_frames),
            (&names::REMOTE_FRAMES, self.frames),
            (&names::REMOTE_RETRIES, self.retries),
            (&names::REMOTE_CONNECTIONS, self.connections),
            (&names::REMOTE_CONNECTIONS_REFUSED, self.connections_refused),
            (&names::REMOTE_CONNECTIONS_LOST, self.connections_lost),
        ];
        for (metric, total) in totals {
            families.single(metric, total);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{RequestMetrics, Scrape};

    #[test]
    fn a_scrape_has_every_series_where_there_are_nodes_and_none_elsewhere() {
        let away = RemoteNodeGauges {
            name: "b",
            ..RemoteNodeGauges::default()
        };
        let nodes = [
            RemoteNodeGauges {
                name: "a",
                is_up: true,
                map_version: Some(7),
                in_flight: 3,
                clock_ahead: Some(-1_500_000),
            },
            away,
        ];
        let remote = RemoteGauges {
            nodes: &nodes,
            requests: 100,
            sent_frames: 40,
            retries: 2,
            ..RemoteGauges::default()
        };
        let metrics = RequestMetrics::new(Vec::new(), 1);
        let mut scrape = Scrape::default();
        assert!(!metrics.render(&scrape).contains("umbo_remote"));
        scrape.remote = Some(remote);
        let text = metrics.render(&scrape);
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
