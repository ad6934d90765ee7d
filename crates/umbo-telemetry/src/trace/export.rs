//! Export of spans over OTLP (gRPC): a bounded queue, one thread, and quiet failure.
//!
//! Owns the batch processor. If a collector is down, spans are lost and one line a minute is
//! logged; there is no other effect.

use std::sync::OnceLock;
use std::time::Duration;

use opentelemetry::InstrumentationScope;
use opentelemetry_otlp::{SpanExporter as OtlpExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanExporter, SpanProcessor,
};

use crate::otlp::{
    BATCH_DELAY, BATCH_MAX, EXPORT_TIMEOUT, ExporterError, OtlpResource, QUEUE_MAX, Quiet,
};

/// Queue and thread of the export.
#[derive(Debug)]
pub(super) struct Exporter {
    processor: BatchSpanProcessor,
}

impl Exporter {
    pub(super) fn connect(endpoint: &str, resource: &OtlpResource) -> Result<Self, ExporterError> {
        let otlp = OtlpExporter::builder()
            .with_tonic()
            .with_endpoint(endpoint)
            .with_timeout(EXPORT_TIMEOUT)
            .build()
            .map_err(|source| ExporterError::new(endpoint, source))?;
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE_MAX)
            .with_max_export_batch_size(BATCH_MAX)
            .with_scheduled_delay(BATCH_DELAY)
            .build();
        let mut processor = BatchSpanProcessor::builder(Quiet::new(otlp))
            .with_batch_config(config)
            .build();
        processor.set_resource(&resource.sdk());
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

impl<E: SpanExporter> SpanExporter for Quiet<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len() as u64;
        let exported = self.inner.export(batch).await;
        if let Some((error, lost)) = self.failure(exported, spans) {
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
