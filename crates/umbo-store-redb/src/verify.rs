//! Looking at the folder of a node without opening it for use.
//!
//! Reads only: not a byte of a file is touched, so it may be done while a node runs, if not just while
//! it starts: a file that is being read cannot be opened for use.
//! The invariant: what is found good here is opened by the node, unless it changes in between.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbo_routing::ClusterMap;
use umbo_types::ShardId;

use crate::config::{ClusterMember, Config};
use crate::error::{OpenError, folder_error};
use crate::manifest::{Manifest, shard_files_in};
use crate::member_folder::{check_member, missing, shard_files};
use crate::shard_file::{Inspection, Opener, PlainFiles, ShardFile};

/// What the folder of a node holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderCheck {
    /// The node whose folder it is.
    pub node: String,
    /// Each shard that the map gives the node, in order.
    pub files: Vec<FileCheck>,
    /// Files of shards that the node does not have.
    pub others: Vec<PathBuf>,
}

/// What there is of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileCheck {
    /// The shard.
    pub shard: ShardId,
    /// Its file.
    pub file: PathBuf,
    /// What was found.
    pub state: FileState,
}

/// Whether a node would open a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileState {
    /// It would.
    Good,
    /// It would; the file was not closed, and recovers then.
    Unclosed,
    /// A process has it open, so that nothing more is known of it.
    InUse,
    /// There is none, and the node would begin it: the cluster is new.
    New,
    /// It would not, and why.
    Bad(String),
}

/// Looks at the folder of a node of a cluster: whose it is, and whether each shard that the map
/// gives the node is there, is the cluster's, and is the last of its shard. Without a node, the one
/// whose folder it says it is.
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
    let files = shard_files(&config, &member, &opener);
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
