//! The store: the map in effect, its nodes, and the tasks that keep them connected.
//!
//! The methods of the contract are in the other files. The invariant: a map is replaced as a whole, and a
//! request in progress stays at the node that it was sent to.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use umbo_routing::{ClusterMap, ClusterNode, ShardMap, Succession, SuccessionError};
use umbo_store::{NodeStatus, RecordsCopy, RemoteStats, ShardState, ShardStatus, StoreError};
use umbo_types::{Clock, ShardId};

use crate::budget::Budget;
use crate::counters::HopCounters;
use crate::link;
use crate::node::{Node, StoreContext};
use crate::seeded_random::SeededRandom;
use crate::settings::RemoteSettings;
use crate::topology::Topology;

/// Longest wait for requests in progress when the store is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait of a request for a map that its node already uses.
const MAP_TIMEOUT: Duration = Duration::from_secs(1);

/// A store whose shards are on other machines.
#[derive(Debug)]
pub struct RemoteStore {
    pub(crate) common: Arc<StoreContext>,
    topology: ArcSwap<Topology>,
    shard_map: Arc<ShardMap>,
    /// The newest copy of Umbo's own records that was passed on.
    last_records: ArcSwapOption<RecordsCopy>,
    /// Wakes requests that wait for another map.
    map_changed: Notify,
    is_closing: AtomicBool,
    changing: Mutex<()>,
    tasks: Mutex<JoinSet<()>>,
    /// The runtime for the tasks of nodes.
    runtime: Handle,
}

impl RemoteStore {
    /// Makes the store of a map, with a task for each node.
    pub(crate) fn new(
        settings: RemoteSettings,
        map: ClusterMap,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        let chance = SeededRandom::new(settings.seed);
        let common = Arc::new(StoreContext {
            cluster_id: map.cluster_id().to_owned(),
            retries: Budget::new(settings.retry_percent),
            incarnation: chance.next(),
            chance,
            settings,
            clock,
            counters: Arc::new(HopCounters::default()),
            map_version: AtomicU64::new(map.version()),
            newer_map: Notify::new(),
            records: Mutex::default(),
        });
        let shard_map = Arc::clone(map.shard_map());
        let topology = Topology::new(map, &[], &common);
        let nodes = topology.nodes.clone();
        let store = Arc::new(Self {
            common,
            topology: ArcSwap::from_pointee(topology),
            shard_map,
            last_records: ArcSwapOption::empty(),
            map_changed: Notify::new(),
            is_closing: AtomicBool::new(false),
            changing: Mutex::new(()),
            tasks: Mutex::new(JoinSet::new()),
            runtime: Handle::current(),
        });
        store.keep(&nodes);
        store
    }

    /// Uses another map from now on, if it is a successor of the one in effect. Requests in progress end at
    /// the node that they were sent to.
    pub fn set_map(&self, map: ClusterMap) -> Result<Succession, SuccessionError> {
        let changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.topology.load_full();
        let succession = before.map.check_successor(&map)?;
        if succession == Succession::Same {
            return Ok(succession);
        }
        let version = map.version();
        let after = Topology::new(map, &before.nodes, &self.common);
        let is_in = |node: &Arc<Node>, nodes: &[Arc<Node>]| {
            nodes.iter().any(|other| Arc::ptr_eq(node, other))
        };
        let all = after.nodes.iter();
        let new: Vec<_> = all
            .filter(|node| !is_in(node, &before.nodes))
            .cloned()
            .collect();
        let gone = before
            .nodes
            .iter()
            .filter(|node| !is_in(node, &after.nodes));
        let gone: Vec<_> = gone.cloned().collect();
        self.common.map_version.store(version, Ordering::Release);
        self.keep(&new);
        self.topology.store(Arc::new(after));
        for node in gone {
            node.retire();
        }
        drop(changing);
        tracing::info!(version, "another map of the cluster is in effect");
        self.map_changed.notify_waiters();
        Ok(succession)
    }

    /// Returns the map in effect.
    pub fn map(&self) -> ClusterMap {
        self.topology.load().map.clone()
    }

    /// Returns the nodes of the map, the home of Umbo's own records first.
    pub fn nodes_from_home(&self) -> Vec<ClusterNode> {
        let map = self.map();
        let home = map.node_of(map.home().shard).cloned();
        let mut nodes = map.nodes().to_vec();
        nodes.sort_by_key(|node| Some(node) != home.as_ref());
        nodes
    }

    /// Returns the counters.
    pub fn stats(&self) -> RemoteStats {
        let topology = self.topology.load();
        let in_flight = topology.nodes.iter().map(|node| node.in_flight()).sum();
        self.common.counters.read(in_flight)
    }

    pub(crate) fn topology(&self) -> Guard<Arc<Topology>> {
        self.topology.load()
    }

    pub(crate) fn shard_map(&self) -> &Arc<ShardMap> {
        &self.shard_map
    }

    /// Keeps a copy of the records for nodes that turn out to lack it, if it is the newest.
    pub(crate) fn note_records(&self, copy: &Arc<RecordsCopy>) {
        self.last_records.rcu(|before| match before {
            Some(before) if before.revision >= copy.revision => Some(Arc::clone(before)),
            _ => Some(Arc::clone(copy)),
        });
    }

    /// Returns the newest copy of the records that was passed on.
    pub(crate) fn last_records(&self) -> Option<Arc<RecordsCopy>> {
        self.last_records.load_full()
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    pub(crate) fn check_open(&self) -> Result<(), StoreError> {
        if self.is_closing() {
            return Err(StoreError::Closing);
        }
        Ok(())
    }

    /// Waits for a map that is at least as new as the requested `version`. If the store already has one, waits for
    /// `pause`, because the node uses an older map.
    pub(crate) async fn next_map(&self, version: u64, pause: Duration) {
        if self.has_map(version) {
            sleep(pause).await;
        } else {
            let _ = timeout(MAP_TIMEOUT, self.await_map(version)).await;
        }
    }

    /// Waits until a map at least as new as `version` is in effect.
    pub(crate) async fn await_map(&self, version: u64) {
        loop {
            // Made before the look, so that a map that comes in between is noticed.
            let changed = self.map_changed.notified();
            if self.has_map(version) {
                return;
            }
            changed.await;
        }
    }

    fn has_map(&self, version: u64) -> bool {
        self.topology.load().map.version() >= version
    }

    /// Stops accepting requests, and waits for those in progress.
    pub(crate) async fn end(&self) {
        self.is_closing.store(true, Ordering::Release);
        let nodes = self.topology.load().nodes.clone();
        for node in nodes {
            node.retire();
        }
        self.common.newer_map.notify_one();
        let mut tasks = std::mem::take(&mut *self.lock_tasks());
        let all = async { while tasks.join_next().await.is_some() {} };
        if timeout(CLOSE_TIMEOUT, all).await.is_err() {
            tracing::warn!("shard nodes left requests unanswered; their outcome is unknown");
        }
    }

    pub(crate) fn shards(&self) -> Vec<ShardStatus> {
        let topology = self.topology.load();
        let mut shards = Vec::new();
        for node in &topology.nodes {
            let (told, failure) = (node.status(), node.failure());
            for shard in topology.map.shards_of(node.name()) {
                let known = told.iter().find(|status| status.shard == shard);
                let mut status = known.cloned().unwrap_or_else(|| unknown(shard));
                if let Some(reason) = &failure {
                    let reason = format!("node {}: {reason}", node.name());
                    status.state = ShardState::Unavailable(reason);
                }
                shards.push(status);
            }
        }
        shards.sort_by_key(|status| status.shard);
        shards
    }

    pub(crate) fn node_status(&self) -> Vec<NodeStatus> {
        let topology = self.topology.load();
        let status = |node: &Arc<Node>| NodeStatus {
            name: node.name().to_owned(),
            address: node.place.address().to_owned(),
            failure: node.failure(),
            map_version: node.map_version(),
            shards: topology.map.shards_of(node.name()),
            in_flight: Some(node.in_flight()),
            clock_ahead: node.clock_ahead(),
            program_version: node.program_version.load().as_deref().cloned(),
        };
        topology.nodes.iter().map(status).collect()
    }

    fn keep(&self, nodes: &[Arc<Node>]) {
        for node in nodes {
            self.spawn(link::keep(Arc::clone(node)));
        }
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.lock_tasks();
        while tasks.try_join_next().is_some() {}
        tasks.spawn_on(task, &self.runtime);
    }

    fn lock_tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Status of a shard before its node has reported one.
fn unknown(shard: ShardId) -> ShardStatus {
    let reason = "its node has not reported its status yet";
    ShardStatus::new(shard, ShardState::Unavailable(reason.to_owned()))
}
