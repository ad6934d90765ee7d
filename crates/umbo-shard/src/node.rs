//! A node: a store, the map that assigns shards to it, and its admission.
//!
//! Owns no socket. Holds everything that connections share, including the clock of the node: nanoseconds on
//! its monotonic clock since the node was made. Dispatchers estimate it from the stamp of every frame, and
//! express deadlines on it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use umbo_protocol::{NodeStamp, Refusal};
use umbo_routing::{ClusterMap, Succession};
use umbo_store::{DiskSpace, ShardStatus, Store};
use umbo_telemetry::history::History;
use umbo_telemetry::metrics::NodeMetrics;
use umbo_telemetry::trace::Tracer;
use umbo_types::{Clock, Deadline, ShardId};

use crate::admission::NodeAdmission;
use crate::connection_end::ConnectionEnd;
use crate::connections::Connections;
use crate::limits::NodeLimits;
use crate::ownership::{Ownership, OwnershipError};
use crate::refusals::LogLimiter;
use crate::status;

/// The inputs of a node.
#[derive(Debug)]
pub struct NodeParts {
    /// Name of the node in the map.
    pub name: String,
    /// The map in effect.
    pub map: Arc<ClusterMap>,
    /// The store; it has opened the shards whose status it reports.
    pub store: Arc<dyn Store>,
    /// Source of time.
    pub clock: Arc<dyn Clock>,
    /// The bounds.
    pub limits: NodeLimits,
}

/// A node of the storage tier.
#[derive(Debug)]
pub struct Node {
    name: String,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    limits: NodeLimits,
    /// The map that the store has followed.
    followed: ArcSwap<ClusterMap>,
    ownership: ArcSwap<Ownership>,
    admission: Arc<NodeAdmission>,
    connections: Arc<Connections>,
    /// Zero of the node's clock, which deadlines of requests refer to.
    began: Instant,
    is_draining: AtomicBool,
    metrics: NodeMetrics,
    refusals: LogLimiter,
    tracer: OnceLock<Arc<Tracer>>,
    history: Mutex<History>,
}

impl Node {
    /// Makes a node. Fails if the map does not contain it.
    pub fn new(parts: NodeParts) -> Result<Self, OwnershipError> {
        check_named(&parts.map, &parts.name)?;
        let followed = Arc::clone(&parts.map);
        let opened = opened(&*parts.store);
        let ownership = Ownership::new(
            parts.map,
            parts.store.shard_map(),
            &parts.name,
            &followed,
            &opened,
        );
        Ok(Self {
            admission: Arc::new(NodeAdmission::new(&parts.limits)),
            ownership: ArcSwap::from_pointee(ownership),
            name: parts.name,
            store: parts.store,
            limits: parts.limits,
            followed: ArcSwap::new(followed),
            connections: Arc::default(),
            began: parts.clock.monotonic(),
            clock: parts.clock,
            is_draining: AtomicBool::new(false),
            metrics: NodeMetrics::default(),
            refusals: LogLimiter::default(),
            tracer: OnceLock::new(),
            history: Mutex::new(History::new()),
        })
    }

    /// Exports a span of each request that its dispatcher samples. Only the first tracer counts.
    pub fn trace(&self, tracer: Arc<Tracer>) {
        // The first one stays.
        let _ = self.tracer.set(tracer);
    }

    /// Returns the past of the metrics.
    pub(crate) const fn history(&self) -> &Mutex<History> {
        &self.history
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the map in effect.
    pub fn cluster_map(&self) -> Arc<ClusterMap> {
        Arc::clone(self.ownership.load().map())
    }

    /// Uses a newer map from now on. Shards that it has given away are refused; shards that it has assigned
    /// to this node are returned, and served after the store has followed ([`Self::note_followed`]), or after
    /// a restart. A map that is not a successor changes nothing.
    pub fn replace_map(&self, map: Arc<ClusterMap>) -> Result<Vec<ShardId>, OwnershipError> {
        let succession = self.cluster_map().check_successor(&map)?;
        // A node that has left the cluster still answers where its shards are.
        let opened = opened(&*self.store);
        let ownership = Ownership::new(
            map,
            self.store.shard_map(),
            &self.name,
            &self.followed.load(),
            &opened,
        );
        let unopened = ownership.unopened().collect();
        if succession == Succession::Newer {
            self.ownership.store(Arc::new(ownership));
        }
        Ok(unopened)
    }

    /// Records that the store has followed `map`: each shard is served, or its status tells why not.
    pub fn note_followed(&self, map: Arc<ClusterMap>) {
        self.followed.store(map);
        let opened = opened(&*self.store);
        let ownership = Ownership::new(
            self.cluster_map(),
            self.store.shard_map(),
            &self.name,
            &self.followed.load(),
            &opened,
        );
        self.ownership.store(Arc::new(ownership));
    }

    /// Returns the status of the shards that the map assigns to the node, in order.
    pub fn shards(&self) -> Vec<ShardStatus> {
        status::own_shards(&*self.store, &self.ownership.load())
    }

    /// Returns the disk of the node's shards, or `None` if they are on no disk.
    pub fn disk_space(&self) -> Option<DiskSpace> {
        self.store.disk_space()
    }

    /// Returns how many reads of each shard's file have failed.
    pub fn bad_reads(&self) -> Vec<(ShardId, u64)> {
        self.store.bad_reads()
    }

    /// Returns whether the node accepts requests.
    pub fn is_ready(&self) -> bool {
        !self.is_draining.load(Ordering::Acquire)
    }

    /// Makes readiness fail from now on. Connections are notified by the token that they are served with.
    pub fn begin_drain(&self) {
        self.is_draining.store(true, Ordering::Release);
    }

    /// Returns the number of open connections.
    pub fn connections_open(&self) -> usize {
        self.connections.len()
    }

    /// Returns the number of requests that wait for the store.
    pub fn requests_in_flight(&self) -> usize {
        self.admission.in_flight()
    }

    /// Returns the bytes of the requests that wait for the store.
    pub fn request_memory(&self) -> usize {
        self.admission.memory()
    }

    /// Logs that a dispatcher was refused, at most once a minute for each reason.
    pub(crate) fn log_refused(&self, refusal: &Refusal, dispatcher: &str) {
        let reason = shortened(&refusal.to_string());
        let dispatcher = shortened(dispatcher);
        if self.refusals.is_news(&reason, self.clock.monotonic()) {
            tracing::warn!(reason, dispatcher, "refused a connection");
        }
    }

    /// Logs that a connection was ended because of its peer, at most once a minute for each reason.
    pub(crate) fn log_broken(&self, ending: &ConnectionEnd) {
        let reason = shortened(&ending.to_string());
        if self.refusals.is_news(&reason, self.clock.monotonic()) {
            tracing::warn!(reason, "ended a connection");
        }
    }

    /// Returns the stamp of a frame that is sent now.
    pub(crate) fn stamp(&self) -> NodeStamp {
        let age = self.clock.monotonic().saturating_duration_since(self.began);
        NodeStamp {
            stamp_ns: u64::try_from(age.as_nanos()).unwrap_or(u64::MAX),
            map_version: self.ownership.load().map().version(),
            records: self.store.records_revision(),
        }
    }

    /// Returns the deadline at an instant of the node's clock, or `None` if it is out of range.
    pub(crate) fn deadline_at(&self, deadline_ns: u64) -> Option<Deadline> {
        let instant = self.began.checked_add(Duration::from_nanos(deadline_ns));
        instant.map(Deadline::at)
    }

    pub(crate) fn tracer(&self) -> Option<&Tracer> {
        self.tracer.get().map(|tracer| &**tracer)
    }

    pub(crate) fn metrics(&self) -> &NodeMetrics {
        &self.metrics
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(crate) fn limits(&self) -> &NodeLimits {
        &self.limits
    }

    pub(crate) fn ownership(&self) -> Guard<Arc<Ownership>> {
        self.ownership.load()
    }

    /// Returns the same, for work that takes a while.
    pub(crate) fn ownership_whole(&self) -> Arc<Ownership> {
        self.ownership.load_full()
    }

    pub(crate) fn admission(&self) -> &Arc<NodeAdmission> {
        &self.admission
    }

    pub(crate) fn connections(&self) -> &Arc<Connections> {
        &self.connections
    }
}

/// Returns the shards that a store has opened, or has tried to.
fn opened(store: &dyn Store) -> Vec<ShardId> {
    store.status().iter().map(|status| status.shard).collect()
}

fn check_named(map: &ClusterMap, name: &str) -> Result<(), OwnershipError> {
    if map.node(name).is_some() {
        return Ok(());
    }
    Err(OwnershipError::NotInMap {
        cluster_id: map.cluster_id().to_owned(),
        version: map.version(),
        node: name.to_owned(),
    })
}

/// Returns a text with words of a peer, cut for the log.
fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 300;
    text.chars().take(CHARS_MAX).collect()
}
