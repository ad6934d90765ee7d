//! Hot-path counters of a process, and their text for Prometheus.
//!
//! Owns what is counted per request: no label string, no allocation and no lock when recording.
//! Each live thread updates a slot of its own (`thread_slot`), and a scrape adds the slots up.
//! Counters have no series per caller, namespace or key: label values come from closed lists (see
//! [`metric_names`](crate::metric_names)); a few callers, policies and hot keys are handed in by
//! whoever scrapes, and bounded there. A scrape is not one instant: counters that move
//! while it reads may differ by what moved.

mod buckets;
mod counters;
mod hotkey;
mod node;
mod overload;
mod process;
mod quota;
mod remote;
mod render;
mod text;
mod thread_slot;

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use umbo_types::{Operation, RequestUnits};

use self::counters::{Access, Slot};
use crate::metric_names::status_index;

pub use self::hotkey::{HotKeyGauges, HotKeySeries};
pub use self::node::{NodeMetrics, NodeScrape, NodeTally};
pub use self::overload::{ByTier, ClassGauges, GateGauges, OverloadGauges};
pub use self::process::ProcessSample;
pub use self::quota::{CallerCharge, Estimates, PolicyGauges, QuotaGauges};
pub use self::remote::{RemoteGauges, RemoteNodeGauges};
pub use self::render::{CONTENT_TYPE, Scrape, ShardGauges};

/// Counters of one process, or of one of several servers in a process.
#[derive(Debug)]
pub struct RequestMetrics {
    /// The last slot is shared by all threads that have none of their own.
    slots: Box<[Slot]>,
    codes: Box<[Code]>,
    connections_accepted: AtomicU64,
    connections_closed: AtomicU64,
    tls_handshakes_failed: AtomicU64,
}

/// An error code, as its counter is labelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// Stable name.
    pub name: &'static str,
    /// `refused`, `rejected`, `shed` or `failed`.
    pub kind: &'static str,
}

impl RequestMetrics {
    /// Makes counters for `threads` threads that record at full speed; more may record, slower.
    ///
    /// `codes` are all error codes, in the order of the index that
    /// [`record_refused`](Self::record_refused) takes.
    pub fn new(codes: impl Into<Box<[Code]>>, threads: usize) -> Self {
        let codes = codes.into();
        Self {
            slots: (0..=threads).map(|_| Slot::new(codes.len())).collect(),
            codes,
            connections_accepted: AtomicU64::new(0),
            connections_closed: AtomicU64::new(0),
            tls_handshakes_failed: AtomicU64::new(0),
        }
    }

    /// Counts one request that was answered.
    ///
    /// `elapsed` runs from the request's head to the end of the answer; bytes are those of bodies.
    #[inline]
    pub fn record(
        &self,
        operation: Operation,
        status: u16,
        elapsed: Duration,
        request_bytes: u64,
        response_bytes: u64,
    ) {
        let (slot, access) = self.slot();
        let counters = slot.operation(operation);
        counters.requests[status_index(status)].add(access, 1);
        counters.request_bytes.add(access, request_bytes);
        counters.response_bytes.add(access, response_bytes);
        counters.duration.observe(access, buckets::nanos(elapsed));
    }

    /// Records the service time of one store call.
    #[inline]
    pub fn record_store(&self, operation: Operation, elapsed: Duration) {
        let (slot, access) = self.slot();
        let histogram = &slot.operation(operation).store_duration;
        histogram.observe(access, buckets::nanos(elapsed));
    }

    /// Counts one request that the quotas admitted, and what it was charged in the end.
    #[inline]
    pub fn record_admitted(&self, operation: Operation, charged: RequestUnits) {
        let (slot, access) = self.slot();
        let counters = slot.operation(operation);
        counters.admitted.add(access, 1);
        counters.charged_micros.add(access, charged.as_micros());
    }

    /// Counts one request that a quota rejected.
    #[inline]
    pub fn record_rejected(&self, operation: Operation) {
        let (slot, access) = self.slot();
        slot.operation(operation).rejected.add(access, 1);
    }

    /// Counts one request that its client marked as sent again.
    #[inline]
    pub fn record_repeated(&self, operation: Operation) {
        let (slot, access) = self.slot();
        slot.operation(operation).repeated.add(access, 1);
    }

    /// Counts one answer that carries a problem; `code` is its index in the list of codes.
    ///
    /// An index past the list is counted nowhere.
    #[inline]
    pub fn record_refused(&self, code: usize) {
        let (slot, access) = self.slot();
        if let Some(counter) = slot.refused.get(code) {
            counter.add(access, 1);
        }
    }

    /// Counts one streamed answer that ended before its end line.
    pub fn record_stream_aborted(&self) {
        let (slot, access) = self.slot();
        slot.streams_aborted.add(access, 1);
    }

    /// Counts one connection that ended in its TLS handshake.
    pub fn record_tls_handshake_failed(&self) {
        self.tls_handshakes_failed.fetch_add(1, Relaxed);
    }

    /// Counts one connection accepted.
    pub fn record_connection_opened(&self) {
        self.connections_accepted.fetch_add(1, Relaxed);
    }

    /// Counts one connection ended.
    pub fn record_connection_closed(&self) {
        self.connections_closed.fetch_add(1, Relaxed);
    }

    /// Returns the connections open now.
    pub fn connections_open(&self) -> u64 {
        // Closed first, so that a connection that comes and goes meanwhile is not negative.
        let closed = self.connections_closed.load(Relaxed);
        let accepted = self.connections_accepted.load(Relaxed);
        accepted.saturating_sub(closed)
    }

    #[inline]
    fn slot(&self) -> (&Slot, Access) {
        let shared = self.slots.len() - 1;
        match thread_slot::current() {
            Some(number) if number < shared => (&self.slots[number], Access::Owned),
            _ => (&self.slots[shared], Access::Shared),
        }
    }
}

/// One request in flight; counts down on drop, so that no exit can forget it.
///
/// `M` is a reference or an `Arc`, as long as the answer lives.
#[derive(Debug)]
#[must_use = "the request counts as in flight only while this lives"]
pub struct InFlight<M: Deref<Target = RequestMetrics>> {
    metrics: M,
    operation: Operation,
}

impl<M: Deref<Target = RequestMetrics>> InFlight<M> {
    /// Counts a request up.
    #[inline]
    pub fn begin(metrics: M, operation: Operation) -> Self {
        let (slot, access) = metrics.slot();
        slot.operation(operation).begun.add(access, 1);
        Self { metrics, operation }
    }
}

impl<M: Deref<Target = RequestMetrics>> Drop for InFlight<M> {
    fn drop(&mut self) {
        // May run on another thread than `begin`: hence two counters that only grow.
        let (slot, access) = self.metrics.slot();
        slot.operation(self.operation).ended.add(access, 1);
    }
}

#[cfg(test)]
mod tests;
