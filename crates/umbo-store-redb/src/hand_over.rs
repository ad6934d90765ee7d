//! Giving the files of a folder to the nodes that the map names, and taking them back.
//!
//! Owns the decision when which file is stamped. The order is always the same. First the version of the map is written
//! to the disk, so that no older map opens the folder. Then the file is stamped, so that only its new owner opens it or
//! a copy of it. Then the manifest records that it was given away.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use umbo_routing::{ClusterMap, ShardPlace};
use umbo_types::ShardId;

use crate::claim::{Giving, Last};
use crate::config::{ClusterMember, Config};
use crate::disk::Disk;
use crate::error::{OpenError, folder_error};
use crate::file_error::FileError;
use crate::folder_check::check_folder;
use crate::folder_lock::FolderLock;
use crate::kept_records::KeptRecords;
use crate::manifest::{Manifest, cluster_store_id, shard_files_in, shard_path};
use crate::opener::Opener;
use crate::plain_files::PlainFiles;
use crate::report::serialize_shard;
use crate::reserve::Reserve;
use crate::shard_file::ShardFile;
use crate::shard_ownership::{HandOverStamp, OwnerRecord};
use crate::tables::ShardIdentity;

/// Page cache of a file that is opened for one commit, in bytes; such a commit reads and writes a few pages.
const CACHE_BYTES: usize = 1 << 20;

/// Result of giving a file to another node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HandOver {
    /// The shard.
    #[serde(serialize_with = "serialize_shard")]
    pub shard: ShardId,
    /// File of the shard.
    pub file: PathBuf,
    /// Name of the node that owns the shard by the map.
    #[serde(rename = "to")]
    pub node: String,
    /// Moves of the shard by the map.
    pub moves: u32,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: HandOverOutcome,
}

/// Whether a file may be copied to its new node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", content = "reason", rename_all = "kebab-case")]
pub enum HandOverOutcome {
    /// The file is stamped now, and may be copied.
    Given,
    /// The file was given away before, to the owner that the text names.
    GivenBefore(String),
    /// This node may not give the file away, for this reason.
    Kept(String),
    /// The file could not be read or written, for this reason.
    Failed(String),
}

/// A shard whose file says that it was given to another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenShard {
    /// The shard.
    pub shard: ShardId,
    /// File of the shard.
    pub file: PathBuf,
    /// Name of the node that it was given to.
    pub node: String,
    /// Host and port of that node at that time; empty if unknown.
    pub address: String,
    /// Count of moves of the shard under which that node opens it.
    pub moves: u32,
    /// Version of the map that gave it away.
    pub map_version: u64,
}

/// Gives files that a store has closed or found to their owners by the map. A file that cannot be stamped
/// opens nowhere else.
pub(crate) fn give_files(
    config: &Config,
    member: &ClusterMember,
    manifest: &mut Manifest,
    opener: &Arc<dyn Opener>,
    files: &[(ShardId, Last)],
) -> Result<Vec<HandOver>, OpenError> {
    let mut handed_over = Vec::new();
    let mut is_news = false;
    for &(shard, last) in files {
        let Some(place) = member.map.place_of(shard) else {
            continue;
        };
        let file = plain_file(
            &config.folder,
            cluster_store_id(member.map.cluster_id()),
            shard,
            opener,
        );
        let stamp = stamp_of(&member.map, place);
        let given = file.give(&member.node, &stamp, manifest.remembered(shard), last);
        let outcome = match given {
            Ok(Giving::Given) => {
                is_news |= manifest.note_given(shard, &stamp.owner);
                if let Err(reason) = Reserve::remove_beside(&**opener, &file.path) {
                    tracing::warn!(file = %file.path.display(), %reason, "its reserve stays");
                }
                HandOverOutcome::Given
            }
            Ok(Giving::GivenBefore(before)) => {
                is_news |= manifest.note_given(shard, &before.owner);
                HandOverOutcome::GivenBefore(before.to_string())
            }
            Ok(Giving::Kept(reason)) => HandOverOutcome::Kept(reason),
            Err(failure) => HandOverOutcome::Failed(failure.to_string()),
        };
        let hand_over = HandOver {
            shard,
            file: file.path,
            node: place.node.clone(),
            moves: place.moves,
            outcome,
        };
        log(&hand_over);
        handed_over.push(hand_over);
    }
    if is_news {
        manifest.write(&config.folder)?;
    }
    Ok(handed_over)
}

fn log(hand_over: &HandOver) {
    let HandOver {
        shard,
        file,
        node,
        moves,
        outcome,
    } = hand_over;
    let (file, shard) = (file.display(), shard.0);
    match outcome {
        HandOverOutcome::Given => {
            tracing::info!(shard, %file, node, moves, "gave a shard away; its file may be copied now");
        }
        HandOverOutcome::GivenBefore(to) => {
            tracing::debug!(shard, %file, to, "the file of a shard was given away before");
        }
        HandOverOutcome::Kept(reason) => {
            tracing::warn!(shard, %file, node, moves, reason, "the file of a shard is not given away");
        }
        HandOverOutcome::Failed(reason) => {
            tracing::error!(
                shard, %file, node, moves, reason,
                "the file of a shard could not be given away; stop the node, run 'umbo shard release', \
                 and copy the file then"
            );
        }
    }
}

/// Gives away the files of shards that the map has given to other nodes while the node did not run.
pub(crate) fn give_leftovers(
    config: &Config,
    member: &ClusterMember,
    manifest: &mut Manifest,
    opener: &Arc<dyn Opener>,
) -> Result<Vec<HandOver>, OpenError> {
    let folder = &config.folder;
    let found = shard_files_in(folder).map_err(folder_error("read", folder))?;
    // A file that this folder has never used is not its own, and a file that was given away is left alone.
    let is_left = |shard: &ShardId| {
        member.map.place_of(*shard).is_some_and(|place| {
            place.node != member.node
                && manifest.has_held(*shard)
                && manifest.remembered(*shard).given < Some(place.moves)
        })
    };
    let left: Vec<_> = found
        .into_iter()
        .map(|(shard, _)| shard)
        .filter(is_left)
        .map(|shard| (shard, Last::ByRecords))
        .collect();
    give_files(config, member, manifest, opener, &left)
}

/// Gives the files of a node that is not running to their owners by `map`, so that they may be copied: the
/// files of `shards`, or, if that is empty, of all shards that the map has given to other nodes. The node
/// need not be in the map any more. With `is_vouched` an operator declares that the files are the newest of
/// their shards, even if the map counts more moves than the files have made.
pub fn release_shards(
    folder: &Path,
    map: &Arc<ClusterMap>,
    shards: &[ShardId],
    is_vouched: bool,
) -> Result<Vec<HandOver>, OpenError> {
    let mut locked = LockedFolder::lock(folder, map)?;
    locked.note_version(map.version())?;
    let found = shard_files_in(folder).map_err(folder_error("read", folder))?;
    let is_meant = |shard: &ShardId| {
        let place = map.place_of(*shard);
        place.is_some_and(|place| place.node != locked.member.node)
            && (shards.is_empty() || shards.contains(shard))
    };
    let last = if is_vouched {
        Last::Certain
    } else {
        Last::ByRecords
    };
    let files: Vec<_> = found
        .into_iter()
        .map(|(shard, _)| shard)
        .filter(is_meant)
        .map(|shard| (shard, last))
        .collect();
    let LockedFolder {
        config,
        member,
        manifest,
        ..
    } = &mut locked;
    give_files(config, member, manifest, &plain_files(), &files)
}

/// Returns the shards of a node that is not running whose files were given to other nodes, in order.
pub fn given_shards(folder: &Path, map: &Arc<ClusterMap>) -> Result<Vec<GivenShard>, OpenError> {
    let locked = LockedFolder::lock(folder, map)?;
    let mut given = Vec::new();
    for (shard, path) in shard_files_in(folder).map_err(folder_error("read", folder))? {
        let file = plain_file(
            folder,
            cluster_store_id(map.cluster_id()),
            shard,
            &plain_files(),
        );
        let stamp = file.stamp().map_err(not_reclaimed(&path))?;
        let is_anothers = |stamp: &HandOverStamp| stamp.owner.node != locked.member.node;
        given.extend(stamp.filter(is_anothers).map(|stamp| GivenShard {
            shard,
            file: path,
            node: stamp.owner.node,
            address: stamp.address,
            moves: stamp.owner.moves,
            map_version: stamp.map_version,
        }));
    }
    Ok(given)
}

/// Takes back a shard that was given to another node and never opened there, as an operator declares. The map must be
/// newer than the map that gave the shard away, and count both the move there and the move back. The folder opens the
/// shard under this map.
pub fn reclaim_shard(
    folder: &Path,
    map: &Arc<ClusterMap>,
    shard: ShardId,
) -> Result<(), OpenError> {
    let mut locked = LockedFolder::lock(folder, map)?;
    let file = plain_file(
        folder,
        cluster_store_id(map.cluster_id()),
        shard,
        &plain_files(),
    );
    let refused = |reason: String| OpenError::NotReclaimed {
        path: file.path.clone(),
        reason,
    };
    let place = map.place_of(shard);
    let place = place.ok_or_else(|| refused(format!("the map has no shard {shard}")))?;
    let stamp = stamp_of(map, place);
    let allows = |before: &HandOverStamp| {
        if place.node == locked.member.node && place.moves > before.owner.moves {
            return Ok(());
        }
        Err(format!(
            "it was {before}, and version {} of the map has the shard on node '{}' after {} moves; plan \
             the way back with 'umbo cluster plan --move {shard}={}', and name that map",
            map.version(),
            place.node,
            place.moves,
            locked.member.node
        ))
    };
    let taken_back = file.take_back(&locked.member.node, &stamp, allows);
    taken_back.map_err(not_reclaimed(&file.path))?;
    locked.manifest.note_given(shard, &stamp.owner);
    locked.manifest.note_version(map.version());
    locked.manifest.write(folder)
}

/// Records a version of the map that the node has received in the folder of a node that is not running, so that the
/// node never opens under an older map. Does nothing if there is no folder yet.
pub fn note_map_version(
    folder: &Path,
    map: &Arc<ClusterMap>,
    version: u64,
) -> Result<(), OpenError> {
    if Manifest::read(folder)?.is_none() {
        return Ok(());
    }
    LockedFolder::lock(folder, map)?.note_version(version)
}

/// The locked folder of a node that is not running.
struct LockedFolder {
    config: Config,
    member: ClusterMember,
    manifest: Manifest,
    _lock: FolderLock,
}

impl LockedFolder {
    /// Locks a folder, which must belong to the map's cluster and must not have used a later map.
    fn lock(folder: &Path, map: &Arc<ClusterMap>) -> Result<Self, OpenError> {
        let nobodys = || OpenError::NobodysFolder {
            folder: folder.to_owned(),
        };
        // A folder that is not a data folder is not touched, not even by a lock.
        Manifest::read(folder)?.ok_or_else(nobodys)?;
        let lock = FolderLock::take(folder)?;
        let manifest = Manifest::read(folder)?.ok_or_else(nobodys)?;
        let owner = manifest.owner();
        let locked = Self {
            config: Config {
                folder: folder.to_owned(),
                ..Config::default()
            },
            member: ClusterMember {
                map: Arc::clone(map),
                node: owner.map_or("", |owner| owner.node).to_owned(),
                create_missing: Vec::new(),
                accept: Vec::new(),
            },
            manifest,
            _lock: lock,
        };
        check_folder(&locked.config, &locked.member, &locked.manifest)?;
        Ok(locked)
    }

    fn note_version(&mut self, version: u64) -> Result<(), OpenError> {
        if self.manifest.note_version(version) {
            self.manifest.write(&self.config.folder)?;
        }
        Ok(())
    }
}

fn not_reclaimed(path: &Path) -> impl FnOnce(FileError) -> OpenError {
    move |failure| OpenError::NotReclaimed {
        path: path.to_owned(),
        reason: failure.to_string(),
    }
}

fn plain_files() -> Arc<dyn Opener> {
    Arc::new(PlainFiles)
}

/// Describes the file of a shard, independent of the node that owns it.
pub(crate) fn plain_file(
    folder: &Path,
    store_id: u64,
    shard: ShardId,
    opener: &Arc<dyn Opener>,
) -> ShardFile {
    ShardFile {
        has_log: false,
        path: shard_path(folder, shard),
        identity: ShardIdentity {
            store_id,
            shard: shard.0,
        },
        ownership: None,
        cache_bytes: CACHE_BYTES,
        idempotency_bytes_max: 0,
        opener: Arc::clone(opener),
        disk: Disk::new(Arc::clone(opener)),
        kept: Arc::new(KeptRecords::none()),
    }
}

fn stamp_of(map: &ClusterMap, place: &ShardPlace) -> HandOverStamp {
    let node = map.node(&place.node);
    HandOverStamp {
        owner: OwnerRecord {
            node: place.node.clone(),
            moves: place.moves,
        },
        address: node.map_or_else(String::new, |node| node.address().to_owned()),
        map_version: map.version(),
    }
}
