//! Nodes in this process, over the reference store, that can be stopped, started, delayed and disconnected.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use umbo_routing::{ClusterMap, ClusterNode};
use umbo_shard::{Node, NodeLimits, NodeParts, server};
use umbo_store::{MemoryStore, Store};
use umbo_store_remote::{RemoteSettings, RemoteStore};
use umbo_types::{Clock, Key, ShardId, Timestamp};

use crate::held::HeldStore;
use crate::rows::{NS, key};
use crate::wire::Wire;

pub(crate) const SHARDS: u16 = 6;

/// A node whose rows outlive a stop, behind a wire.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) store: Arc<HeldStore>,
    pub(crate) rows: Arc<MemoryStore>,
    pub(crate) wire: Wire,
    pub(crate) node: Option<Arc<Node>>,
    address: SocketAddr,
    /// Set until the node is served.
    listener: Option<TcpListener>,
    stop: CancellationToken,
    server: Option<JoinHandle<()>>,
}

impl Member {
    async fn new(at: usize, clock: &Arc<dyn Clock>) -> Self {
        let listener = server::bind(([127, 0, 0, 1], 0).into()).expect("a port");
        let address = listener.local_addr().expect("an address");
        let rows = MemoryStore::new(SHARDS, Arc::clone(clock)).expect("a store");
        let rows = Arc::new(rows);
        Self {
            name: format!("node-{at}"),
            store: Arc::new(HeldStore::new(Arc::clone(&rows))),
            rows,
            wire: Wire::to(address).await,
            node: None,
            address,
            listener: Some(listener),
            stop: CancellationToken::new(),
            server: None,
        }
    }

    pub(crate) fn named(&self) -> ClusterNode {
        ClusterNode::new(&self.name, &self.wire.address.to_string()).expect("a node")
    }
}

pub(crate) struct Cluster {
    pub(crate) map: Arc<ClusterMap>,
    pub(crate) members: Vec<Member>,
    clock: Arc<dyn Clock>,
}

impl Cluster {
    /// Starts nodes that share the shards evenly.
    pub(crate) async fn start(nodes: usize, clock: Arc<dyn Clock>) -> Self {
        let mut members = Vec::new();
        for at in 0..nodes {
            members.push(Member::new(at, &clock).await);
        }
        let named = members.iter().map(Member::named).collect();
        let map = ClusterMap::create("test", named, SHARDS).expect("a map");
        let mut cluster = Self {
            map: Arc::new(map),
            members,
            clock,
        };
        for at in 0..nodes {
            cluster.serve(at);
        }
        cluster
    }

    /// Makes a node that is not in the map yet.
    pub(crate) async fn make(&mut self) -> usize {
        let at = self.members.len();
        self.members.push(Member::new(at, &self.clock).await);
        at
    }

    /// Serves a node, by the current map.
    pub(crate) fn serve(&mut self, at: usize) {
        let member = &mut self.members[at];
        let parts = NodeParts {
            name: member.name.clone(),
            map: Arc::clone(&self.map),
            store: Arc::clone(&member.store) as Arc<dyn Store>,
            clock: Arc::clone(&self.clock),
            limits: NodeLimits::default(),
        };
        let node = Arc::new(Node::new(parts).expect("the map names it"));
        member.node = Some(Arc::clone(&node));
        member.stop = CancellationToken::new();
        let stop = member.stop.clone();
        let listener = member.listener.take();
        let listener = listener.unwrap_or_else(|| server::bind(member.address).expect("its port"));
        member.server = Some(tokio::spawn(async move {
            server::serve(listener, node, stop).await;
        }));
    }

    /// Stops a node as an operator does, and waits until it has stopped.
    pub(crate) async fn stop(&mut self, at: usize) {
        let member = &mut self.members[at];
        member.stop.cancel();
        if let Some(server) = member.server.take() {
            server.await.expect("the node stops well");
        }
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
        let map = ClusterMap::clone(&self.map);
        RemoteStore::connect(settings, map, Arc::clone(&self.clock))
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

/// Settings with short waits.
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

/// Waits until a condition holds, for a limited time.
pub(crate) async fn until(is_so: impl Fn() -> bool) {
    for _ in 0..5_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("it did not become so");
}

/// The clock of the machine.
#[derive(Debug)]
pub(crate) struct RealClock;

impl Clock for RealClock {
    fn wall(&self) -> Timestamp {
        let since = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
        Timestamp(u64::try_from(since.as_micros()).expect("before the end of time"))
    }

    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}
