//! Checks that a folder belongs to the node that opens it, before any of its files is opened.

use crate::config::{ClusterMember, Config};
use crate::error::OpenError;
use crate::manifest::Manifest;

/// Checks that the map contains the node, and that a folder with a manifest belongs to this node.
pub(crate) fn check_member(
    config: &Config,
    member: &ClusterMember,
    manifest: Option<&Manifest>,
) -> Result<(), OpenError> {
    let ClusterMember { map, node, .. } = member;
    if map.node(node).is_none() {
        return Err(OpenError::UnknownNode {
            cluster: map.cluster_id().to_owned(),
            version: map.version(),
            node: node.clone(),
            nodes: map
                .nodes()
                .iter()
                .map(|node| node.name().to_owned())
                .collect(),
        });
    }
    manifest.map_or(Ok(()), |manifest| check_folder(config, member, manifest))
}

/// Checks that a folder with a manifest belongs to this node, and has not used a later map.
pub(crate) fn check_folder(
    config: &Config,
    member: &ClusterMember,
    manifest: &Manifest,
) -> Result<(), OpenError> {
    let ClusterMember { map, node, .. } = member;
    let folder = || config.folder.clone();
    let Some(owner) = manifest.owner() else {
        return Err(OpenError::LoneFolder {
            folder: folder(),
            cluster: map.cluster_id().to_owned(),
        });
    };
    if owner.cluster != map.cluster_id() || owner.node != node {
        return Err(OpenError::OthersFolder {
            folder: folder(),
            found_cluster: owner.cluster.to_owned(),
            found_node: owner.node.to_owned(),
            opened_for: format!("node '{node}' of cluster '{}'", map.cluster_id()),
            is_same_cluster: owner.cluster == map.cluster_id(),
        });
    }
    if owner.map_version > map.version() {
        return Err(OpenError::OlderMap {
            folder: folder(),
            found: owner.map_version,
            version: map.version(),
        });
    }
    if manifest.shard_map != **map.shard_map() {
        return Err(OpenError::OtherSlots {
            folder: folder(),
            found: manifest.shards(),
        });
    }
    Ok(())
}
