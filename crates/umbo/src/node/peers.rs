//! Detection of other cluster nodes that use a newer map than this one is about to use.
//!
//! A shard that has moved since an older map may be served by another node, so a node asks before it opens
//! its files, and again before it follows a map while it runs. It does not wait longer than two seconds for
//! an answer: a whole cluster must be able to start after all of it was down.

use std::path::Path;
use std::sync::Arc;

use umbo_routing::ClusterMap;
use umbo_store_redb::note_map_version;
use umbo_store_remote::{PeerMap, ask_map_versions};

use crate::cli_error::CliError;
use crate::server::{SystemClock, remote_settings};
use crate::settings::Settings;

/// Refuses a map if another node has a newer one.
pub(super) async fn refuse_older_map(
    settings: &Settings,
    map: &Arc<ClusterMap>,
    node: &str,
) -> Result<(), CliError> {
    let asked = remote_settings(&settings.cluster);
    let said = ask_map_versions(asked, map, Some(node), Arc::new(SystemClock)).await;
    let silent: Vec<_> = said.iter().filter(|peer| peer.version.is_none()).collect();
    if !silent.is_empty() {
        let nodes: Vec<_> = silent.iter().map(|peer| &*peer.node).collect();
        tracing::info!(
            nodes = nodes.join(", "),
            "some nodes did not report the version of their map"
        );
    }
    let newest = said.iter().max_by_key(|peer| peer.version);
    let Some((peer, version)) = newest.and_then(|peer| peer.version.map(|found| (peer, found)))
    else {
        return Ok(());
    };
    if version <= map.version() {
        return Ok(());
    }
    Err(newer_map(peer, version, map, settings))
}

/// Refuses to start under an older map than another node has, and records in the data folder that there is a newer one.
/// The next start is then refused too, even if other nodes answer.
pub(super) async fn refuse_to_start(
    settings: &Settings,
    map: &Arc<ClusterMap>,
    node: &str,
) -> Result<(), CliError> {
    let refused = refuse_older_map(settings, map, node).await;
    if let Err(CliError::NewerMap { version, .. }) = &refused {
        let folder = Path::new(&settings.store.folder);
        if let Err(error) = note_map_version(folder, map, *version) {
            tracing::warn!(%error, "the newer map could not be recorded in the data folder");
        }
    }
    refused
}

fn newer_map(peer: &PeerMap, version: u64, map: &ClusterMap, settings: &Settings) -> CliError {
    CliError::NewerMap {
        node: peer.node.clone(),
        address: peer.address.clone(),
        version,
        own: map.version(),
        file: settings.cluster.map.clone().unwrap_or_default(),
    }
}
