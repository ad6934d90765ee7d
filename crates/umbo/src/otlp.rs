//! Export over OTLP: the tracer, the log and the metrics of a process, from its settings, and their shutdown.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use umbo_telemetry::logging::{LogExport, LogHandle};
use umbo_telemetry::metrics::MetricVisitor;
use umbo_telemetry::metrics_export::MetricsExporter;
use umbo_telemetry::otlp::{LAST_TIMEOUT, OtlpResource};
use umbo_telemetry::trace::{TraceSettings, Tracer};
use umbo_types::Clock;

use crate::cli_error::CliError;
use crate::settings::Settings;

/// The spans, lines and metrics that a process exports over OTLP.
pub(crate) struct Otlp {
    /// The spans.
    pub(crate) tracer: Arc<Tracer>,
    /// The log, if the settings say so.
    pub(crate) log: Option<LogExport>,
    /// The metrics, if the settings name a collector and an interval.
    pub(crate) metrics: Option<MetricsExport>,
}

impl Otlp {
    /// Begins as the settings say, and exports the log from now on; `node` is the name of the shard node, if the process
    /// is one.
    pub(crate) fn begin(
        settings: &Settings,
        clock: &Arc<dyn Clock>,
        node: Option<String>,
        to_export: &LogHandle,
    ) -> Result<Self, CliError> {
        let resource = OtlpResource::new(env!("CARGO_PKG_VERSION"), node);
        let endpoint = settings.trace.otlp_endpoint.clone();
        let interval = settings.metrics.otlp_interval.0;
        let tracer = TraceSettings {
            otlp_endpoint: endpoint.clone(),
            sample_ratio: settings.trace.sample_ratio,
            slow: settings.trace.slow.0,
            resource: resource.clone(),
            seed: clock.wall().0,
        };
        let tracer = Tracer::from_settings(&tracer, Arc::clone(clock)).map_err(CliError::start)?;
        let log = endpoint.as_deref().filter(|_| settings.log.otlp);
        let log = log.map(|endpoint| LogExport::connect(endpoint, &resource));
        let log = log.transpose().map_err(CliError::start)?;
        to_export.export(log.as_ref());
        let metrics = endpoint.filter(|_| !interval.is_zero()).map(|endpoint| {
            let exporter = MetricsExporter::connect(&endpoint, &resource, clock.wall());
            exporter.map(|exporter| MetricsExport {
                exporter,
                interval,
                clock: Arc::clone(clock),
            })
        });
        Ok(Self {
            tracer: Arc::new(tracer),
            log,
            metrics: metrics.transpose().map_err(CliError::start)?,
        })
    }

    /// Exports the last spans and the last lines of the log.
    pub(crate) async fn end(self) {
        let last = tokio::task::spawn_blocking(move || {
            self.tracer.shutdown(LAST_TIMEOUT);
            drop(self.log);
        });
        if last.await.is_err() {
            tracing::warn!("the last spans and lines did not leave");
        }
    }
}

/// The export of the metrics of a process at a fixed interval.
pub(crate) struct MetricsExport {
    exporter: MetricsExporter,
    interval: Duration,
    clock: Arc<dyn Clock>,
}

impl MetricsExport {
    /// Exports what `visit` shows at each interval, and once more when it is stopped.
    pub(crate) async fn run(
        self,
        visit: impl Fn(&mut dyn MetricVisitor) + Send + Sync + 'static,
        stop: CancellationToken,
    ) {
        let visit = Arc::new(visit);
        let mut exporter = self.exporter;
        loop {
            let wait = sleep(self.interval);
            let is_over = stop.run_until_cancelled(wait).await.is_none();
            let (visit, now) = (Arc::clone(&visit), self.clock.wall());
            // Gathering the metrics visits every one, and must not block requests.
            let gathering = tokio::task::spawn_blocking(move || {
                let metrics = exporter.gather(now, |visitor| visit(visitor));
                (exporter, metrics)
            });
            let metrics = match gathering.await {
                Ok((next, metrics)) => {
                    exporter = next;
                    metrics
                }
                Err(error) => {
                    tracing::error!(%error, "the export of metrics ends here: visiting them failed");
                    return;
                }
            };
            if is_over {
                // The last export may be several messages.
                let last = exporter.send(metrics, LAST_TIMEOUT);
                if tokio::time::timeout(LAST_TIMEOUT, last).await.is_err() {
                    tracing::warn!("the last metrics did not leave");
                }
                return;
            }
            let sent = exporter.send(metrics, self.interval);
            stop.run_until_cancelled(sent).await;
        }
    }
}
