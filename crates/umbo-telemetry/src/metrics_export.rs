//! Export of metrics over OTLP (gRPC): the metrics of the moment, and quiet failure.
//!
//! Owns the connection to the collector and what an outage costs: an export that fails is not kept, because counters
//! are cumulative and the next export says the same and more. The first failure of an outage is logged, and its end.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    Metric as OtlpMetric, ResourceMetrics, ScopeMetrics,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use tonic::transport::{Channel, Endpoint};
use umbo_types::Timestamp;

use crate::metrics::{MetricVisitor, Starts, attribute, unix_nanos};
use crate::otlp::{EXPORT_TIMEOUT, OtlpResource};

/// Why metrics cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum MetricsExportError {
    /// The endpoint is not a valid address.
    #[error("metrics cannot be sent to '{endpoint}' (expected like http://127.0.0.1:4317)")]
    Endpoint {
        /// The address as configured.
        endpoint: String,
        /// The error.
        source: tonic::transport::Error,
    },
}

/// Sends the metrics of a process to a collector.
#[derive(Debug)]
pub struct MetricsExporter {
    client: MetricsServiceClient<Channel>,
    resource: Resource,
    starts: Starts,
    /// Exports that failed since the last success.
    failed: u64,
}

/// The metrics of one export, cut into messages.
#[derive(Debug, Default)]
pub struct GatheredMetrics(Vec<Vec<OtlpMetric>>);

impl MetricsExporter {
    /// Makes the exporter of a process whose counters begin at `now`. Must be called within a tokio runtime; the
    /// collector need not answer yet.
    pub fn connect(
        endpoint: &str,
        resource: &OtlpResource,
        now: Timestamp,
    ) -> Result<Self, MetricsExportError> {
        let address = Endpoint::from_shared(endpoint.to_owned()).map_err(|source| {
            MetricsExportError::Endpoint {
                endpoint: endpoint.to_owned(),
                source,
            }
        })?;
        let channel = address
            .timeout(EXPORT_TIMEOUT)
            .connect_timeout(EXPORT_TIMEOUT)
            .connect_lazy();
        let attributes = resource.attributes().into_iter();
        Ok(Self {
            client: MetricsServiceClient::new(channel),
            resource: Resource {
                attributes: attributes
                    .map(|(name, value)| attribute(name, Value::StringValue(value)))
                    .collect(),
                ..Resource::default()
            },
            starts: Starts::new(unix_nanos(now)),
            failed: 0,
        })
    }

    /// Makes the messages of one export of what `visit` shows. Takes time in proportion to the series.
    pub fn gather(
        &mut self,
        now: Timestamp,
        visit: impl FnOnce(&mut dyn MetricVisitor),
    ) -> GatheredMetrics {
        GatheredMetrics(self.starts.export(unix_nanos(now), visit))
    }

    /// Sends the metrics; gives up at the first message that the collector does not take within `timeout`, or five
    /// seconds.
    pub async fn send(&mut self, metrics: GatheredMetrics, timeout: Duration) {
        for metrics in metrics.0 {
            let mut request = tonic::Request::new(self.request(metrics));
            request.set_timeout(timeout.min(EXPORT_TIMEOUT));
            if let Err(error) = self.client.export(request).await {
                if self.failed == 0 {
                    tracing::warn!(%error, "the collector takes no metrics; trying again at each interval");
                }
                self.failed += 1;
                return;
            }
        }
        if self.failed > 0 {
            tracing::info!(
                exports_failed = self.failed,
                "the collector takes metrics again"
            );
            self.failed = 0;
        }
    }

    fn request(&self, metrics: Vec<OtlpMetric>) -> ExportMetricsServiceRequest {
        let scope = InstrumentationScope {
            name: "umbo".to_owned(),
            ..InstrumentationScope::default()
        };
        ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.resource.clone()),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(scope),
                    metrics,
                    schema_url: String::new(),
                }],
                schema_url: String::new(),
            }],
        }
    }
}
