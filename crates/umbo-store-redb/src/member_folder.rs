//! The folder of a cluster node: which of its shards are created, opened, or missing.
//!
//! The files belong to the cluster, not to the folder, so that an operator can copy them from node to node. The
//! invariants: a shard is created empty only if it can never have had a row, or by an operator's decision. A missing
//! file makes its shard unavailable, with a reason that says which file to copy from where. Files of shards that the
//! node does not have are left alone, except that files which the node had last are stamped with their owner by the
//! map. No file is opened before the version of the map is on the disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbo_types::{Clock, ShardId};

use crate::config::{ClusterMember, Config};
use crate::disk::Disk;
use crate::error::{OpenError, folder_error};
use crate::file_error::FileError;
use crate::folder_check::check_member;
use crate::hand_over::give_leftovers;
use crate::kept_records::KeptRecords;
use crate::manifest::{Manifest, cluster_store_id, shard_files_in, shard_path};
use crate::opened_shard::{OpenedShard, open_shard, refused_shard};
use crate::opener::Opener;
use crate::replaced_file::sync_folder;
use crate::runner::Runner;
use crate::shard_file::ShardFile;
use crate::shard_ownership::ShardOwnership;
use crate::tables::ShardIdentity;

/// File name extension of an unfinished file.
const UNFINISHED: &str = "new";

/// The opened folder of a node.
pub(crate) struct OpenedMember {
    pub(crate) manifest: Manifest,
    pub(crate) was_created: bool,
    /// The shards of the node, in order.
    pub(crate) shards: Vec<OpenedShard>,
    /// Files of other shards.
    pub(crate) others: Vec<PathBuf>,
}

/// Opens the shards of a node. The folder is locked, and `manifest` was read under the lock.
pub(crate) fn open_member(
    config: &Config,
    member: &ClusterMember,
    manifest: Option<Manifest>,
    clock: &dyn Clock,
    (opener, kept): (&Arc<dyn Opener>, &Arc<KeptRecords>),
) -> Result<OpenedMember, OpenError> {
    check_member(config, member, manifest.as_ref())?;
    let folder = &config.folder;
    let files = shard_files(config, member, manifest.as_ref(), opener, kept);
    let was_created = manifest.is_none();
    let mut manifest = if let Some(manifest) = manifest {
        manifest
    } else {
        check_files(member, &files)?;
        let manifest = Manifest::of_member(member, clock.wall());
        manifest.write(folder)?;
        manifest
    };
    if manifest.note_version(member.map.version()) {
        manifest.write(folder)?;
    }
    give_leftovers(config, member, &mut manifest, opener)?;
    let shards = open_files(files, config, member, &mut manifest, clock)?;
    Ok(OpenedMember {
        manifest,
        was_created,
        others: other_files(folder, &shards)?,
        shards,
    })
}

/// Opens files of a node in parallel, or creates them, and records the existing and the claimed ones in the manifest.
pub(crate) fn open_files(
    files: Vec<ShardFile>,
    config: &Config,
    member: &ClusterMember,
    manifest: &mut Manifest,
    clock: &dyn Clock,
) -> Result<Vec<OpenedShard>, OpenError> {
    let folder = &config.folder;
    let known = &*manifest;
    let runner = files
        .first()
        .map_or(Runner::Threads, |file| file.opener.runner());
    let shards = runner.each(files, |file| open_or_begin(file, member, known, clock));
    sync_folder(folder).map_err(folder_error("sync", folder))?;
    let mut is_news = false;
    for OpenedShard { file, opened, .. } in &shards {
        let shard = file.shard();
        is_news |= file.path.exists() && manifest.note_held(shard);
        if let (Ok(_), Some(ownership)) = (opened, &file.ownership) {
            is_news |= manifest.note_claimed(shard, ownership.place.moves);
        }
    }
    if is_news {
        manifest.write(folder)?;
    }
    Ok(shards)
}

/// Returns the files of the shards that the map assigns to the node, in order.
pub(crate) fn shard_files(
    config: &Config,
    member: &ClusterMember,
    manifest: Option<&Manifest>,
    opener: &Arc<dyn Opener>,
    kept: &Arc<KeptRecords>,
) -> Vec<ShardFile> {
    let store_id = cluster_store_id(member.map.cluster_id());
    let own = member.map.shards_of(&member.node);
    let cache_bytes = config.cache_bytes / own.len().max(1);
    let file = |&shard: &ShardId| {
        let place = member.map.place_of(shard)?.clone();
        let path = shard_path(&config.folder, shard);
        Some(ShardFile {
            has_log: config.has_log,
            disk: Disk::of_shard(Arc::clone(opener), &path, own.len()),
            path,
            identity: ShardIdentity {
                store_id,
                shard: shard.0,
            },
            ownership: Some(ShardOwnership {
                shard,
                place,
                remembered: manifest
                    .map(|manifest| manifest.remembered(shard))
                    .unwrap_or_default(),
                is_accepted: member.accept.contains(&shard),
            }),
            cache_bytes,
            idempotency_bytes_max: config.idempotency_bytes_max,
            opener: Arc::clone(opener),
            kept: Arc::clone(kept),
        })
    };
    own.iter().filter_map(file).collect()
}

/// Checks, before anything is written to a folder without a manifest, that its files belong to this cluster:
/// they may have been copied, or belong to something else.
fn check_files(member: &ClusterMember, files: &[ShardFile]) -> Result<(), OpenError> {
    for file in files.iter().filter(|file| file.path.exists()) {
        file.peek().map_err(|failure| OpenError::OthersFile {
            path: file.path.clone(),
            cluster: member.map.cluster_id().to_owned(),
            reason: failure.to_string(),
        })?;
    }
    Ok(())
}

fn open_or_begin(
    file: ShardFile,
    member: &ClusterMember,
    manifest: &Manifest,
    clock: &dyn Clock,
) -> OpenedShard {
    let shard = file.shard();
    // If the system does not tell, opening the file will report why.
    if file.path.try_exists().unwrap_or(true) {
        return open_shard(file, clock);
    }
    let reason = missing(shard, member, Some(manifest));
    if member.create_missing.contains(&shard) {
        tracing::warn!(
            shard = shard.0,
            "a shard whose file is missing is created empty, as requested"
        );
    } else if let Some(reason) = reason {
        return refused_shard(file, reason);
    }
    match begin(&file) {
        Ok(()) => open_shard(file, clock),
        Err(failure) => refused_shard(file, failure.to_string()),
    }
}

/// Makes an empty file under another name first, so that a half-made file is never taken for a shard.
fn begin(file: &ShardFile) -> Result<(), FileError> {
    let unfinished = ShardFile {
        path: file.path.with_added_extension(UNFINISHED),
        ..file.clone()
    };
    unfinished.create()?;
    Ok(std::fs::rename(&unfinished.path, &file.path)?)
}

/// Returns why a shard whose file is missing is not created, or `None` if the shard can never have had a row.
pub(crate) fn missing(
    shard: ShardId,
    member: &ClusterMember,
    manifest: Option<&Manifest>,
) -> Option<String> {
    let from = member.map.place_of(shard)?.from.as_ref();
    let has_held = manifest.is_some_and(|manifest| manifest.has_held(shard));
    let remedy = match from {
        _ if has_held => "this folder had it: restore it".to_owned(),
        Some(from) => format!(
            "the shard has moved here: stop it on node '{from}', and copy the file from there"
        ),
        None if member.map.version() > 1 => {
            "the cluster is not new: if it ever had rows, restore it".to_owned()
        }
        None => return None,
    };
    Some(format!(
        "the file is missing, and {remedy} (or, to begin the shard empty, start once with \
         --create-shards {shard})"
    ))
}

fn other_files(folder: &Path, own: &[OpenedShard]) -> Result<Vec<PathBuf>, OpenError> {
    let files = shard_files_in(folder).map_err(folder_error("read", folder))?;
    let is_own = |id| own.iter().any(|shard| shard.file.shard() == id);
    let others: Vec<PathBuf> = files
        .into_iter()
        .filter(|(shard, _)| !is_own(*shard))
        .map(|(_, path)| path)
        .collect();
    if !others.is_empty() {
        tracing::info!(
            files = ?others,
            "files of shards that this node does not have are left alone"
        );
    }
    Ok(others)
}
