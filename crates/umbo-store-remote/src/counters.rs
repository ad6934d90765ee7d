//! Counters of the connections to the nodes.

use std::sync::atomic::{AtomicU64, Ordering};

use umbo_store::RemoteStats;

/// The counters behind [`RemoteStats`].
#[derive(Debug, Default)]
pub(crate) struct HopCounters {
    pub(crate) requests: AtomicU64,
    pub(crate) frames: AtomicU64,
    pub(crate) answer_frames: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
    pub(crate) connections_lost: AtomicU64,
}

/// Counts one more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl HopCounters {
    pub(crate) fn read(&self, in_flight: u64) -> RemoteStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RemoteStats {
            requests: read(&self.requests),
            frames: read(&self.frames),
            answer_frames: read(&self.answer_frames),
            retries: read(&self.retries),
            connections: read(&self.connections),
            connections_refused: read(&self.connections_refused),
            connections_lost: read(&self.connections_lost),
            in_flight,
        }
    }
}
