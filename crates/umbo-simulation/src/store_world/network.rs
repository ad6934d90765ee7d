//! A simulated network between dispatchers and nodes: bytes are delayed, held, or lost.
//!
//! A connection is two pipes, one in each direction, that keep the order of bytes. Each direction of a link
//! can be held (as by a paused peer: the bytes come later) and each link cut (connections end, and no new one
//! can be made).

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{
    AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, duplex, split,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use umbo_shard::{Node, serve_connection};
use umbo_store_remote::{Connector, Io};

use crate::chance::Chance;
use crate::simulation::note;
use crate::watched_value::WatchedValue;

/// Bytes that a direction of a connection holds before its sender waits.
const PIPE_LEN: usize = 64 << 10;

/// The link between a dispatcher and a node.
#[derive(Debug, Default)]
struct Link {
    /// To the node, and from it.
    is_held: [Arc<WatchedValue<bool>>; 2],
    /// Ends the connections.
    reset: CancellationToken,
    is_cut: bool,
    /// Number of the next connection.
    next: u64,
    /// Connections below this number carry no bytes for now.
    stuck_below: Arc<WatchedValue<u64>>,
}

#[derive(Debug, Default)]
struct ServedNode {
    node: Option<Arc<Node>>,
    connections: Vec<JoinHandle<()>>,
    drain: CancellationToken,
}

#[derive(Debug)]
struct NetworkState {
    chance: Chance,
    nodes: BTreeMap<String, ServedNode>,
    links: BTreeMap<(usize, String), Link>,
    /// Longest delay of bytes, in microseconds.
    delay_micros: u64,
}

/// The network.
#[derive(Debug)]
pub(super) struct Network {
    state: Mutex<NetworkState>,
}

/// The network as a dispatcher sees it.
#[derive(Debug)]
pub(super) struct From {
    pub(super) network: Arc<Network>,
    pub(super) dispatcher: usize,
}

impl Network {
    pub(super) fn new(
        chance: Chance,
        dispatchers: usize,
        nodes: &[&str],
        delay_micros: u64,
    ) -> Arc<Self> {
        let mut links = BTreeMap::new();
        for dispatcher in 0..dispatchers {
            for node in nodes {
                links.insert((dispatcher, (*node).to_owned()), Link::default());
            }
        }
        Arc::new(Self {
            state: Mutex::new(NetworkState {
                chance,
                nodes: BTreeMap::new(),
                links,
                delay_micros,
            }),
        })
    }

    /// Makes a node accept connections.
    pub(super) fn serve(&self, name: &str, node: Arc<Node>) {
        let served = ServedNode {
            node: Some(node),
            ..ServedNode::default()
        };
        self.lock().nodes.insert(name.to_owned(), served);
    }

    /// Ends a node as a power failure does.
    pub(super) fn stop(&self, name: &str) {
        let served = self.lock().nodes.remove(name);
        for connection in served.into_iter().flat_map(|served| served.connections) {
            connection.abort();
        }
    }

    /// Notifies the dispatchers of a node that it stops.
    pub(super) fn drain(&self, name: &str) {
        if let Some(served) = self.lock().nodes.get(name) {
            served.drain.cancel();
        }
    }

    /// Holds or releases a direction of all links of a node: 0 to it, 1 from it.
    pub(super) fn hold(&self, name: &str, direction: usize, is_held: bool) {
        for ((_, node), link) in &self.lock().links {
            if node == name {
                link.is_held[direction].set(is_held);
            }
        }
    }

    /// Ends the connections of a link, and refuses new ones as long as it is cut.
    pub(super) fn cut(&self, dispatcher: usize, name: &str, is_cut: bool) {
        if let Some(link) = self.lock().links.get_mut(&(dispatcher, name.to_owned())) {
            link.is_cut = is_cut;
            std::mem::take(&mut link.reset).cancel();
        }
    }

    /// Makes the current connections of a link carry no bytes, while new ones work; or resumes them.
    pub(super) fn stick(&self, dispatcher: usize, name: &str, is_stuck: bool) {
        if let Some(link) = self.lock().links.get_mut(&(dispatcher, name.to_owned())) {
            link.stuck_below.set(if is_stuck { link.next } else { 0 });
        }
    }

    fn lock(&self) -> MutexGuard<'_, NetworkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn some_delay(&self) -> Duration {
        let mut state = self.lock();
        let most = state.delay_micros;
        Duration::from_micros(state.chance.below(most))
    }
}

#[async_trait]
impl Connector for From {
    async fn connect(&self, host: &str, _port: u16) -> io::Result<Box<dyn Io>> {
        tokio::time::sleep(self.network.some_delay()).await;
        let mut state = self.network.lock();
        let key = (self.dispatcher, host.to_owned());
        let link = state.links.get_mut(&key).ok_or(io::ErrorKind::NotFound)?;
        if link.is_cut {
            return Err(io::ErrorKind::HostUnreachable.into());
        }
        let ways = [0, 1].map(|direction| LinkControl {
            is_held: Arc::clone(&link.is_held[direction]),
            reset: link.reset.clone(),
            stuck_below: Arc::clone(&link.stuck_below),
            number: link.next,
        });
        link.next += 1;
        let served = state
            .nodes
            .get_mut(host)
            .ok_or(io::ErrorKind::ConnectionRefused)?;
        let node = served
            .node
            .clone()
            .ok_or(io::ErrorKind::ConnectionRefused)?;
        let (near, near_end) = duplex(PIPE_LEN);
        let (far, far_end) = duplex(PIPE_LEN);
        let drain = served.drain.clone();
        let serving = tokio::spawn(async move {
            // The node logs why it ended.
            drop(serve_connection(node, far, drain).await);
        });
        served.connections.push(serving);
        drop(state);
        note!("dispatcher {} connects to node {host}", self.dispatcher);
        let (from_near, to_near) = split(near_end);
        let (from_far, to_far) = split(far_end);
        let [to_node, from_node] = ways;
        let network = Arc::clone(&self.network);
        tokio::spawn(carry(network, from_near, to_far, to_node));
        let network = Arc::clone(&self.network);
        tokio::spawn(carry(network, from_far, to_near, from_node));
        Ok(Box::new(near))
    }
}

/// Control of one direction of a connection.
struct LinkControl {
    is_held: Arc<WatchedValue<bool>>,
    reset: CancellationToken,
    stuck_below: Arc<WatchedValue<u64>>,
    number: u64,
}

/// Carries bytes in one direction until either end is gone, or the link is reset.
async fn carry(
    network: Arc<Network>,
    mut from: ReadHalf<DuplexStream>,
    mut to: WriteHalf<DuplexStream>,
    way: LinkControl,
) {
    let mut bytes = vec![0; PIPE_LEN];
    let carrying = async {
        loop {
            let len = from.read(&mut bytes).await?;
            if len == 0 {
                return to.shutdown().await;
            }
            tokio::time::sleep(network.some_delay()).await;
            way.is_held.wait_for(|is_held| !is_held).await;
            way.stuck_below.wait_for(|below| below <= way.number).await;
            to.write_all(&bytes[..len]).await?;
        }
    };
    tokio::select! {
        biased;
        () = way.reset.cancelled() => {}
        // Both ends of the connection notice how it ended.
        _ = carrying => {}
    }
}
