//! Hot-path counters of a process, their text for Prometheus and their messages for OTLP.
//!
//! Owns the counts of requests: recording needs no label string, no allocation and no lock. Each live thread
//! updates one slot alone (`thread_slot`), and a scrape adds the slots up. Counters have no series per
//! caller, namespace or key: label values come from closed lists (see [`metric_names`](crate::metric_names)). The owner
//! of a report shows it to the exporters with [`Families`], and bounds its series. A scrape is not atomic: counters that
//! change while it reads may be inconsistent by that change.

mod buckets;
mod counters;
mod namespaces;
mod node;
mod otlp;
mod outcome;
mod process;
mod render;
mod sampler;
mod shard_latency;
mod slow;
mod statuses;
mod store;
mod text;
mod thread_slot;
mod visit;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use umbo_types::{Criticality, Operation, RequestUnits};

use self::counters::{Access, CounterSlot, NO_TIER};
use self::namespaces::NamespaceCounts;
use self::statuses::status_index;

pub use self::namespaces::{NAMESPACES_MAX, NamespaceUse};
pub use self::node::{NodeMetrics, NodeTally};
pub(crate) use self::otlp::{Starts, attribute, unix_nanos};
pub use self::outcome::RequestOutcome;
pub use self::process::ProcessSample;
pub use self::sampler::{HistorySampler, HistorySamples, StepSamples};
pub use self::shard_latency::{CallLatency, ShardLatencies};
pub use self::slow::SlowBounds;
pub use self::store::{visit_disk, visit_nodes, visit_shards};
pub use self::text::{CONTENT_TYPE, MetricsText};
pub use self::visit::{DurationHistogram, Families, MetricValue, MetricVisitor};

/// Counters of one process, or of one of several servers in a process.
#[derive(Debug)]
pub struct RequestMetrics {
    /// The last slot is shared by all threads that own none.
    slots: Box<[CounterSlot]>,
    codes: Box<[Code]>,
    namespaces: NamespaceCounts,
    connections_accepted: AtomicU64,
    connections_closed: AtomicU64,
    connections_evicted: AtomicU64,
    connections_turned_away: AtomicU64,
    tls_handshakes_failed: AtomicU64,
    /// Applied, skipped and rejected.
    load_rows: [AtomicU64; 3],
    load_bytes: AtomicU64,
    /// Live and failed.
    loads_ended: [AtomicU64; 2],
}

/// An error code, as the label of its counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// Stable name.
    pub name: &'static str,
    /// `refused`, `rejected`, `shed` or `failed`.
    pub kind: &'static str,
}

impl RequestMetrics {
    /// Makes counters for `threads` threads that record at full speed; more threads may record, more slowly.
    ///
    /// `codes` are all error codes, in the order of the index that
    /// [`record_refused`](Self::record_refused) takes.
    pub fn new(codes: impl Into<Box<[Code]>>, threads: usize) -> Self {
        let codes = codes.into();
        Self {
            slots: (0..=threads)
                .map(|_| CounterSlot::new(codes.len()))
                .collect(),
            codes,
            namespaces: NamespaceCounts::default(),
            connections_accepted: AtomicU64::new(0),
            connections_closed: AtomicU64::new(0),
            connections_evicted: AtomicU64::new(0),
            connections_turned_away: AtomicU64::new(0),
            tls_handshakes_failed: AtomicU64::new(0),
            load_rows: Default::default(),
            load_bytes: AtomicU64::new(0),
            loads_ended: Default::default(),
        }
    }

    /// Counts one request as in flight.
    #[inline]
    pub fn begin_request(&self, operation: Operation) {
        let (slot, access) = self.slot();
        slot.operation(operation).begun.add(access, 1);
    }

    /// Counts one request in flight less. May run on another thread than [`Self::begin_request`], hence two
    /// counters that only increase.
    #[inline]
    pub fn end_request(&self, operation: Operation) {
        let (slot, access) = self.slot();
        slot.operation(operation).ended.add(access, 1);
    }

    /// Counts one request that was answered.
    ///
    /// `elapsed` runs from the request's head to the end of the answer; bytes count bodies only.
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

    /// Counts the outcome of one request; `tier` is `None` if it was not known yet.
    #[inline]
    pub fn record_outcome(
        &self,
        operation: Operation,
        tier: Option<Criticality>,
        outcome: RequestOutcome,
    ) {
        let (slot, access) = self.slot();
        let tier = tier.map_or(NO_TIER, |tier| tier as usize);
        slot.operation(operation).outcomes[tier][outcome as usize].add(access, 1);
    }

    /// Returns the place of a namespace among those that requests are counted for, the same for each call. Takes a lock.
    pub fn namespace_place(&self, namespace: &str) -> usize {
        self.namespaces.place(namespace)
    }

    /// Counts one request that was not served, at the place of its namespace.
    pub fn record_namespace_error(&self, place: usize, outcome: RequestOutcome) {
        self.namespaces.record(place, outcome);
    }

    /// Shows the use of namespaces, by name, and their requests that were not served. The first
    /// [`NAMESPACES_MAX`] names have series until the process ends, at figures that never fall.
    pub fn visit_namespaces(&self, families: &mut Families<'_>, used: &[(Arc<str>, NamespaceUse)]) {
        self.namespaces.visit(families, used);
    }

    /// Records the service time of one store call.
    #[inline]
    pub fn record_store(&self, operation: Operation, elapsed: Duration) {
        let (slot, access) = self.slot();
        let histogram = &slot.operation(operation).store_duration;
        histogram.observe(access, buckets::nanos(elapsed));
    }

    /// Counts one request that the quotas admitted, and its final cost.
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

    /// Counts one request that its client marked as a retry.
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

    /// Counts what became of rows of loads: applied, skipped and rejected ones, and the bytes of those applied.
    pub fn record_load_rows(&self, rows: [u64; 3], bytes: u64) {
        for (counter, rows) in self.load_rows.iter().zip(rows) {
            counter.fetch_add(rows, Relaxed);
        }
        self.load_bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts one load whose rows this process has all applied, or that failed.
    pub fn record_load_ended(&self, has_failed: bool) {
        self.loads_ended[usize::from(has_failed)].fetch_add(1, Relaxed);
    }

    /// Counts one connection whose TLS handshake failed.
    pub fn record_tls_handshake_failed(&self) {
        self.tls_handshakes_failed.fetch_add(1, Relaxed);
    }

    /// Counts idle connections that were closed to make room.
    pub fn record_connections_evicted(&self, count: usize) {
        self.connections_evicted.fetch_add(count as u64, Relaxed);
    }

    /// Counts one connection that was refused because of its address.
    pub fn record_connection_turned_away(&self) {
        self.connections_turned_away.fetch_add(1, Relaxed);
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
        // Closed first, so that a connection that opens and closes meanwhile does not make the number
        // negative.
        let closed = self.connections_closed.load(Relaxed);
        let accepted = self.connections_accepted.load(Relaxed);
        accepted.saturating_sub(closed)
    }

    #[inline]
    fn slot(&self) -> (&CounterSlot, Access) {
        let shared = self.slots.len() - 1;
        match thread_slot::current() {
            Some(number) if number < shared => (&self.slots[number], Access::Owned),
            _ => (&self.slots[shared], Access::Shared),
        }
    }
}

#[cfg(test)]
mod tests;
