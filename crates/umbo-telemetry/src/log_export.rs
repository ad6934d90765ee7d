//! Export of the log over OTLP (gRPC): a bounded queue, one thread, and quiet failure.
//!
//! If a collector is down, its lines are lost and standard error says so once a minute;
//! lines that find the queue full are lost without a word. Standard error has all of them.

use std::time::Duration;

use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_otlp::{LogExporter as OtlpExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{
    BatchConfigBuilder, BatchLogProcessor, LogBatch, LogExporter, SdkLogger, SdkLoggerProvider,
};

use crate::otlp::{
    BATCH_DELAY, BATCH_MAX, EXPORT_TIMEOUT, ExporterError, LAST_TIMEOUT, OtlpResource, QUEUE_MAX,
    Quiet,
};

/// Makes log records of events.
pub(crate) type Bridge = OpenTelemetryTracingBridge<SdkLoggerProvider, SdkLogger>;

/// Queue and thread of the export of the log. Whichever way the process ends, its last lines leave when this is dropped.
#[derive(Debug)]
pub struct LogExport(SdkLoggerProvider);

impl LogExport {
    /// Makes the export of a process. Must be called within a tokio runtime; the collector need not answer yet.
    pub fn connect(endpoint: &str, resource: &OtlpResource) -> Result<Self, ExporterError> {
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
        let processor = BatchLogProcessor::builder(Quiet::new(otlp))
            .with_batch_config(config)
            .build();
        let provider = SdkLoggerProvider::builder()
            .with_resource(resource.sdk())
            .with_log_processor(processor)
            .build();
        Ok(Self(provider))
    }

    pub(crate) fn bridge(&self) -> Bridge {
        Bridge::new(&self.0)
    }
}

/// Exports the last lines, within the timeout of a last export. Blocks.
impl Drop for LogExport {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown_with_timeout(LAST_TIMEOUT) {
            tracing::warn!(%error, "log lines that waited for their export were dropped");
        }
    }
}

impl<E: LogExporter> LogExporter for Quiet<E> {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        let lines = batch.iter().count() as u64;
        let exported = self.inner.export(batch).await;
        if let Some((error, lost)) = self.failure(exported, lines) {
            tracing::warn!(%error, lines_lost = lost, "the collector takes no log lines");
        }
        Ok(())
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}
