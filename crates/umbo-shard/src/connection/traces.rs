//! The traced requests of a connection. When a request is answered, a span records its operation, outcome and
//! duration.
//!
//! Only a request that its dispatcher samples is traced; others cost nothing here.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use umbo_protocol::{Answer, Ask, Request};
use umbo_telemetry::metric_names::{NODE_OUTCOMES, NODE_REQUESTS_ASKED};
use umbo_telemetry::trace::{NodeSummary, Traceparent};
use umbo_types::{Criticality, ShardId};

use crate::kind::{RequestKind, is_failed, outcome_index};
use crate::node::Node;

/// Outcome of a cancelled request.
const CANCELLED: &str = "cancelled";
/// Outcome of a request that was not answered when its connection ended.
const UNANSWERED: &str = "unanswered";

/// The traced requests of a connection, by id. Bounded by the number of its pending requests.
#[derive(Debug, Default)]
pub(super) struct RequestTraces {
    open: HashMap<u64, TracedRequest>,
}

#[derive(Debug)]
struct TracedRequest {
    parent: Traceparent,
    arrived: Instant,
    kind: RequestKind,
    shard: Option<ShardId>,
    caller: Bytes,
    criticality: Criticality,
}

/// How a traced request ended.
struct TraceEnd {
    outcome: &'static str,
    is_failed: bool,
    service_time: Duration,
    rows: u64,
    bytes: u64,
}

impl RequestTraces {
    /// Returns whether no request is traced.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Begins the span of a request, if it is sampled and spans are exported.
    #[cold]
    pub(super) fn begin(
        &mut self,
        node: &Node,
        kind: RequestKind,
        request: &Request,
        arrived: Instant,
    ) {
        let tracer = node.tracer();
        let Some(parent) = tracer.and_then(|tracer| tracer.parent(&request.traceparent)) else {
            return;
        };
        let begun = TracedRequest {
            parent,
            arrived,
            kind,
            shard: shard_of(node, &request.ask),
            caller: request.caller.clone(),
            criticality: request.criticality,
        };
        self.open.insert(request.id, begun);
    }

    /// Records an answer.
    #[cold]
    pub(super) fn answered(&mut self, node: &Node, answer: &Answer) {
        let end = TraceEnd {
            outcome: NODE_OUTCOMES[outcome_index(&answer.outcome)],
            is_failed: is_failed(&answer.outcome),
            service_time: answer.service_time,
            rows: answer.rows,
            bytes: answer.bytes,
        };
        self.end(node, answer.id, &end);
    }

    /// Records that a request was cancelled.
    pub(super) fn cancelled(&mut self, node: &Node, id: u64) {
        if self.is_empty() {
            return;
        }
        self.end(node, id, &TraceEnd::without_answer(CANCELLED));
    }

    /// Records that the connection has ended.
    pub(super) fn end_all(&mut self, node: &Node) {
        let open: Vec<u64> = self.open.keys().copied().collect();
        for id in open {
            self.end(node, id, &TraceEnd::without_answer(UNANSWERED));
        }
    }

    fn end(&mut self, node: &Node, id: u64, end: &TraceEnd) {
        let (Some(open), Some(tracer)) = (self.open.remove(&id), node.tracer()) else {
            return;
        };
        let caller = str::from_utf8(&open.caller);
        let summary = NodeSummary {
            node: node.name(),
            request: NODE_REQUESTS_ASKED[open.kind as usize],
            outcome: end.outcome,
            is_failed: end.is_failed,
            shard: open.shard,
            caller: caller.ok().filter(|caller| !caller.is_empty()),
            criticality: open.criticality,
            service_time: end.service_time,
            rows: end.rows,
            bytes: end.bytes,
        };
        let now = node.clock().monotonic();
        tracer.at_node(&open.parent, &summary, open.arrived, now);
    }
}

impl TraceEnd {
    const fn without_answer(outcome: &'static str) -> Self {
        Self {
            outcome,
            is_failed: false,
            service_time: Duration::ZERO,
            rows: 0,
            bytes: 0,
        }
    }
}

/// Returns the shard of a request, if it has one.
pub(super) fn shard_of(node: &Node, ask: &Ask) -> Option<ShardId> {
    let ownership = node.ownership();
    let map = ownership.shard_map();
    match ask {
        Ask::Get(namespace, key) => Some(map.locate(*namespace, &key.partition)),
        Ask::Chunk(key, request) => Some(map.locate(request.namespace, &key.partition)),
        Ask::Backup(request) => Some(request.shard),
        Ask::Range(request) => Some(map.locate(request.namespace, &request.partition)),
        Ask::DeleteRange(request) => Some(map.locate(request.namespace, &request.partition)),
        Ask::Scan(shard, _) => Some(*shard),
        Ask::MultiGet(namespace, keys) => {
            let first = keys.first()?;
            Some(map.locate(*namespace, &first.partition))
        }
        Ask::Write(request) => {
            let first = request.mutations.first()?;
            Some(map.locate(request.namespace, &first.key.partition))
        }
        Ask::KeepRecords(_) | Ask::KeptRecords | Ask::Mail | Ask::Probe | Ask::ClusterMap => None,
    }
}
