//! Errors of opening a data folder. Each message tells the operator how to proceed.
//!
//! A shard that cannot be opened is not an error here: it is reported by [`crate::OpenReport`], and requests
//! for its keys fail.

use std::io;
use std::path::{Path, PathBuf};

use umbo_routing::{ShardMapError, SuccessionError};

/// Why a [`crate::RedbStore`] could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder cannot be created, read or written.
    #[error("cannot {action} {path}: {source}{}", advice(source))]
    Folder {
        /// The action that failed, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another process has the folder open.
    #[error(
        "the data folder {folder} is in use by {holder}; stop it first, or choose another folder"
    )]
    InUse {
        /// The folder.
        folder: PathBuf,
        /// The process that uses it, if known.
        holder: String,
    },
    /// The manifest cannot be understood.
    #[error("{path} is not a manifest of Umbo: {reason}; restore it from a backup")]
    BadManifest {
        /// The manifest.
        path: PathBuf,
        /// The defect of the manifest.
        reason: String,
    },
    /// The copy of Umbo's own records cannot be understood.
    #[error(
        "{path} is not a copy of Umbo's own records: {reason}; restore it from a backup or from another node, or remove it: a dispatcher hands over a copy again, but until then a shard that moves here may serve rows of a namespace that was removed meanwhile"
    )]
    BadRecords {
        /// The file.
        path: PathBuf,
        /// The defect of the file.
        reason: String,
    },
    /// The slot ranges in the manifest are no shard map.
    #[error("the slot map in {path} is invalid: {source}; restore the file from a backup")]
    BadSlotMap {
        /// The manifest.
        path: PathBuf,
        /// The defect of the slot map.
        source: ShardMapError,
    },
    /// There are shard files but no manifest with their slots.
    #[error(
        "the data folder {folder} holds shard files but no umbo.json; restore umbo.json from a backup, or choose an empty folder"
    )]
    ManifestMissing {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder was written by a later version.
    #[error(
        "the data folder {folder} has format {found}, this version of Umbo reads formats up to {known}; use a newer version"
    )]
    NewerFormat {
        /// The folder.
        folder: PathBuf,
        /// Format of the folder.
        found: u32,
        /// The newest format known here.
        known: u32,
    },
    /// The folder was written by a version whose format is no longer read.
    #[error(
        "the data folder {folder} has format {found}, of an earlier version of Umbo; this version reads formats from {known} on: export the namespaces with the version that wrote it (umbo kv export), and import them into a new data folder"
    )]
    OlderFormat {
        /// The folder.
        folder: PathBuf,
        /// Format of the folder.
        found: u32,
        /// The oldest format known here.
        known: u32,
    },
    /// The number of shards differs from the folder's.
    #[error(
        "the data folder {folder} was created with {found} shards, but the configuration has {configured}; the number of shards is fixed at creation: configure {found} or leave it out"
    )]
    ShardCount {
        /// The folder.
        folder: PathBuf,
        /// Shards of the folder.
        found: u16,
        /// Shards of the configuration.
        configured: u16,
    },
    /// The number of shards is out of range.
    #[error("a store has 1 to {max} shards, not {configured}")]
    BadShardCount {
        /// Shards of the configuration.
        configured: u16,
        /// Most shards.
        max: u16,
    },
    /// The cluster's map does not contain the node.
    #[error(
        "the map of cluster '{cluster}' (version {version}) has no node '{node}'; its nodes are {}",
        nodes.join(", ")
    )]
    UnknownNode {
        /// The cluster.
        cluster: String,
        /// Version of the map.
        version: u64,
        /// The requested node.
        node: String,
        /// The nodes of the map.
        nodes: Vec<String>,
    },
    /// The folder of a standalone server, opened for a node of a cluster.
    #[error(
        "the data folder {folder} belongs to a standalone server, not to a node of cluster '{cluster}'; choose another folder"
    )]
    LoneFolder {
        /// The folder.
        folder: PathBuf,
        /// The cluster.
        cluster: String,
    },
    /// The folder of a node of a cluster, opened for another cluster, another node, or a standalone server.
    #[error(
        "the data folder {folder} belongs to node '{found_node}' of cluster '{found_cluster}', not to {opened_for}; choose another folder{}",
        rename_advice(*.is_same_cluster)
    )]
    OthersFolder {
        /// The folder.
        folder: PathBuf,
        /// The cluster of the folder.
        found_cluster: String,
        /// The node of the folder.
        found_node: String,
        /// The cluster and node, or standalone server, that it was opened for.
        opened_for: String,
        /// Whether both are nodes of one cluster.
        is_same_cluster: bool,
    },
    /// The folder has no manifest, and the node was not named.
    #[error("the data folder {folder} has no umbo.json; name the node that it is for")]
    NobodysFolder {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder has used a later map, or its node has received one.
    #[error(
        "the data folder {folder} has seen version {found} of the cluster's map, this is version {version}: a shard that has moved since must not be served here too; use the newest map ('umbo cluster map' fetches it from a node)"
    )]
    OlderMap {
        /// The folder.
        folder: PathBuf,
        /// The highest version that the node has used or received.
        found: u64,
        /// Version of the map.
        version: u64,
    },
    /// The map does not follow the map that the folder was opened with.
    #[error(transparent)]
    NoSuccessor(#[from] SuccessionError),
    /// A shard cannot be taken back from the node that it was given to.
    #[error("{path} cannot be taken back: {reason}")]
    NotReclaimed {
        /// The shard's file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The store has been closed.
    #[error("the data folder {folder} is not open any more")]
    Closed {
        /// The folder.
        folder: PathBuf,
    },
    /// The map gives the shards other slots than the folder.
    #[error(
        "the data folder {folder} has {found} shards with other slots than the map; slots are fixed for the life of a cluster: restore the cluster's map"
    )]
    OtherSlots {
        /// The folder.
        folder: PathBuf,
        /// Shards of the folder's cluster.
        found: u16,
    },
    /// A folder without a manifest holds files that belong to something else.
    #[error(
        "the data folder {} holds {}, which is not a file of cluster '{cluster}': {reason}; choose another folder",
        path.parent().unwrap_or(path).display(),
        path.file_name().unwrap_or_default().display()
    )]
    OthersFile {
        /// The file.
        path: PathBuf,
        /// The cluster.
        cluster: String,
        /// The defect of the file.
        reason: String,
    },
    /// A shard file could not be made in a new folder.
    #[error("cannot create {path}: {reason}")]
    Create {
        /// The shard's file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// A thread or a random number was not available.
    #[error("the system refused {what}: {source}")]
    System {
        /// The resource that was requested.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

fn rename_advice(is_same_cluster: bool) -> &'static str {
    if is_same_cluster {
        ", or, if the node has a new name, move its shard files to an empty folder"
    } else {
        ""
    }
}

/// Returns advice for an error of the system on a folder, with the separator before it; empty if the error
/// says enough.
fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AlreadyExists => "; it is a file, not a folder: choose another",
        io::ErrorKind::NotADirectory => {
            "; a part of this path is a file, not a folder: choose another"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; give the user that runs Umbo write access to the data folder, or choose another \
             folder"
        }
        _ => "",
    }
}

/// Returns a function that adds the action and the folder to an error of the system.
pub(crate) fn folder_error(
    action: &'static str,
    folder: &Path,
) -> impl FnOnce(io::Error) -> OpenError {
    let path = folder.to_owned();
    move |source| OpenError::Folder {
        action,
        path,
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: io::ErrorKind) -> String {
        let (action, path, source) = ("write", PathBuf::from("data"), kind.into());
        OpenError::Folder {
            action,
            path,
            source,
        }
        .to_string()
    }

    #[test]
    fn access_is_asked_for_only_where_it_is_missing() {
        for kind in [
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::ReadOnlyFilesystem,
        ] {
            assert!(message(kind).contains("write access"), "{kind}");
        }
        let full = message(io::ErrorKind::StorageFull);
        assert_eq!(
            full,
            format!("cannot write data: {}", io::ErrorKind::StorageFull)
        );
    }
}
