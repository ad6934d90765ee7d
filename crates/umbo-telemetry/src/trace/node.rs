//! The span of a shard node: a request of a dispatcher for a sampled request, as a child of its span.
//!
//! The dispatcher decides to sample; a node starts no trace.

use std::time::{Duration, Instant};

use opentelemetry::KeyValue;
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use umbo_types::{Criticality, ShardId};

use super::traceparent::Traceparent;
use super::{Span, Tracer};

/// A request to a node as its span describes it. Never a key or a value.
#[derive(Debug, Clone, Copy)]
pub struct NodeSummary<'a> {
    /// Name of the node in the map of its cluster.
    pub node: &'a str,
    /// Kind of the request, one of [`NODE_REQUESTS_ASKED`](crate::metric_names::NODE_REQUESTS_ASKED).
    pub request: &'static str,
    /// Outcome, one of [`NODE_OUTCOMES`](crate::metric_names::NODE_OUTCOMES), or that the request was
    /// cancelled or not answered.
    pub outcome: &'static str,
    /// Whether that is a failure of the node.
    pub is_failed: bool,
    /// The shard, if there was exactly one.
    pub shard: Option<ShardId>,
    /// The caller that pays, if any.
    pub caller: Option<&'a str>,
    /// Tier in effect.
    pub criticality: Criticality,
    /// Service time at the node.
    pub service_time: Duration,
    /// Rows touched.
    pub rows: u64,
    /// Bytes of keys and values touched.
    pub bytes: u64,
}

impl NodeSummary<'_> {
    fn attributes(&self) -> Vec<KeyValue> {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let micros = u64::try_from(self.service_time.as_micros()).unwrap_or(u64::MAX);
        let mut attributes = vec![
            KeyValue::new("umbo.node", self.node.to_owned()),
            KeyValue::new("umbo.request", self.request),
            KeyValue::new("umbo.outcome", self.outcome),
            KeyValue::new("umbo.criticality", self.criticality.as_str()),
            KeyValue::new("umbo.service_time_us", number(micros)),
            KeyValue::new("umbo.rows", number(self.rows)),
            KeyValue::new("umbo.bytes", number(self.bytes)),
        ];
        if let Some(shard) = self.shard {
            attributes.push(KeyValue::new("umbo.shard", i64::from(shard.0)));
        }
        if let Some(caller) = self.caller {
            attributes.push(KeyValue::new("umbo.caller", caller.to_owned()));
        }
        attributes
    }
}

impl Tracer {
    /// Returns the parent span of a request to a node, or `None` if it is not sampled or nothing is traced here.
    pub fn parent(&self, traceparent: &[u8]) -> Option<Traceparent> {
        self.exporter.as_ref()?;
        Traceparent::parse(traceparent).filter(|parent| parent.is_sampled)
    }

    /// Exports the span of a request to a node.
    pub fn at_node(
        &self,
        parent: &Traceparent,
        summary: &NodeSummary<'_>,
        start: Instant,
        end: Instant,
    ) {
        let Some(exporter) = &self.exporter else {
            return;
        };
        let context = SpanContext::new(
            TraceId::from_bytes(parent.trace_id),
            self.new_span_id(),
            TraceFlags::SAMPLED,
            false,
            TraceState::NONE,
        );
        let span = Span {
            context,
            parent: Some(SpanId::from_bytes(parent.parent_id)),
            is_parent_remote: true,
            kind: SpanKind::Server,
            name: summary.request,
        };
        let mut data = self.data(span, start, end);
        data.name = format!("node {}", summary.request).into();
        data.attributes = summary.attributes();
        if summary.is_failed {
            data.status = Status::error("");
        }
        exporter.send(data);
    }
}
