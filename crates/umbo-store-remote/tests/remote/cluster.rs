//! Nodes in this process, over the reference store: on a network in memory, where they can be stopped, started,
//! delayed and disconnected, or on loopback.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use umbo_routing::{ClusterMap, ClusterNode};
use umbo_shard::{Node, NodeLimits, NodeParts, server};
use umbo_store::{MemoryStore, Store};
use umbo_store_remote::{RemoteSettings, RemoteStore, Transport};
use umbo_types::{Clock, Key, ShardId};

use crate::held::HeldStore;
use crate::network::{Network, Wire};
use crate::rows::{NS, key};
use crate::time::{TokioClock, until};

pub(crate) const SHARDS: u16 = 6;

/// A node whose rows outlive a stop, behind a wire.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) store: Arc<HeldStore>,
    pub(crate) rows: Arc<MemoryStore>,
    pub(crate) wire: Wire,
    clock: Arc<dyn Clock>,
    pub(crate) node: Option<Arc<Node>>,
    /// Its port on loopback, if it has one.
    listener: Option<TcpListener>,
    pub(crate) address: Option<SocketAddr>,
}

impl Member {
    fn new(at: usize, is_on_loopback: bool, clock: &Arc<dyn Clock>) -> Self {
        let rows = MemoryStore::new(SHARDS, Arc::clone(clock)).expect("a store");
        let rows = Arc::new(rows);
        let listener =
            is_on_loopback.then(|| server::bind(([127, 0, 0, 1], 0).into()).expect("a port"));
        let address = |listener: &TcpListener| listener.local_addr().expect("an address");
        Self {
            name: format!("node-{at}"),
            store: Arc::new(HeldStore::new(Arc::clone(&rows))),
            rows,
            wire: Wire::new(),
            clock: Arc::clone(clock),
            node: None,
            address: listener.as_ref().map(address),
            listener,
        }
    }

    pub(crate) fn named(&self) -> ClusterNode {
        let address = match self.address {
            Some(address) => address.to_string(),
            None => format!("{}:1", self.name),
        };
        ClusterNode::new(&self.name, &address).expect("a node")
    }
}

pub(crate) struct Cluster {
    pub(crate) map: Arc<ClusterMap>,
    pub(crate) members: Vec<Member>,
    clock: Arc<dyn Clock>,
    network: Arc<Network>,
}

impl Cluster {
    /// Starts nodes that share the shards evenly, on a network in memory.
    pub(crate) fn start(nodes: usize) -> Self {
        Self::start_by(nodes, Arc::new(TokioClock::new()))
    }

    /// Starts nodes on a network in memory that live by this clock.
    pub(crate) fn start_by(nodes: usize, clock: Arc<dyn Clock>) -> Self {
        Self::of(nodes, false, &vec![clock; nodes])
    }

    /// Starts a node on a network in memory for each of these clocks, which it lives by.
    pub(crate) fn start_each_by(clocks: &[Arc<dyn Clock>]) -> Self {
        Self::of(clocks.len(), false, clocks)
    }

    /// Starts nodes that share the shards evenly, on loopback.
    pub(crate) fn on_loopback(nodes: usize, clock: Arc<dyn Clock>) -> Self {
        Self::of(nodes, true, &vec![clock; nodes])
    }

    fn of(nodes: usize, is_on_loopback: bool, clocks: &[Arc<dyn Clock>]) -> Self {
        let members = (0..nodes).map(|at| Member::new(at, is_on_loopback, &clocks[at]));
        let members: Vec<_> = members.collect();
        let named = members.iter().map(Member::named).collect();
        let map = ClusterMap::create("test", named, SHARDS).expect("a map");
        let mut cluster = Self {
            map: Arc::new(map),
            members,
            clock: Arc::clone(&clocks[0]),
            network: Arc::default(),
        };
        for at in 0..nodes {
            cluster.serve(at);
        }
        cluster
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Makes a node that is not in the map yet.
    pub(crate) fn make(&mut self) -> usize {
        let at = self.members.len();
        self.members.push(Member::new(at, false, &self.clock));
        at
    }

    /// Serves a node, by the current map.
    pub(crate) fn serve(&mut self, at: usize) {
        let member = &mut self.members[at];
        let parts = NodeParts {
            name: member.name.clone(),
            map: Arc::clone(&self.map),
            store: Arc::clone(&member.store) as Arc<dyn Store>,
            clock: Arc::clone(&member.clock),
            limits: NodeLimits::default(),
        };
        let node = Arc::new(Node::new(parts).expect("the map names it"));
        member.node = Some(Arc::clone(&node));
        match member.listener.take() {
            // Ends with the test.
            Some(listener) => {
                tokio::spawn(server::serve(listener, node, CancellationToken::new()));
            }
            None => self.network.serve(&member.name, node, &member.wire),
        }
    }

    /// Stops a node as an operator does, and waits until it has stopped.
    pub(crate) async fn stop(&mut self, at: usize) {
        let member = &mut self.members[at];
        self.network.stop(&member.name).await;
        member.node = None;
    }

    /// Gives a node another map, which its store follows at once.
    pub(crate) fn follow(&self, at: usize, map: &Arc<ClusterMap>) {
        let node = self.members[at].node.as_ref().expect("it is served");
        node.replace_map(Arc::clone(map)).expect("it follows");
        node.note_followed(Arc::clone(map));
    }

    /// Returns the first shard of a node.
    pub(crate) fn shard_of(&self, at: usize) -> ShardId {
        self.map.shards_of(&self.members[at].name)[0]
    }

    /// Begins to connect a store to the nodes.
    pub(crate) fn dial(&self, settings: RemoteSettings) -> Arc<RemoteStore> {
        self.dial_by(settings, Arc::clone(&self.clock))
    }

    /// Begins to connect a store that lives by this clock.
    pub(crate) fn dial_by(
        &self,
        mut settings: RemoteSettings,
        clock: Arc<dyn Clock>,
    ) -> Arc<RemoteStore> {
        if self.members[0].address.is_none() {
            settings.transport = Transport::Other(Arc::<Network>::clone(&self.network));
        }
        let map = ClusterMap::clone(&self.map);
        RemoteStore::connect(settings, map, clock)
    }

    /// Connects a store to all of the nodes.
    pub(crate) async fn connect(&self, settings: RemoteSettings) -> Arc<RemoteStore> {
        let store = self.dial(settings);
        let connections = self.map.nodes().len() as u64;
        until(|| store.stats().connections == connections).await;
        store
    }
}

/// Returns a key of a shard.
pub(crate) fn key_in(store: &dyn Store, shard: ShardId) -> Key {
    let map = store.shard_map();
    let mut keys = (0..).map(|n| key(&format!("key-{n}")));
    keys.find(|key| map.locate(NS, &key.partition) == shard)
        .expect("every shard has keys")
}

/// Settings with short waits, for simulated time.
pub(crate) fn impatient() -> RemoteSettings {
    RemoteSettings {
        connect_timeout: Duration::from_secs(1),
        grace: Duration::ZERO,
        probe_interval: Duration::from_millis(50),
        silence_max: Duration::from_millis(50),
        probe_timeout: Duration::from_secs(1),
        backoff_max: Duration::from_millis(50),
        ..RemoteSettings::default()
    }
}
