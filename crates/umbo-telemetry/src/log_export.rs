//! Export of the log over OTLP (gRPC): a bounded queue, one thread, and quiet failure.
//!
//! Owns the queue and its bounds. If a collector is down, its lines are lost and standard error says so once a minute;
//! lines that find the queue full are lost without a word. Standard error has all of them.

use std::time::{Duration, Instant};

use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_otlp::{LogExporter as OtlpExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{
    BatchConfigBuilder, BatchLogProcessor, LogBatch, LogExporter, SdkLogger, SdkLoggerProvider,
};

use crate::otlp::{Complaints, EXPORT_TIMEOUT, ExporterError, OtlpResource};

/// Most lines in the queue, some 4 MiB; more are dropped.
const QUEUE_LINES_MAX: usize = 8_192;
/// Most lines in one message.
const BATCH_LINES_MAX: usize = 512;
/// Longest wait of a line for its batch to fill.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// Timeout for the export of the last lines, as of the last spans.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);

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
            .with_max_queue_size(QUEUE_LINES_MAX)
            .with_max_export_batch_size(BATCH_LINES_MAX)
            .with_scheduled_delay(BATCH_DELAY)
            .build();
        let quiet = Quiet {
            inner: otlp,
            complaints: Complaints::default(),
        };
        let processor = BatchLogProcessor::builder(quiet)
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

/// Exports the last lines, for two seconds at most. Blocks.
impl Drop for LogExport {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown_with_timeout(LAST_TIMEOUT) {
            tracing::warn!(%error, "log lines that waited for their export were dropped");
        }
    }
}

/// An exporter whose failures are logged at most once a minute.
#[derive(Debug)]
struct Quiet<E> {
    inner: E,
    complaints: Complaints,
}

impl<E: LogExporter> LogExporter for Quiet<E> {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        let lines = batch.iter().count() as u64;
        if let Err(error) = self.inner.export(batch).await
            && let Some(lost) = self.complaints.add(lines, Instant::now())
        {
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
