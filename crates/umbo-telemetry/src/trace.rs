//! Spans of the phases of a request, made only for requests that are sampled, slow or failed.
//!
//! Owns the decision to sample, the notes of a sampled request and their export over OTLP. A request that is
//! not sampled costs a comparison and no allocation: there is no live span. The export runs on a thread of
//! its own behind a bounded queue; spans beyond its bound are dropped, and nothing here ever waits, fails a
//! request or floods the log.

mod export;
mod node;
mod phase;
mod summary;
mod traceparent;

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SpanData, SpanEvents, SpanLinks};
use umbo_types::Clock;

use self::export::Exporter;
use crate::otlp::{ExporterError, OtlpResource};

pub use self::node::NodeSummary;
pub use self::phase::Phase;
pub use self::summary::Summary;
pub use self::traceparent::Traceparent;

/// Most marks of one request; later ones are dropped.
const MARKS_MAX: usize = 32;

/// Settings of tracing.
#[derive(Debug, Clone, Default)]
pub struct TraceSettings {
    /// Address of an OTLP collector (gRPC), like `http://127.0.0.1:4317`; without one nothing is traced.
    pub otlp_endpoint: Option<String>,
    /// Share of the requests without a `traceparent` that are sampled, 0 to 1.
    pub sample_ratio: f64,
    /// A request that took at least this long gets a span even if it was not sampled.
    pub slow: Duration,
    /// The process as the collector sees it.
    pub resource: OtlpResource,
    /// Seed of the sampling decision.
    pub seed: u64,
}

/// Decides which requests are traced, and exports their spans.
#[derive(Debug)]
pub struct Tracer {
    exporter: Option<Exporter>,
    ids: RandomIdGenerator,
    clock: Arc<dyn Clock>,
    /// A random number below this samples; 2^64 times the ratio.
    threshold: u128,
    slow: Duration,
    seed: u64,
}

/// Notes of one sampled request. Dropping it without [`Tracer::finish`] discards the request.
#[derive(Debug)]
pub struct Trace(Box<Notes>);

#[derive(Debug)]
struct Notes {
    context: SpanContext,
    parent: Option<SpanId>,
    marks: Vec<(Phase, Instant)>,
}

impl Trace {
    /// Marks the begin of a phase, which ends the one before.
    pub fn phase(&mut self, phase: Phase, now: Instant) {
        if self.0.marks.len() < MARKS_MAX {
            self.0.marks.push((phase, now));
        }
    }

    /// Returns the trace context for calls that are made for this request.
    pub fn traceparent(&self) -> Traceparent {
        Traceparent {
            trace_id: self.0.context.trace_id().to_bytes(),
            parent_id: self.0.context.span_id().to_bytes(),
            is_sampled: true,
        }
    }
}

impl Tracer {
    /// Makes a tracer that traces nothing.
    pub fn disabled(clock: Arc<dyn Clock>) -> Self {
        Self {
            exporter: None,
            ids: RandomIdGenerator::default(),
            clock,
            threshold: 0,
            slow: Duration::MAX,
            seed: 0,
        }
    }

    /// Makes a tracer. With an endpoint it must be called within a tokio runtime, and it starts
    /// one thread; the collector need not answer yet.
    pub fn from_settings(
        settings: &TraceSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ExporterError> {
        let Some(endpoint) = &settings.otlp_endpoint else {
            return Ok(Self::disabled(clock));
        };
        Ok(Self {
            exporter: Some(Exporter::connect(endpoint, &settings.resource)?),
            ids: RandomIdGenerator::default(),
            clock,
            threshold: threshold(settings.sample_ratio),
            slow: settings.slow,
            seed: settings.seed,
        })
    }

    /// Decides whether a request is sampled, and begins its notes if so; its decoding began at `now`.
    ///
    /// A valid `traceparent` decides with its sampled flag; without one the ratio decides. An invalid one
    /// counts as absent, as W3C Trace Context requires.
    #[inline]
    pub fn begin(&self, traceparent: Option<&[u8]>, now: Instant) -> Option<Trace> {
        self.exporter.as_ref()?;
        let incoming = traceparent.and_then(Traceparent::parse);
        let is_sampled = match &incoming {
            Some(incoming) => incoming.is_sampled,
            None => self.threshold > 0 && u128::from(random(self.seed)) < self.threshold,
        };
        is_sampled.then(|| {
            let mut trace = self.notes(incoming.as_ref());
            trace.phase(Phase::Decode, now);
            trace
        })
    }

    /// Exports the span of a sampled request, with a child for each phase.
    pub fn finish(&self, trace: Trace, summary: &Summary<'_>, start: Instant, end: Instant) {
        let Some(exporter) = &self.exporter else {
            return;
        };
        let Notes {
            context,
            parent,
            marks,
        } = *trace.0;
        let ends = marks.iter().skip(1).map(|&(_, at)| at).chain([end]);
        for (&(phase, began), ended) in marks.iter().zip(ends) {
            let child = Span {
                context: self.child_of(&context),
                parent: Some(context.span_id()),
                is_parent_remote: false,
                kind: SpanKind::Internal,
                name: phase.as_str(),
            };
            exporter.send(self.data(child, began, ended));
        }
        let root = Span {
            context,
            parent,
            is_parent_remote: parent.is_some(),
            kind: SpanKind::Server,
            name: summary.operation.as_str(),
        };
        let mut data = self.data(root, start, end);
        data.attributes = summary.attributes();
        data.status = status_of(summary.status);
        exporter.send(data);
    }

    /// Returns whether a request that was not sampled gets a span after all. [`Self::late`] checks it too; a
    /// caller that checks first need not prepare the content of the span.
    #[inline]
    pub fn is_late(&self, status: u16, took: Duration) -> bool {
        self.exporter.is_some() && (took >= self.slow || status >= 500)
    }

    /// Exports one span without children for a request that was not sampled, if it was slow or
    /// failed (status 500 and up).
    #[inline]
    pub fn late(
        &self,
        traceparent: Option<&[u8]>,
        summary: &Summary<'_>,
        start: Instant,
        end: Instant,
    ) {
        if self.is_late(summary.status, end.saturating_duration_since(start)) {
            let incoming = traceparent.and_then(Traceparent::parse);
            self.finish(self.notes(incoming.as_ref()), summary, start, end);
        }
    }

    /// Exports queued spans, for at most `timeout`. Blocks; later spans are dropped.
    pub fn shutdown(&self, timeout: Duration) {
        if let Some(exporter) = &self.exporter {
            exporter.shutdown(timeout);
        }
    }

    fn notes(&self, incoming: Option<&Traceparent>) -> Trace {
        let trace_id = match incoming {
            Some(incoming) => TraceId::from_bytes(incoming.trace_id),
            None => self.ids.new_trace_id(),
        };
        let context = SpanContext::new(
            trace_id,
            self.ids.new_span_id(),
            TraceFlags::SAMPLED,
            false,
            TraceState::NONE,
        );
        Trace(Box::new(Notes {
            context,
            parent: incoming.map(|incoming| SpanId::from_bytes(incoming.parent_id)),
            marks: Vec::new(),
        }))
    }

    fn new_span_id(&self) -> SpanId {
        self.ids.new_span_id()
    }

    fn child_of(&self, parent: &SpanContext) -> SpanContext {
        SpanContext::new(
            parent.trace_id(),
            self.ids.new_span_id(),
            TraceFlags::SAMPLED,
            false,
            TraceState::NONE,
        )
    }

    fn data(&self, span: Span, start: Instant, end: Instant) -> SpanData {
        // The wall clock is read now and the distance to now is monotonic, so that a change of the clock
        // cannot give a span a negative length.
        let (wall, now) = (self.clock.wall(), self.clock.monotonic());
        let wall = std::time::UNIX_EPOCH + Duration::from_micros(wall.0);
        let at = |instant: Instant| {
            let ago = now.saturating_duration_since(instant);
            wall.checked_sub(ago).unwrap_or(std::time::UNIX_EPOCH)
        };
        SpanData {
            span_context: span.context,
            parent_span_id: span.parent.unwrap_or(SpanId::INVALID),
            parent_span_is_remote: span.is_parent_remote,
            span_kind: span.kind,
            name: span.name.into(),
            start_time: at(start),
            end_time: at(end),
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: export::scope(),
        }
    }
}

struct Span {
    context: SpanContext,
    parent: Option<SpanId>,
    is_parent_remote: bool,
    kind: SpanKind,
    name: &'static str,
}

/// Per the conventions for HTTP servers, only a failure of the server is an error of its span.
fn status_of(status: u16) -> Status {
    if status >= 500 {
        Status::error("")
    } else {
        Status::Unset
    }
}

/// Returns 2^64 times the ratio; a ratio outside 0 to 1 is clamped.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the product lies between 0 and 2^64"
)]
fn threshold(ratio: f64) -> u128 {
    (ratio.clamp(0.0, 1.0) * 2_f64.powi(64)) as u128
}

thread_local! {
    static STATE: Cell<u64> = const { Cell::new(0) };
}

/// Returns the next number of the calling thread: `SplitMix64` (Steele, Lea, Flood 2014).
fn random(seed: u64) -> u64 {
    STATE.with(|state| {
        // The address of the cell differs between threads, so their sequences differ.
        let start = match state.get() {
            0 => seed ^ (std::ptr::from_ref(state).addr() as u64).rotate_left(32),
            running => running,
        };
        let next = start.wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(next);
        let mixed = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

#[cfg(test)]
mod tests;
