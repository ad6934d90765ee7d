//! Export of spans over OTLP (gRPC): a bounded queue, one thread, and quiet failure.
//!
//! Owns the batch processor and its bounds. If a collector is down, spans are lost and one line a minute is
//! logged; there is no other effect.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{SpanExporter as OtlpExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanExporter, SpanProcessor,
};

use crate::otlp::{EXPORT_TIMEOUT, OtlpResource};

/// Most spans in the queue; more are dropped.
const QUEUE_SPANS_MAX: usize = 8_192;
/// Most spans in one message.
const BATCH_SPANS_MAX: usize = 512;
/// Longest wait of a span for its batch to fill.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// Shortest interval between two log lines about failing exports.
const COMPLAINT_INTERVAL: Duration = Duration::from_mins(1);

/// Why tracing cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The endpoint is not a valid address.
    #[error("spans cannot be sent to '{endpoint}' (expected like http://127.0.0.1:4317)")]
    Endpoint {
        /// The address as configured.
        endpoint: String,
        /// The error.
        source: opentelemetry_otlp::ExporterBuildError,
    },
}

/// Queue and thread of the export.
#[derive(Debug)]
pub(super) struct Exporter {
    processor: BatchSpanProcessor,
}

impl Exporter {
    pub(super) fn connect(endpoint: &str, resource: &OtlpResource) -> Result<Self, TraceError> {
        let otlp = OtlpExporter::builder()
            .with_tonic()
            .with_endpoint(endpoint)
            .with_timeout(EXPORT_TIMEOUT)
            .build()
            .map_err(|source| TraceError::Endpoint {
                endpoint: endpoint.to_owned(),
                source,
            })?;
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE_SPANS_MAX)
            .with_max_export_batch_size(BATCH_SPANS_MAX)
            .with_scheduled_delay(BATCH_DELAY)
            .build();
        let mut processor = BatchSpanProcessor::builder(Quiet::new(otlp))
            .with_batch_config(config)
            .build();
        let attributes = resource.attributes().into_iter();
        let resource = Resource::builder_empty()
            .with_attributes(attributes.map(|(name, value)| KeyValue::new(name, value)))
            .build();
        processor.set_resource(&resource);
        Ok(Self { processor })
    }

    pub(super) fn send(&self, span: SpanData) {
        self.processor.on_end(span);
    }

    pub(super) fn shutdown(&self, timeout: Duration) {
        if let Err(error) = self.processor.shutdown_with_timeout(timeout) {
            tracing::warn!(%error, "spans that waited for their export were dropped");
        }
    }
}

/// Returns the instrumentation scope of all spans.
pub(super) fn scope() -> InstrumentationScope {
    static SCOPE: OnceLock<InstrumentationScope> = OnceLock::new();
    SCOPE
        .get_or_init(|| InstrumentationScope::builder("umbo").build())
        .clone()
}

/// An exporter whose failures are logged at most once a minute.
#[derive(Debug)]
struct Quiet<E> {
    inner: E,
    complaints: Complaints,
}

impl<E> Quiet<E> {
    fn new(inner: E) -> Self {
        Self {
            inner,
            complaints: Complaints::default(),
        }
    }
}

impl<E: SpanExporter> SpanExporter for Quiet<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len() as u64;
        if let Err(error) = self.inner.export(batch).await
            && let Some(lost) = self.complaints.add(spans, Instant::now())
        {
            tracing::warn!(%error, spans_lost = lost, "the trace collector takes no spans");
        }
        Ok(())
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

/// Adds up losses between two log lines.
#[derive(Debug, Default)]
struct Complaints {
    lost: AtomicU64,
    last: Mutex<Option<Instant>>,
}

impl Complaints {
    /// Counts losses; returns all since the last log line if the next one is due.
    fn add(&self, spans: u64, now: Instant) -> Option<u64> {
        self.lost.fetch_add(spans, Relaxed);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|at| now.duration_since(at) >= COMPLAINT_INTERVAL);
        is_due.then(|| {
            *last = Some(now);
            self.lost.swap(0, Relaxed)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_once_a_minute_with_all_that_was_lost() {
        let (complaints, start) = (Complaints::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(complaints.add(3, at(0)), Some(3));
        assert_eq!(complaints.add(4, at(1)), None);
        assert_eq!(complaints.add(5, at(59)), None);
        assert_eq!(complaints.add(6, at(60)), Some(15));
        assert_eq!(complaints.add(7, at(61)), None);
    }
}
