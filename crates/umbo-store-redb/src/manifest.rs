//! The manifest of a data folder, `umbo.json`: how many shards it has and which slots they own.
//!
//! Owns the file's format and its atomic replacement. The invariant: the shard files of a server on
//! its own exist only beside a manifest; as long as that says `creating` nothing was ever
//! acknowledged, so an interrupted creation may be begun again. In a cluster the files belong to
//! the cluster and may come and go; the manifest remembers which of them this folder has had.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use umbo_routing::{ShardMap, SlotRange};
use umbo_types::{ShardId, Timestamp};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::config::ClusterMember;
use crate::error::OpenError;

const FILE_NAME: &str = "umbo.json";
/// Format of the folder of a server on its own.
const FORMAT_ALONE: u32 = 1;
/// Format of the folder of a node of a cluster, which earlier versions of Umbo cannot open.
const FORMAT_CLUSTER: u32 = 2;
/// Sets the numbers of clusters apart from other uses of the same hash.
const CLUSTER_SEED: u64 = u64::from_be_bytes(*b"clusters");
/// Most shards of one folder: each costs a thread, a file and a part of the cache.
pub(crate) const SHARDS_MAX: u16 = 512;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stored {
    format: u32,
    state: State,
    store_id: String,
    created_ms: u64,
    shards: u16,
    slots: Vec<StoredRange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cluster: Option<StoredCluster>,
}

/// What the folder of a node remembers of its cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StoredCluster {
    id: String,
    node: String,
    /// Highest version of the map under which the folder was opened.
    map_version: u64,
    /// Shards whose file the folder has or had.
    held: BTreeSet<u16>,
}

/// Only the format, to tell a later version from a damaged file.
#[derive(Deserialize)]
struct StoredFormat {
    format: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Creating,
    Ready,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct StoredRange {
    first: u16,
    last: u16,
    shard: u16,
}

/// What a data folder says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    stored: Stored,
    /// Which shard owns which slot.
    pub(crate) shard_map: ShardMap,
    /// Number that ties the shard files to this folder, drawn at random, or to the cluster.
    pub(crate) store_id: u64,
}

impl Manifest {
    /// Describes a new folder, whose shard files are yet to be made.
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
            stored: Stored {
                format: FORMAT_ALONE,
                state: State::Creating,
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

    /// Describes a new folder of a node of a cluster, which has no shard file yet.
    pub(crate) fn of_member(member: &ClusterMember, created: Timestamp) -> Self {
        let store_id = cluster_store_id(member.map.cluster_id());
        let shard_map = ShardMap::clone(member.map.shard_map());
        Self {
            stored: Stored {
                format: FORMAT_CLUSTER,
                state: State::Ready,
                store_id: format!("{store_id:016x}"),
                created_ms: created.as_millis(),
                shards: member.map.shards(),
                slots: stored_ranges(&shard_map),
                cluster: Some(StoredCluster {
                    id: member.map.cluster_id().to_owned(),
                    node: member.node.clone(),
                    map_version: member.map.version(),
                    held: BTreeSet::new(),
                }),
            },
            shard_map,
            store_id,
        }
    }

    /// Reads the manifest of a folder; none where it has none.
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
        if format > FORMAT_CLUSTER {
            return Err(OpenError::NewerFormat {
                folder: folder.to_owned(),
                found: format,
                known: FORMAT_CLUSTER,
            });
        }
        let stored: Stored =
            serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
        let store_id = u64::from_str_radix(&stored.store_id, 16)
            .map_err(|_| bad(format!("store_id {:?} is no number", stored.store_id)))?;
        check_cluster(&stored, store_id).map_err(|reason| bad(reason.to_owned()))?;
        let shard_map = checked_map(&stored, &path)?;
        Ok(Some(Self {
            stored,
            shard_map,
            store_id,
        }))
    }

    /// Replaces the manifest of a folder in one step that survives a crash.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), OpenError> {
        let path = folder.join(FILE_NAME);
        let new = folder.join(format!("{FILE_NAME}.new"));
        let write = || -> io::Result<()> {
            let mut file = File::create(&new)?;
            serde_json::to_writer_pretty(&mut file, &self.stored)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            std::fs::rename(&new, &path)?;
            sync_folder(folder)
        };
        write().map_err(|source| OpenError::Folder {
            action: "write",
            path: path.clone(),
            source,
        })
    }

    /// Notes that all shard files exist.
    pub(crate) fn set_ready(&mut self) {
        self.stored.state = State::Ready;
    }

    /// Says whether all shard files have existed.
    pub(crate) fn is_ready(&self) -> bool {
        self.stored.state == State::Ready
    }

    /// Returns the number of shards, in a cluster of all its nodes.
    pub(crate) fn shards(&self) -> u16 {
        self.stored.shards
    }

    /// Returns whose folder it is; none for that of a server on its own.
    pub(crate) fn owner(&self) -> Option<FolderOwner<'_>> {
        let cluster = self.stored.cluster.as_ref()?;
        Some(FolderOwner {
            cluster: &cluster.id,
            node: &cluster.node,
            map_version: cluster.map_version,
        })
    }

    /// Says whether the folder of a node has or had the file of a shard.
    pub(crate) fn has_held(&self, shard: ShardId) -> bool {
        let cluster = self.stored.cluster.as_ref();
        cluster.is_some_and(|cluster| cluster.held.contains(&shard.0))
    }

    /// Notes the version of the map under which the folder of a node is opened, and shards whose
    /// file it has. Says whether that was news.
    pub(crate) fn note_held(&mut self, version: u64, shards: &[ShardId]) -> bool {
        let Some(cluster) = &mut self.stored.cluster else {
            return false;
        };
        let before = (cluster.map_version, cluster.held.len());
        cluster.map_version = version;
        cluster.held.extend(shards.iter().map(|shard| shard.0));
        before != (cluster.map_version, cluster.held.len())
    }
}

/// Whose folder it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FolderOwner<'a> {
    /// The cluster.
    pub(crate) cluster: &'a str,
    /// The node.
    pub(crate) node: &'a str,
    /// Highest version of the map under which the folder was opened.
    pub(crate) map_version: u64,
}

/// Returns the number that ties shard files to a cluster, whose name is meant to be its own.
pub(crate) fn cluster_store_id(cluster: &str) -> u64 {
    xxh3_64_with_seed(cluster.as_bytes(), CLUSTER_SEED)
}

fn check_cluster(stored: &Stored, store_id: u64) -> Result<(), &'static str> {
    match &stored.cluster {
        None if stored.format == FORMAT_ALONE => Ok(()),
        Some(cluster) if stored.format == FORMAT_CLUSTER => {
            if cluster_store_id(&cluster.id) != store_id {
                return Err("store_id is not that of the cluster");
            }
            Ok(())
        }
        _ => Err("its format and 'cluster' do not go together"),
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

fn checked_map(stored: &Stored, path: &Path) -> Result<ShardMap, OpenError> {
    let bad = |reason| OpenError::BadManifest {
        path: path.to_owned(),
        reason,
    };
    if stored.shards == 0 || stored.shards > SHARDS_MAX {
        return Err(bad(format!(
            "it says {} shards, 1 to {SHARDS_MAX} are possible",
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

/// Returns the shard files of a folder, by their names, in order.
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

/// Makes the names of files in a folder survive a crash.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
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
        assert!(refused(|json| json["format"] = 3.into()).contains("format 3"));
        assert!(refused(|json| json["format"] = 2.into()).contains("do not go together"));
        assert!(refused(|json| json["slots"][0]["last"] = 7.into()).contains("slot 8"));
        assert!(refused(|json| json["slots"][1]["shard"] = 4.into()).contains("shard 4"));
        assert!(refused(|json| json["shards"] = 0.into()).contains("0 shards"));
        assert!(refused(|json| json["store_id"] = "x".into()).contains("store_id"));
        assert!(refused(|json| *json = "text".into()).contains("umbo.json"));
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
