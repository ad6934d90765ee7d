//! Asks the nodes of a map for the versions of their maps.
//!
//! Used by a node before it opens its files, and by an operator who looks for the newest map. Owns no
//! connection: it connects a store for the question and closes it afterwards.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use umbo_routing::ClusterMap;
use umbo_store::{Store as _, StoreReport};
use umbo_types::Clock;

use crate::settings::RemoteSettings;
use crate::store::RemoteStore;

/// Longest wait for the answers of all nodes together. A node that is paused or partitioned must not delay
/// the start of the others for longer.
const ANSWERS_TIMEOUT: Duration = Duration::from_secs(2);

/// Map version of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerMap {
    /// Name of the node.
    pub node: String,
    /// Host and port.
    pub address: String,
    /// Version of the map that it uses, or `None` if it did not answer.
    pub version: Option<u64>,
}

/// Asks the nodes of a map, all at once and for at most two seconds, for their map versions. Returns the
/// result for each node, in order of their names, without node `own`.
pub async fn ask_map_versions(
    settings: RemoteSettings,
    map: &ClusterMap,
    own: Option<&str>,
    clock: Arc<dyn Clock>,
) -> Vec<PeerMap> {
    let peers = peers_of(map, own);
    if peers.is_empty() {
        return peers;
    }
    let store = RemoteStore::connect(settings, map.clone(), clock);
    wait_for_answers(&store, map, own).await;
    let said = versions(&store, peers);
    store.close().await;
    said
}

/// Asks the nodes of a map for the newest map. Returns the newest map that was received, or `map` itself if it is the
/// newest, and the version of each node.
pub async fn fetch_newest_map(
    settings: RemoteSettings,
    map: &ClusterMap,
    clock: Arc<dyn Clock>,
) -> (ClusterMap, Vec<PeerMap>) {
    let peers = peers_of(map, None);
    let store = RemoteStore::connect(settings, map.clone(), clock);
    wait_for_answers(&store, map, None).await;
    let said = versions(&store, peers);
    if let Some(newest) = said.iter().filter_map(|peer| peer.version).max() {
        // A map that does not arrive in time is not returned; the versions show that it exists.
        let _ = timeout(ANSWERS_TIMEOUT, store.await_map(newest)).await;
    }
    let newest = store.map();
    store.close().await;
    (newest, said)
}

fn peers_of(map: &ClusterMap, own: Option<&str>) -> Vec<PeerMap> {
    let others = map.nodes().iter().filter(|node| Some(node.name()) != own);
    let others = others.map(|node| PeerMap {
        node: node.name().to_owned(),
        address: node.address().to_owned(),
        version: None,
    });
    others.collect()
}

/// Waits until every node is connected, or cannot be. The connections are made in parallel; the waits are
/// sequential.
async fn wait_for_answers(store: &RemoteStore, map: &ClusterMap, own: Option<&str>) {
    let all = async {
        for node in map.nodes().iter().filter(|node| Some(node.name()) != own) {
            if let Some(&shard) = map.shards_of(node.name()).first() {
                store.reachable(shard).await;
            }
        }
    };
    let _ = timeout(ANSWERS_TIMEOUT, all).await;
}

fn versions(store: &RemoteStore, peers: Vec<PeerMap>) -> Vec<PeerMap> {
    let nodes = store.nodes();
    let version = |peer: &PeerMap| {
        let node = nodes.iter().find(|node| node.name == peer.node);
        node.and_then(|node| node.map_version)
    };
    let answered = peers.into_iter().map(|peer| PeerMap {
        version: version(&peer),
        ..peer
    });
    answered.collect()
}
