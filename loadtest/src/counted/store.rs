//! The stores whose answers are counted: the engine in this process, the engine behind a shard node in this process,
//! and a store whose shard sleeps.
//!
//! The connection to the node is a pair of buffers, and everything but commits runs on the thread of the dispatcher.
//! Nothing here waits for a timer that would fire while answers are counted.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use umbo_routing::{ClusterMap, ClusterNode};
use umbo_shard::{Node, NodeLimits, NodeParts, serve_connection};
use umbo_store::Store;
use umbo_store_redb::{ClusterMember, Config, RedbStore};
use umbo_store_remote::{Connector, Io, RemoteSettings, RemoteStore, Transport};
use umbo_types::Clock;

use crate::failure::Failure;
use crate::modelled::{Capacity, FOR_EVER, Fault, modelled_store};

const SHARDS: u16 = 1;
const NODE: &str = "a";
/// Memory of the engine for pages and rows, in bytes: more than there are.
const CACHE_LEN: usize = 64 << 20;
/// Bytes that each direction of a connection can hold: more than a request or an answer has.
const PIPE_LEN: usize = 1 << 20;

/// A store, and the folder that it has its rows in.
pub(super) struct OpenStore {
    pub(super) store: Arc<dyn Store>,
    _folder: Option<TempDir>,
}

/// Connects to a node in this process.
#[derive(Debug)]
struct InProcess(Arc<Node>);

#[async_trait]
impl Connector for InProcess {
    async fn connect(&self, _: &str, _: u16) -> io::Result<Box<dyn Io>> {
        let (own, other) = tokio::io::duplex(PIPE_LEN);
        let node = Arc::clone(&self.0);
        tokio::spawn(serve_connection(node, other, CancellationToken::new()));
        Ok(Box::new(own))
    }
}

impl OpenStore {
    /// Opens an empty store whose shard answers nothing.
    pub(super) fn asleep(clock: &Arc<dyn Clock>) -> Result<Self, Failure> {
        let capacity = Capacity {
            places: 1,
            service_time: FOR_EVER,
        };
        let asleep = Fault {
            shard: None,
            slowness: None,
            from_s: 0.0,
            to_s: FOR_EVER.as_secs_f64(),
        };
        Ok(Self {
            store: modelled_store(SHARDS, capacity, vec![asleep], clock)?,
            _folder: None,
        })
    }

    /// Opens the engine on an empty folder.
    pub(super) fn embedded(clock: &Arc<dyn Clock>, has_log: bool) -> Result<Self, Failure> {
        Self::engine(None, clock, has_log)
    }

    /// Opens the engine on an empty folder, and connects to it through a node.
    pub(super) async fn remote(clock: &Arc<dyn Clock>, has_log: bool) -> Result<Self, Failure> {
        let map = map().map_err(|error| Failure::Contradiction(error.to_string()))?;
        let member = ClusterMember {
            map: Arc::new(map.clone()),
            node: NODE.to_owned(),
            create_missing: Vec::new(),
            accept: Vec::new(),
        };
        let engine = Self::engine(Some(member), clock, has_log)?;
        let parts = NodeParts {
            name: NODE.to_owned(),
            map: Arc::new(map.clone()),
            store: Arc::clone(&engine.store),
            clock: Arc::clone(clock),
            limits: NodeLimits::default(),
        };
        let node = Node::new(parts).map_err(|error| Failure::Contradiction(error.to_string()))?;
        let settings = RemoteSettings {
            transport: Transport::Other(Arc::new(InProcess(Arc::new(node)))),
            seed: Some(1),
            probe_interval: FOR_EVER,
            silence_max: FOR_EVER,
            probe_timeout: FOR_EVER,
            ..RemoteSettings::default()
        };
        let store = RemoteStore::connect(settings, map, Arc::clone(clock));
        while store.stats().connections == 0 {
            tokio::task::yield_now().await;
        }
        Ok(Self { store, ..engine })
    }

    fn engine(
        cluster: Option<ClusterMember>,
        clock: &Arc<dyn Clock>,
        has_log: bool,
    ) -> Result<Self, Failure> {
        let folder = tempfile::tempdir().map_err(Failure::io("temporary folder"))?;
        let config = Config {
            folder: folder.path().to_owned(),
            shards: cluster.is_none().then_some(SHARDS),
            cluster,
            cache_bytes: CACHE_LEN,
            has_log,
            ..Config::default()
        };
        let store = RedbStore::open(config, Arc::clone(clock))
            .map_err(|error| Failure::Contradiction(error.to_string()))?;
        Ok(Self {
            store: Arc::new(store),
            _folder: Some(folder),
        })
    }
}

/// Returns the map of a cluster of one node.
fn map() -> Result<ClusterMap, Box<dyn std::error::Error>> {
    let node = ClusterNode::new(NODE, "node:1")?;
    Ok(ClusterMap::create("counted", vec![node], SHARDS)?)
}
