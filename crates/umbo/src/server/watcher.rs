//! Counts what the edge sees of connections.

use std::io;
use std::sync::Arc;

use umbo_api::ErrorCode;
use umbo_dispatcher::edge::Observer;
use umbo_telemetry::metrics::RequestMetrics;

/// Passes what the edge sees on to the counters and the log.
pub(super) struct Watcher {
    metrics: Arc<RequestMetrics>,
}

impl Watcher {
    pub(super) const fn new(metrics: Arc<RequestMetrics>) -> Self {
        Self { metrics }
    }
}

impl Observer for Watcher {
    fn connection_opened(&self) {
        self.metrics.record_connection_opened();
    }

    fn connection_closed(&self) {
        self.metrics.record_connection_closed();
    }

    fn refused(&self, code: ErrorCode) {
        self.metrics.record_refused(code as usize);
    }

    fn stalled(&self) {
        self.metrics.record_stream_aborted();
        tracing::debug!("cut a connection whose client reads nothing");
    }

    fn handshake_failed(&self, reason: &str) {
        self.metrics.record_tls_handshake_failed();
        tracing::debug!(reason, "a TLS handshake failed");
    }

    fn accept_failed(&self, error: &io::Error) {
        tracing::warn!(%error, "no connection can be accepted; trying again");
    }
}
