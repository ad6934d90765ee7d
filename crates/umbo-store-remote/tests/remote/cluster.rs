//! Nodes in this process, over the reference store, that can be stopped and started.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use umbo_routing::{ClusterMap, ClusterNode};
use umbo_shard::{Node, NodeLimits, NodeParts, server};
use umbo_store::{MemoryStore, Store};
use umbo_store_remote::{RemoteSettings, RemoteStore};
use umbo_types::{Clock, Timestamp};

pub(crate) const SHARDS: u16 = 6;

/// A node whose rows outlive a stop.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) rows: Arc<MemoryStore>,
    pub(crate) node: Option<Arc<Node>>,
    stop: CancellationToken,
    server: Option<JoinHandle<()>>,
}

pub(crate) struct Cluster {
    pub(crate) map: Arc<ClusterMap>,
    pub(crate) members: Vec<Member>,
    clock: Arc<dyn Clock>,
}

impl Cluster {
    /// Starts nodes that share the shards evenly.
    pub(crate) fn start(nodes: usize, clock: Arc<dyn Clock>) -> Self {
        let listeners: Vec<_> = (0..nodes)
            .map(|_| server::bind(([127, 0, 0, 1], 0).into()).expect("a port"))
            .collect();
        let addresses: Vec<_> = listeners
            .iter()
            .map(|listener| listener.local_addr().expect("an address"))
            .collect();
        let named = (0..nodes).map(|at| {
            let name = format!("node-{at}");
            ClusterNode::new(&name, &addresses[at].to_string()).expect("a node")
        });
        let map = ClusterMap::create("test", named.collect(), SHARDS).expect("a map");
        let map = Arc::new(map);
        let mut cluster = Self {
            map,
            members: Vec::new(),
            clock,
        };
        for (at, listener) in listeners.into_iter().enumerate() {
            let rows = MemoryStore::new(SHARDS, Arc::clone(&cluster.clock)).expect("a store");
            cluster.members.push(Member {
                name: format!("node-{at}"),
                address: addresses[at],
                rows: Arc::new(rows),
                node: None,
                stop: CancellationToken::new(),
                server: None,
            });
            cluster.serve(at, listener);
        }
        cluster
    }

    fn serve(&mut self, at: usize, listener: tokio::net::TcpListener) {
        let member = &mut self.members[at];
        let parts = NodeParts {
            name: member.name.clone(),
            map: Arc::clone(&self.map),
            store: Arc::clone(&member.rows) as Arc<dyn Store>,
            clock: Arc::clone(&self.clock),
            limits: NodeLimits::default(),
        };
        let node = Arc::new(Node::new(parts).expect("the map names it"));
        member.node = Some(Arc::clone(&node));
        member.stop = CancellationToken::new();
        let stop = member.stop.clone();
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

    /// Starts a node again where it was.
    pub(crate) fn restart(&mut self, at: usize) {
        let listener = server::bind(self.members[at].address).expect("the port is free");
        self.serve(at, listener);
    }

    /// Connects a store to all of the nodes, and waits until it is.
    pub(crate) async fn connect(&self, settings: RemoteSettings) -> Arc<RemoteStore> {
        let map = ClusterMap::clone(&self.map);
        let store = RemoteStore::connect(settings, map, Arc::clone(&self.clock));
        until(|| store.nodes().iter().all(|node| node.failure.is_none())).await;
        store
    }
}

/// Waits until something is so, for a while.
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
