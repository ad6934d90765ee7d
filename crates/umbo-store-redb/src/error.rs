//! Why a data folder could not be opened. Each message says what to do.
//!
//! A shard that cannot be opened is not an error here: it is reported by
//! [`crate::OpenReport`] and answers errors for its own keys.

use std::io;
use std::path::{Path, PathBuf};

use umbo_routing::{ShardMapError, SuccessionError};

/// Says why a [`crate::RedbStore`] could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder cannot be created, read or written.
    #[error("cannot {action} {path}: {source}{}", advice(source))]
    Folder {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has the folder open.
    #[error(
        "the data folder {folder} is in use by {holder}; stop it first, or choose another folder"
    )]
    InUse {
        /// The folder.
        folder: PathBuf,
        /// Who uses it, as far as is known.
        holder: String,
    },
    /// The manifest cannot be understood.
    #[error("{path} is not a manifest of Umbo: {reason}; restore it from a backup")]
    BadManifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The slot ranges in the manifest are no shard map.
    #[error("the slot map in {path} is invalid: {source}; restore the file from a backup")]
    BadSlotMap {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        source: ShardMapError,
    },
    /// There are shard files but nothing says which slots they hold.
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
        /// Its format.
        found: u32,
        /// The newest format known here.
        known: u32,
    },
    /// The number of shards differs from the folder's.
    #[error(
        "the data folder {folder} was created with {found} shards, the configuration says {configured}; the number of shards is fixed at creation: configure {found} or none"
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
    /// The cluster's map does not know the node.
    #[error(
        "the map of cluster '{cluster}' (version {version}) has no node '{node}', but {}",
        nodes.join(", ")
    )]
    UnknownNode {
        /// The cluster.
        cluster: String,
        /// Version of the map.
        version: u64,
        /// The node that was asked for.
        node: String,
        /// The nodes there are.
        nodes: Vec<String>,
    },
    /// The folder of a server on its own, opened for a node of a cluster.
    #[error(
        "the data folder {folder} belongs to a server on its own, not to a node of cluster '{cluster}'; choose another folder"
    )]
    LoneFolder {
        /// The folder.
        folder: PathBuf,
        /// The cluster.
        cluster: String,
    },
    /// The folder of a node of a cluster, opened for another cluster, another node, or a server on
    /// its own.
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
        /// Who opens it.
        opened_for: String,
        /// Whether both are nodes of one cluster.
        is_same_cluster: bool,
    },
    /// A folder that does not say whose it is.
    #[error("the data folder {folder} has no umbo.json; say which node it is for")]
    NobodysFolder {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder has been under a later map.
    #[error(
        "the data folder {folder} has been opened with version {found} of the cluster's map, this is version {version}: use the newest one"
    )]
    OlderMap {
        /// The folder.
        folder: PathBuf,
        /// The highest version the folder has seen.
        found: u64,
        /// Version of the map.
        version: u64,
    },
    /// The map does not follow the one that the folder was opened with.
    #[error(transparent)]
    NoSuccessor(#[from] SuccessionError),
    /// The store has been closed.
    #[error("the data folder {folder} is not open any more")]
    Closed {
        /// The folder.
        folder: PathBuf,
    },
    /// The map gives the shards other slots than the folder.
    #[error(
        "the data folder {folder} has {found} shards with slots of their own, the map divides the slots otherwise; they are fixed for the life of a cluster: restore its map"
    )]
    OtherSlots {
        /// The folder.
        folder: PathBuf,
        /// Shards of the folder's cluster.
        found: u16,
    },
    /// A folder without a manifest holds files of something else.
    #[error(
        "the data folder {} holds {}, which is no file of cluster '{cluster}': {reason}; choose another folder",
        path.parent().unwrap_or(path).display(),
        path.file_name().unwrap_or_default().display()
    )]
    OthersFile {
        /// The file.
        path: PathBuf,
        /// The cluster.
        cluster: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A shard file could not be made in a new folder.
    #[error("cannot create {path}: {reason}")]
    Create {
        /// The shard's file.
        path: PathBuf,
        /// What went wrong.
        reason: String,
    },
    /// A thread or random number could not be had.
    #[error("the system refused {what}: {source}")]
    System {
        /// What was asked of the system.
        what: &'static str,
        /// What it said.
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

/// Returns what can be done where the system refused a folder, with what separates it from the
/// words before; nothing where its own words are all there is to say.
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

/// Says of what the system said on which folder.
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
