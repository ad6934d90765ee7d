//! The manifest of a data folder, `umbo.json`: the number of its shards and the slots that they own.
//!
//! Owns the file's format and its atomic replacement. The invariant: a folder has shard files of a standalone server
//! only together with a manifest. While the state of the manifest is `creating`, nothing was ever acknowledged, so an
//! interrupted creation may be begun again. In a cluster the files belong to the cluster and may come and go; the
//! manifest records which of them this folder has had.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use umbo_routing::{ShardMap, SlotRange};
use umbo_types::{ShardId, Timestamp};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::config::ClusterMember;
use crate::error::OpenError;
use crate::replaced_file::{replace_file, sync_folder};
use crate::shard_ownership::{OwnerRecord, Remembered};

const FILE_NAME: &str = "umbo.json";
/// Format of the folder of a standalone server.
const FORMAT_ALONE: u32 = 3;
/// Format of the folder of a cluster node. A standalone server does not open it.
const FORMAT_CLUSTER: u32 = 4;
/// The oldest readable format. Folders of formats 1 and 2 have copies of Umbo's own records in every shard
/// and no fences.
const FORMAT_MIN: u32 = FORMAT_ALONE;
/// Separates the ids of clusters from other uses of the same hash.
const CLUSTER_SEED: u64 = u64::from_be_bytes(*b"clusters");
/// Most shards of one folder: each costs a thread, a file and a part of the cache.
pub(crate) const SHARDS_MAX: u16 = 512;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StoredManifest {
    format: u32,
    state: CreationState,
    store_id: String,
    created_ms: u64,
    shards: u16,
    slots: Vec<StoredRange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cluster: Option<StoredCluster>,
}

/// The cluster state in the manifest of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StoredCluster {
    id: String,
    node: String,
    /// Highest version of the map that the node has used or received.
    map_version: u64,
    /// Shards whose file the folder has or had.
    held: BTreeSet<u16>,
    /// Highest count of moves with which the folder has opened each shard.
    #[serde(default)]
    claimed: BTreeMap<u16, u32>,
    /// Highest count of moves with which the folder has given each shard to another node.
    #[serde(default)]
    given: BTreeMap<u16, u32>,
}

/// The format alone, to distinguish a later version from a damaged file.
#[derive(Deserialize)]
struct StoredFormat {
    format: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CreationState {
    Creating,
    Ready,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct StoredRange {
    first: u16,
    last: u16,
    shard: u16,
}

/// The manifest of a data folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    stored: StoredManifest,
    /// The slots of each shard.
    pub(crate) shard_map: ShardMap,
    /// Ties the shard files to this folder (a random number) or to its cluster.
    pub(crate) store_id: u64,
}

impl Manifest {
    /// Describes a new folder whose shard files do not exist yet.
    pub(crate) fn new(shards: u16, created: Timestamp) -> Result<Self, OpenError> {
        let bad_count = OpenError::BadShardCount {
            configured: shards,
            max: SHARDS_MAX,
        };
        if shards > SHARDS_MAX {
            return Err(bad_count);
        }
        let shard_map = ShardMap::even(shards).map_err(|_| bad_count)?;
        let store_id = getrandom::u64().map_err(|error| OpenError::System {
            what: "a random number",
            source: io::Error::other(error.to_string()),
        })?;
        Ok(Self {
            stored: StoredManifest {
                format: FORMAT_ALONE,
                state: CreationState::Creating,
                store_id: format!("{store_id:016x}"),
                created_ms: created.as_millis(),
                shards,
                slots: stored_ranges(&shard_map),
                cluster: None,
            },
            shard_map,
            store_id,
        })
    }

    /// Describes a new folder of a cluster node, without shard files.
    pub(crate) fn of_member(member: &ClusterMember, created: Timestamp) -> Self {
        let store_id = cluster_store_id(member.map.cluster_id());
        let shard_map = ShardMap::clone(member.map.shard_map());
        Self {
            stored: StoredManifest {
                format: FORMAT_CLUSTER,
                state: CreationState::Ready,
                store_id: format!("{store_id:016x}"),
                created_ms: created.as_millis(),
                shards: member.map.shards(),
                slots: stored_ranges(&shard_map),
                cluster: Some(StoredCluster {
                    id: member.map.cluster_id().to_owned(),
                    node: member.node.clone(),
                    map_version: member.map.version(),
                    held: BTreeSet::new(),
                    claimed: BTreeMap::new(),
                    given: BTreeMap::new(),
                }),
            },
            shard_map,
            store_id,
        }
    }

    /// Reads the manifest of a folder, or returns `None` if the folder has no manifest.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>, OpenError> {
        let path = folder.join(FILE_NAME);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => {
                return Err(OpenError::Folder {
                    action: "read",
                    path,
                    source,
                });
            }
        };
        let bad = |reason: String| OpenError::BadManifest {
            path: path.clone(),
            reason,
        };
        let StoredFormat { format } =
            serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
        if format < FORMAT_MIN {
            return Err(OpenError::OlderFormat {
                folder: folder.to_owned(),
                found: format,
                known: FORMAT_MIN,
            });
        }
        if format > FORMAT_CLUSTER {
            return Err(OpenError::NewerFormat {
                folder: folder.to_owned(),
                found: format,
                known: FORMAT_CLUSTER,
            });
        }
        let stored: StoredManifest =
            serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
        let store_id = u64::from_str_radix(&stored.store_id, 16)
            .map_err(|_| bad(format!("store_id {:?} is not a number", stored.store_id)))?;
        check_cluster(&stored, store_id).map_err(|reason| bad(reason.to_owned()))?;
        let shard_map = checked_map(&stored, &path)?;
        Ok(Some(Self {
            stored,
            shard_map,
            store_id,
        }))
    }

    /// Replaces the manifest of a folder atomically, also across a crash.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), OpenError> {
        let write = || -> io::Result<()> {
            let mut text = serde_json::to_vec_pretty(&self.stored)?;
            text.push(b'\n');
            replace_file(folder, FILE_NAME, &text)
        };
        write().map_err(|source| OpenError::Folder {
            action: "write",
            path: folder.join(FILE_NAME),
            source,
        })
    }

    /// Records that all shard files exist.
    pub(crate) fn set_ready(&mut self) {
        self.stored.state = CreationState::Ready;
    }

    /// Returns whether all shard files have existed.
    pub(crate) fn is_ready(&self) -> bool {
        self.stored.state == CreationState::Ready
    }

    /// Returns the number of shards. In a cluster this is the number of shards of all nodes.
    pub(crate) fn shards(&self) -> u16 {
        self.stored.shards
    }

    /// Returns the cluster and node that the folder belongs to, or `None` for a standalone server.
    pub(crate) fn owner(&self) -> Option<FolderOwner<'_>> {
        let cluster = self.stored.cluster.as_ref()?;
        Some(FolderOwner {
            cluster: &cluster.id,
            node: &cluster.node,
            map_version: cluster.map_version,
        })
    }

    /// Returns whether the folder of a node has or had the file of a shard.
    pub(crate) fn has_held(&self, shard: ShardId) -> bool {
        let cluster = self.stored.cluster.as_ref();
        cluster.is_some_and(|cluster| cluster.held.contains(&shard.0))
    }

    /// Returns the record of a shard in the folder of a node.
    pub(crate) fn remembered(&self, shard: ShardId) -> Remembered {
        let cluster = self.stored.cluster.as_ref();
        cluster.map_or_else(Remembered::default, |cluster| Remembered {
            claimed: cluster.claimed.get(&shard.0).copied(),
            given: cluster.given.get(&shard.0).copied(),
        })
    }

    /// Records a version of the map that the node uses or has received. Returns whether that changes the
    /// manifest.
    pub(crate) fn note_version(&mut self, version: u64) -> bool {
        self.note(|cluster| cluster.map_version = cluster.map_version.max(version))
    }

    /// Records that the folder has the file of a shard. Returns whether that changes the manifest.
    pub(crate) fn note_held(&mut self, shard: ShardId) -> bool {
        self.note(|cluster| {
            cluster.held.insert(shard.0);
        })
    }

    /// Records that the folder has opened a shard with this count of moves. Returns whether that changes the
    /// manifest.
    pub(crate) fn note_claimed(&mut self, shard: ShardId, moves: u32) -> bool {
        self.note(|cluster| raise(&mut cluster.claimed, shard, moves))
    }

    /// Records that the folder has given a shard to an owner: to another node, or, if the shard was taken
    /// back, to its own node. Returns whether that changes the manifest.
    pub(crate) fn note_given(&mut self, shard: ShardId, owner: &OwnerRecord) -> bool {
        self.note(|cluster| {
            if owner.node == cluster.node {
                cluster.given.remove(&shard.0);
            } else {
                raise(&mut cluster.given, shard, owner.moves);
            }
        })
    }

    fn note(&mut self, change: impl FnOnce(&mut StoredCluster)) -> bool {
        let Some(cluster) = &mut self.stored.cluster else {
            return false;
        };
        let before = cluster.clone();
        change(cluster);
        *cluster != before
    }
}

fn raise(counts: &mut BTreeMap<u16, u32>, shard: ShardId, moves: u32) {
    let highest = counts.entry(shard.0).or_default();
    *highest = moves.max(*highest);
}

/// The cluster and node that a folder belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FolderOwner<'a> {
    /// The cluster.
    pub(crate) cluster: &'a str,
    /// The node.
    pub(crate) node: &'a str,
    /// Highest version of the map that the node has used or received.
    pub(crate) map_version: u64,
}

/// Returns the number that ties shard files to a cluster. The cluster's name must be unique.
pub(crate) fn cluster_store_id(cluster: &str) -> u64 {
    xxh3_64_with_seed(cluster.as_bytes(), CLUSTER_SEED)
}

fn check_cluster(stored: &StoredManifest, store_id: u64) -> Result<(), &'static str> {
    match &stored.cluster {
        None if stored.format == FORMAT_ALONE => Ok(()),
        Some(cluster) if stored.format == FORMAT_CLUSTER => {
            if cluster_store_id(&cluster.id) != store_id {
                return Err("store_id does not match the cluster");
            }
            Ok(())
        }
        _ => Err("its format contradicts 'cluster'"),
    }
}

fn stored_ranges(map: &ShardMap) -> Vec<StoredRange> {
    let ranges = map.ranges();
    let ranges = ranges.iter().map(|range| StoredRange {
        first: range.first,
        last: range.last,
        shard: range.shard.0,
    });
    ranges.collect()
}

fn checked_map(stored: &StoredManifest, path: &Path) -> Result<ShardMap, OpenError> {
    let bad = |reason| OpenError::BadManifest {
        path: path.to_owned(),
        reason,
    };
    if stored.shards == 0 || stored.shards > SHARDS_MAX {
        return Err(bad(format!(
            "it has {} shards, expected 1 to {SHARDS_MAX}",
            stored.shards
        )));
    }
    if let Some(range) = stored.slots.iter().find(|r| r.shard >= stored.shards) {
        return Err(bad(format!(
            "slots {}-{} belong to shard {}, but there are {} shards, counted from 0",
            range.first, range.last, range.shard, stored.shards
        )));
    }
    let ranges: Vec<SlotRange> = stored
        .slots
        .iter()
        .map(|range| SlotRange {
            first: range.first,
            last: range.last,
            shard: ShardId(range.shard),
        })
        .collect();
    ShardMap::from_ranges(&ranges).map_err(|source| OpenError::BadSlotMap {
        path: path.to_owned(),
        source,
    })
}

/// Returns the path of a shard's file.
pub(crate) fn shard_path(folder: &Path, shard: ShardId) -> PathBuf {
    folder.join(shard_file_name(shard))
}

/// Returns the name of a shard's file, the same in every data folder.
pub fn shard_file_name(shard: ShardId) -> String {
    format!("shard-{:03}.redb", shard.0)
}

/// Returns the shard files of a folder, recognised by name, in order.
pub(crate) fn shard_files_in(folder: &Path) -> io::Result<Vec<(ShardId, PathBuf)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| {
            let number = name.strip_prefix("shard-")?.strip_suffix(".redb")?;
            number.parse().ok()
        });
        if let Some(number) = number {
            files.push((ShardId(number), entry.path()));
        }
    }
    files.sort();
    Ok(files)
}

/// Creates a folder and its missing parents, so that their names survive a crash.
pub(crate) fn create_folder(folder: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = folder
        .ancestors()
        .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists())
        .collect();
    std::fs::create_dir_all(folder)?;
    // A folder's name is on the disk once the folder above it is, from the top down.
    for created in missing.iter().rev() {
        match created.parent() {
            Some(above) if above.as_os_str().is_empty() => sync_folder(Path::new("."))?,
            Some(above) => sync_folder(above)?,
            None => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(edit: impl FnOnce(&mut serde_json::Value)) -> Result<Option<Manifest>, OpenError> {
        let folder = tempfile::tempdir().unwrap();
        let mut manifest = Manifest::new(4, Timestamp(5_000)).unwrap();
        manifest.set_ready();
        manifest.write(folder.path()).unwrap();
        let path = folder.path().join(FILE_NAME);
        let mut json = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        edit(&mut json);
        std::fs::write(&path, json.to_string()).unwrap();
        let read = Manifest::read(folder.path());
        if let Ok(Some(read)) = &read {
            assert_eq!(read, &manifest);
        }
        read
    }

    #[test]
    fn a_manifest_comes_back() {
        assert!(written(|_| ()).unwrap().unwrap().is_ready());
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(Manifest::read(empty.path()).unwrap(), None);
    }

    #[test]
    fn a_bad_manifest_is_refused_with_the_reason() {
        let refused = |edit: fn(&mut serde_json::Value)| written(edit).unwrap_err().to_string();
        assert!(refused(|json| json["format"] = 5.into()).contains("format 5"));
        let older = refused(|json| json["format"] = 1.into());
        assert!(
            older.contains("format 1") && older.contains("umbo kv export"),
            "{older}"
        );
        assert!(refused(|json| json["format"] = 2.into()).contains("format 2"));
        assert!(refused(|json| json["format"] = 4.into()).contains("contradicts 'cluster'"));
        assert!(refused(|json| json["slots"][0]["last"] = 7.into()).contains("slot 8"));
        assert!(refused(|json| json["slots"][1]["shard"] = 4.into()).contains("shard 4"));
        assert!(refused(|json| json["shards"] = 0.into()).contains("0 shards"));
        assert!(refused(|json| json["store_id"] = "x".into()).contains("store_id"));
        assert!(refused(|json| *json = "text".into()).contains("umbo.json"));
    }

    #[test]
    fn a_folder_is_made_with_those_above_it() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("a/b/c");
        create_folder(&folder).unwrap();
        assert!(folder.is_dir());
        create_folder(&folder).unwrap();
        let file = above.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(create_folder(&file).is_err());
    }

    #[test]
    fn too_many_shards_are_refused() {
        for shards in [0, SHARDS_MAX + 1] {
            let error = Manifest::new(shards, Timestamp(0)).unwrap_err();
            assert!(
                matches!(error, OpenError::BadShardCount { configured, .. } if configured == shards)
            );
        }
    }
}
