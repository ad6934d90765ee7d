//! Counts events of connections at the edge.

use std::io;
use std::sync::Arc;

use umbo_api::ErrorCode;
use umbo_edge::Observer;
use umbo_telemetry::metrics::RequestMetrics;

/// Passes events of connections to the counters and the log.
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

    fn evicted(&self, count: usize) {
        self.metrics.record_connections_evicted(count);
    }

    fn turned_away(&self) {
        self.metrics.record_connection_turned_away();
    }

    fn refused(&self, code: ErrorCode) {
        self.metrics.record_refused(code as usize);
    }

    fn stalled(&self) {
        self.metrics.record_stream_aborted();
        tracing::debug!("closed a connection whose client reads nothing");
    }

    fn handshake_failed(&self, reason: &str) {
        self.metrics.record_tls_handshake_failed();
        tracing::debug!(reason, "a TLS handshake failed");
    }

    fn accept_failed(&self, error: &io::Error) {
        tracing::warn!(%error, "no connection can be accepted; trying again");
    }
}
