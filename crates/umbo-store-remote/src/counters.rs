//! What is counted of the way to the nodes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the store was made, and what is in flight now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemoteStats {
    /// Requests sent, retries and hedges included.
    pub requests: u64,
    /// Messages that they were sent in.
    pub frames: u64,
    /// Messages with answers that came.
    pub answer_frames: u64,
    /// Requests that were sent again after their connection was lost, or to another node.
    pub retries: u64,
    /// Reads that were sent a second time because they were slow.
    pub hedges: u64,
    /// Of those, how many were answered by the second.
    pub hedges_won: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Connections that could not be made, or were refused by the node.
    pub connections_refused: u64,
    /// Connections that were lost or given up.
    pub connections_lost: u64,
    /// Requests that have been asked and not answered.
    pub in_flight: u64,
}

/// The counters behind [`RemoteStats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) frames: AtomicU64,
    pub(crate) answer_frames: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) hedges: AtomicU64,
    pub(crate) hedges_won: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
    pub(crate) connections_lost: AtomicU64,
}

/// Counts one more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn read(&self, in_flight: u64) -> RemoteStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RemoteStats {
            requests: read(&self.requests),
            frames: read(&self.frames),
            answer_frames: read(&self.answer_frames),
            retries: read(&self.retries),
            hedges: read(&self.hedges),
            hedges_won: read(&self.hedges_won),
            connections: read(&self.connections),
            connections_refused: read(&self.connections_refused),
            connections_lost: read(&self.connections_lost),
            in_flight,
        }
    }
}
