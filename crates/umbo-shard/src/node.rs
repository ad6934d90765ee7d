//! A node: a store, the map that says which of its shards count, and what it admits.
//!
//! Owns no socket. Everything that streams share is here.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};
use tokio_util::task::TaskTracker;
use umbo_protocol::Refusal;
use umbo_routing::{ClusterMap, Succession};
use umbo_store::{ShardStatus, Store};
use umbo_telemetry::metrics::NodeMetrics;
use umbo_telemetry::trace::Tracer;
use umbo_types::{Clock, ShardId};

use crate::admission::Admission;
use crate::limits::NodeLimits;
use crate::ownership::{NodeError, Ownership};
use crate::quota::ShardQuota;
use crate::refusals::Refusals;
use crate::status;
use crate::streams::Streams;

/// What a node is made of.
#[derive(Debug)]
pub struct NodeParts {
    /// Its name in the map.
    pub name: String,
    /// The map in effect.
    pub map: Arc<ClusterMap>,
    /// The store; the shards that it has a status of are those that it has opened.
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
    /// The map that the store goes by.
    followed: ArcSwap<ClusterMap>,
    ownership: ArcSwap<Ownership>,
    admission: Arc<Admission>,
    streams: Streams,
    work: TaskTracker,
    is_draining: AtomicBool,
    metrics: NodeMetrics,
    refusals: Refusals,
    quota: OnceLock<Arc<dyn ShardQuota>>,
    tracer: OnceLock<Arc<Tracer>>,
}

impl Node {
    /// Makes a node. Fails where the map does not name it.
    pub fn new(parts: NodeParts) -> Result<Self, NodeError> {
        check_named(&parts.map, &parts.name)?;
        let followed = Arc::clone(&parts.map);
        let opened = opened(&*parts.store);
        let ownership = Ownership::new(parts.map, &parts.name, &followed, &opened);
        Ok(Self {
            admission: Arc::new(Admission::new(&parts.limits)),
            ownership: ArcSwap::from_pointee(ownership),
            name: parts.name,
            store: parts.store,
            clock: parts.clock,
            limits: parts.limits,
            followed: ArcSwap::new(followed),
            streams: Streams::default(),
            work: TaskTracker::new(),
            is_draining: AtomicBool::new(false),
            metrics: NodeMetrics::default(),
            refusals: Refusals::default(),
            quota: OnceLock::new(),
            tracer: OnceLock::new(),
        })
    }

    /// Has requests charged to the ceilings of their shards. Only the first one counts.
    pub fn keep_quota(&self, quota: Arc<dyn ShardQuota>) {
        // Whoever came first keeps it.
        let _ = self.quota.set(quota);
    }

    /// Has a span sent of each request that its dispatcher samples. Only the first tracer counts.
    pub fn trace(&self, tracer: Arc<Tracer>) {
        // Whoever came first stays.
        let _ = self.tracer.set(tracer);
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the map in effect.
    pub fn cluster_map(&self) -> Arc<ClusterMap> {
        Arc::clone(self.ownership.load().map())
    }

    /// Goes by a newer map from now on. Shards that it has given away are refused; those that it
    /// has given to this node are returned, and served once the store has followed
    /// ([`Self::note_followed`]), or the node is started again. A map that does not follow changes
    /// nothing.
    pub fn replace_map(&self, map: Arc<ClusterMap>) -> Result<Vec<ShardId>, NodeError> {
        let succession = self.cluster_map().check_successor(&map)?;
        // A node that has left the cluster goes on to say where its shards are.
        let opened = opened(&*self.store);
        let ownership = Ownership::new(map, &self.name, &self.followed.load(), &opened);
        let unopened = ownership.unopened().collect();
        if succession == Succession::Newer {
            self.ownership.store(Arc::new(ownership));
        }
        Ok(unopened)
    }

    /// Notes that the store goes by `map` now, whatever it has made of the shards: each is served,
    /// or says why it is not.
    pub fn note_followed(&self, map: Arc<ClusterMap>) {
        self.followed.store(map);
        let opened = opened(&*self.store);
        let ownership = Ownership::new(
            self.cluster_map(),
            &self.name,
            &self.followed.load(),
            &opened,
        );
        self.ownership.store(Arc::new(ownership));
    }

    /// Returns the state of the shards that the map gives to the node, in order.
    pub fn shards(&self) -> Vec<ShardStatus> {
        status::own_shards(&*self.store, &self.ownership.load())
    }

    /// Says whether the node takes requests.
    pub fn is_ready(&self) -> bool {
        !self.is_draining.load(Ordering::Relaxed)
    }

    /// Tells every stream that the node stops. What was sent is answered.
    pub fn begin_drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
        self.streams.wake_all();
    }

    /// Waits until everything that was begun has come to its end.
    pub async fn finish(&self) {
        self.work.close();
        self.work.wait().await;
    }

    /// Returns the number of open streams.
    pub fn streams_open(&self) -> usize {
        self.streams.open()
    }

    /// Returns the number of requests that wait for the store.
    pub fn requests_in_flight(&self) -> usize {
        self.admission.in_flight()
    }

    /// Returns the bytes that requests hold which wait for the store.
    pub fn request_memory(&self) -> usize {
        self.admission.memory()
    }

    /// Says in the log that a peer was refused, at most once a minute for each.
    pub(crate) fn say_refused(&self, refusal: &Refusal, peer: &str) {
        let reason = refusal.to_string();
        if self.refusals.is_news(&reason, self.clock.monotonic()) {
            tracing::warn!(reason, peer, "refused a stream");
        }
    }

    pub(crate) fn quota(&self) -> Option<&dyn ShardQuota> {
        self.quota.get().map(|quota| &**quota)
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

    /// Returns the same, for work that goes on for a while.
    pub(crate) fn ownership_whole(&self) -> Arc<Ownership> {
        self.ownership.load_full()
    }

    pub(crate) fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.streams
    }

    pub(crate) fn work(&self) -> &TaskTracker {
        &self.work
    }
}

/// Returns the shards that a store has opened, or has tried to.
fn opened(store: &dyn Store) -> Vec<ShardId> {
    store.status().iter().map(|status| status.shard).collect()
}

fn check_named(map: &ClusterMap, name: &str) -> Result<(), NodeError> {
    if map.node(name).is_some() {
        return Ok(());
    }
    Err(NodeError::NotInMap {
        cluster_id: map.cluster_id().to_owned(),
        version: map.version(),
        node: name.to_owned(),
    })
}
