//! Counters of a shard node, and how a visitor sees them.
//!
//! A connection counts locally and adds its counts to the node once a turn, so that a request costs no atomic
//! addition.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::visit::{Families, MetricValue};
use crate::metric_names::{self as names, NODE_OUTCOMES, NODE_REQUESTS_ASKED};

const ASKED: usize = NODE_REQUESTS_ASKED.len();
const OUTCOMES: usize = NODE_OUTCOMES.len();

/// Counters of one node.
#[derive(Debug, Default)]
pub struct NodeMetrics {
    requests: [[AtomicU64; OUTCOMES]; ASKED],
    service_nanos: [AtomicU64; ASKED],
    frames: AtomicU64,
    received: AtomicU64,
    sent_frames: AtomicU64,
    sent: AtomicU64,
    connections_refused: AtomicU64,
    connections_broken: AtomicU64,
}

/// Counts of one connection since it last added them to the node.
#[derive(Debug, Default)]
pub struct NodeTally {
    requests: [[u32; OUTCOMES]; ASKED],
    service_nanos: [u64; ASKED],
    frames: u64,
    received: u64,
    sent_frames: u64,
    sent: u64,
}

impl NodeTally {
    /// Counts a frame of `len` bytes that came in.
    pub fn record_frame(&mut self, len: usize) {
        self.frames += 1;
        self.received += len as u64;
    }

    /// Counts a frame of `len` bytes that goes out.
    pub fn record_sent(&mut self, len: usize) {
        self.sent_frames += 1;
        self.sent += len as u64;
    }

    /// Counts an answer; the indexes are of the lists in [`metric_names`](crate::metric_names). An
    /// index past a list is counted nowhere.
    pub fn record(&mut self, asked: usize, outcome: usize, service_time: Duration) {
        if asked < ASKED && outcome < OUTCOMES {
            self.requests[asked][outcome] += 1;
            self.service_nanos[asked] += service_time.as_nanos() as u64;
        }
    }
}

impl NodeMetrics {
    /// Adds the counts of a connection and resets them.
    pub fn add(&self, tally: &mut NodeTally) {
        for (asked, counts) in tally.requests.iter_mut().enumerate() {
            // Most connections have only one or two kinds of requests at a time.
            if *counts == [0; OUTCOMES] {
                continue;
            }
            for (sum, count) in self.requests[asked].iter().zip(counts) {
                add(sum, u64::from(std::mem::take(count)));
            }
            let nanos = std::mem::take(&mut tally.service_nanos[asked]);
            add(&self.service_nanos[asked], nanos);
        }
        add(&self.frames, std::mem::take(&mut tally.frames));
        add(&self.received, std::mem::take(&mut tally.received));
        add(&self.sent_frames, std::mem::take(&mut tally.sent_frames));
        add(&self.sent, std::mem::take(&mut tally.sent));
    }

    /// Counts a connection whose peer expects another node.
    pub fn record_connection_refused(&self) {
        self.connections_refused.fetch_add(1, Relaxed);
    }

    /// Counts a connection that the node closed because of its peer's behaviour.
    pub fn record_connection_broken(&self) {
        self.connections_broken.fetch_add(1, Relaxed);
    }

    /// Shows the counters.
    pub fn visit(&self, families: &mut Families<'_>) {
        self.visit_requests(families);
        let counters = [
            (&names::NODE_FRAMES, &self.frames),
            (&names::NODE_RECEIVED, &self.received),
            (&names::NODE_SENT_FRAMES, &self.sent_frames),
            (&names::NODE_SENT, &self.sent),
            (&names::NODE_CONNECTIONS_REFUSED, &self.connections_refused),
            (&names::NODE_CONNECTIONS_BROKEN, &self.connections_broken),
        ];
        for (metric, counter) in counters {
            families.single(metric, counter.load(Relaxed));
        }
    }

    fn visit_requests(&self, families: &mut Families<'_>) {
        families.head(&names::NODE_REQUESTS);
        for (asked, counts) in NODE_REQUESTS_ASKED.iter().zip(&self.requests) {
            for (outcome, count) in NODE_OUTCOMES.iter().zip(counts) {
                let count = count.load(Relaxed);
                if count > 0 {
                    families.sample(&names::NODE_REQUESTS, &[asked, outcome], count);
                }
            }
        }
        let times = NODE_REQUESTS_ASKED.iter().zip(&self.service_nanos);
        let times = times.filter_map(|(asked, nanos)| {
            let nanos = nanos.load(Relaxed);
            (nanos > 0).then_some(([*asked], MetricValue::Nanos(nanos)))
        });
        families.family(&names::NODE_SERVICE_TIME, times);
    }
}

fn add(sum: &AtomicU64, count: u64) {
    if count > 0 {
        sum.fetch_add(count, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::MetricsText;

    #[test]
    fn counts_of_connections_add_up() {
        let metrics = NodeMetrics::default();
        let mut tally = NodeTally::default();
        tally.record_frame(100);
        tally.record(0, 0, Duration::from_micros(5));
        tally.record(4, 2, Duration::ZERO);
        tally.record(99, 0, Duration::ZERO);
        tally.record_sent(7);
        metrics.add(&mut tally);
        metrics.add(&mut tally);
        metrics.record_connection_refused();
        let text = MetricsText::render(|visitor| metrics.visit(&mut Families::new(visitor)));
        for line in [
            "umbo_node_requests_total{request=\"get\",outcome=\"done\"} 1",
            "umbo_node_requests_total{request=\"write\",outcome=\"busy\"} 1",
            "umbo_node_service_seconds_total{request=\"get\"} 0.000005",
            "umbo_node_frames_total 1",
            "umbo_node_received_bytes_total 100",
            "umbo_node_sent_frames_total 1",
            "umbo_node_sent_bytes_total 7",
            "umbo_node_connections_refused_total 1",
            "umbo_node_connections_broken_total 0",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in\n{text}");
        }
    }
}
