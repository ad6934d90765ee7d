//! Fetches the map of the cluster from a node that uses a newer one.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{sleep, timeout};
use umbo_protocol::{Ask, Outcome};
use umbo_routing::ClusterMap;
use umbo_store::CallContext;

use crate::node::Node;
use crate::store::RemoteStore;

/// Longest wait for the map of a node.
const FETCH_TIMEOUT: Duration = Duration::from_secs(1);
/// Wait after an unusable map.
const FETCH_INTERVAL: Duration = Duration::from_millis(200);

/// Fetches maps whenever a node has a newer one, until the store is closed or gone.
pub(crate) async fn keep(store: Weak<RemoteStore>) {
    let Some(common) = store.upgrade().map(|store| Arc::clone(&store.common)) else {
        return;
    };
    let mut told = String::new();
    loop {
        common.newer_map.notified().await;
        let Some(store) = store.upgrade() else {
            return;
        };
        if store.is_closing() {
            return;
        }
        let Some(node) = newest(&store) else {
            continue;
        };
        match timeout(FETCH_TIMEOUT, fetch(&store, &node)).await {
            Ok(Ok(())) => told.clear(),
            failed => {
                let reason = match failed {
                    Ok(Err(reason)) => reason,
                    Ok(Ok(())) | Err(_) => "it was not sent in time".to_owned(),
                };
                if told != reason {
                    tracing::warn!(node = node.name(), %reason,
                        "the newer map of a shard node cannot be used");
                    told = reason;
                }
                drop(store);
                sleep(FETCH_INTERVAL).await;
            }
        }
    }
}

/// Returns the node with the newest map, if it is newer than the one in effect.
fn newest(store: &RemoteStore) -> Option<Arc<Node>> {
    let topology = store.topology();
    let newest = topology
        .nodes
        .iter()
        .max_by_key(|node| node.map_version())?;
    (newest.map_version() > Some(topology.map.version())).then(|| Arc::clone(newest))
}

async fn fetch(store: &RemoteStore, node: &Arc<Node>) -> Result<(), String> {
    let call = CallContext::internal();
    let asked = store.attempt(node, &call, &Ask::ClusterMap);
    let text = match asked.await {
        Ok(Outcome::ClusterMap(text)) => text,
        Ok(_) => return Err("it was requested and did not come".to_owned()),
        Err(error) => return Err(format!("{error:?}")),
    };
    let map = ClusterMap::parse(&text).map_err(|error| error.to_string())?;
    store.set_map(map).map_err(|error| error.to_string())?;
    Ok(())
}
