//! Export of spans: the tracer of a process, from its settings, and its shutdown.

use std::sync::Arc;
use std::time::Duration;

use umbo_telemetry::trace::{TraceSettings, Tracer};
use umbo_types::Clock;

use crate::cli_error::CliError;
use crate::settings::Settings;

/// Timeout for the export of the last spans.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);

/// Starts tracing as the settings say.
pub(crate) fn begin(settings: &Settings, clock: &Arc<dyn Clock>) -> Result<Arc<Tracer>, CliError> {
    let settings = TraceSettings {
        otlp_endpoint: settings.trace.otlp_endpoint.clone(),
        sample_ratio: settings.trace.sample_ratio,
        slow: settings.trace.slow.0,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        seed: clock.wall().0,
    };
    let tracer = Tracer::from_settings(&settings, Arc::clone(clock));
    tracer.map(Arc::new).map_err(CliError::start)
}

/// Exports the last spans.
pub(crate) async fn end(tracer: Arc<Tracer>) {
    let spans = tokio::task::spawn_blocking(move || tracer.shutdown(LAST_TIMEOUT));
    if spans.await.is_err() {
        tracing::warn!("the last spans did not leave");
    }
}
