//! Inspection of a node's folder without opening it for use.
//!
//! Reads only: no byte of a file is changed, so a folder may be inspected while its node runs, but not while
//! the node starts: a file that is being read cannot be opened for use. The invariant: a file that is
//! reported good here is opened by the node, unless it changes in between.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use umbo_routing::ClusterMap;
use umbo_types::ShardId;

use crate::config::{ClusterMember, Config};
use crate::error::{OpenError, folder_error};
use crate::folder_check::check_member;
use crate::kept_records::KeptRecords;
use crate::manifest::{Manifest, shard_files_in};
use crate::member_folder::{missing, shard_files};
use crate::opener::Opener;
use crate::plain_files::PlainFiles;
use crate::report::serialize_shard;
use crate::shard_file::{Inspection, ShardFile};

/// Content of a node's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderCheck {
    /// The node that the folder belongs to.
    pub node: String,
    /// Each shard that the map assigns to the node, in order.
    pub files: Vec<FileCheck>,
    /// Files of shards that the node does not have.
    pub others: Vec<PathBuf>,
}

/// Result of inspecting one shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileCheck {
    /// The shard.
    #[serde(serialize_with = "serialize_shard")]
    pub shard: ShardId,
    /// File of the shard.
    pub file: PathBuf,
    /// Result of the inspection.
    #[serde(flatten)]
    pub state: FileState,
}

/// Whether a node would open a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", content = "reason", rename_all = "kebab-case")]
pub enum FileState {
    /// The node would open the file.
    Good,
    /// The file was not closed: the node recovers it first, and opens it if it is the newest file of its shard. If redb
    /// has to repair the file, this is not known before the repair.
    Unclosed,
    /// Unknown, because a process has the file open.
    InUse,
    /// The file is missing, and the node would create it: the cluster is new.
    New,
    /// The node would not open the file, for this reason.
    Bad(String),
}

/// Inspects the folder of a cluster node: its owner, and whether the file of each shard that the map assigns
/// to the node exists, belongs to the cluster, and is the newest of its shard. Without a node, the owner that
/// the folder names is used.
pub fn verify_folder(
    folder: &Path,
    map: &Arc<ClusterMap>,
    node: Option<&str>,
) -> Result<FolderCheck, OpenError> {
    let found = shard_files_in(folder).map_err(folder_error("read", folder))?;
    let manifest = Manifest::read(folder)?;
    let owner = manifest.as_ref().and_then(Manifest::owner);
    let node = node.or(owner.map(|owner| owner.node));
    let member = ClusterMember {
        map: Arc::clone(map),
        node: node.unwrap_or_default().to_owned(),
        create_missing: Vec::new(),
        accept: Vec::new(),
    };
    let config = Config {
        folder: folder.to_owned(),
        ..Config::default()
    };
    if manifest.is_none() && member.node.is_empty() {
        return Err(OpenError::NobodysFolder {
            folder: config.folder,
        });
    }
    check_member(&config, &member, manifest.as_ref())?;
    let opener: Arc<dyn Opener> = Arc::new(PlainFiles);
    let kept = Arc::new(KeptRecords::none());
    let files = shard_files(&config, &member, manifest.as_ref(), &opener, &kept);
    let is_own = |shard| files.iter().any(|file| file.shard() == shard);
    let others = found.into_iter().filter(|(shard, _)| !is_own(*shard));
    Ok(FolderCheck {
        others: others.map(|(_, path)| path).collect(),
        files: files
            .iter()
            .map(|file| FileCheck {
                shard: file.shard(),
                file: file.path.clone(),
                state: state(file, &member, manifest.as_ref()),
            })
            .collect(),
        node: member.node,
    })
}

fn state(file: &ShardFile, member: &ClusterMember, manifest: Option<&Manifest>) -> FileState {
    if !file.path.try_exists().unwrap_or(true) {
        return match missing(file.shard(), member, manifest) {
            None => FileState::New,
            Some(reason) => FileState::Bad(reason),
        };
    }
    match file.inspect() {
        Ok(Inspection::Closed) => FileState::Good,
        Ok(Inspection::Unclosed) => FileState::Unclosed,
        Ok(Inspection::InUse) => FileState::InUse,
        Err(failure) => FileState::Bad(failure.to_string()),
    }
}
