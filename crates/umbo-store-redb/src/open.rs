//! Opening a data folder: lock, manifest, and all shards in parallel.
//!
//! The invariant: a folder that was ready once is never given a new, empty shard file; a shard
//! that does not open is reported and the others serve.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use umbo_types::{Clock, ShardId};

use crate::config::Config;
use crate::error::{OpenError, folder_error};
use crate::failure::Failure;
use crate::folder_lock::FolderLock;
use crate::manifest::{Manifest, shard_files_in, shard_path, sync_folder};
use crate::member_folder::{check_member, open_member};
use crate::opened_shard::{OpenedShard, open_shard};
use crate::shard_file::{Opener, ShardFile};
use crate::tables::Identity;

/// Fewest shards of a new folder, unless it is told.
const SHARDS_MIN: usize = 4;

/// A folder that was opened.
pub(crate) struct OpenedFolder {
    pub(crate) lock: FolderLock,
    pub(crate) manifest: Manifest,
    pub(crate) was_created: bool,
    /// Each shard that belongs here, in order.
    pub(crate) shards: Vec<OpenedShard>,
    /// Files of shards that do not belong here.
    pub(crate) others: Vec<PathBuf>,
}

/// Opens a folder, or creates it.
pub(crate) fn open_folder(
    config: &Config,
    clock: &dyn Clock,
    opener: &Arc<dyn Opener>,
) -> Result<OpenedFolder, OpenError> {
    let folder = &config.folder;
    // Somebody else's folder is left without as much as a lock; what cannot be read is an error
    // below.
    if let Ok(manifest) = Manifest::read(folder) {
        check_owner(config, manifest.as_ref())?;
    }
    std::fs::create_dir_all(folder).map_err(folder_error("create", folder))?;
    let lock = FolderLock::take(folder)?;
    let manifest = Manifest::read(folder)?;
    if let Some(member) = &config.cluster {
        let node = open_member(config, member, manifest, clock, opener)?;
        return Ok(OpenedFolder {
            lock,
            manifest: node.manifest,
            was_created: node.was_created,
            shards: node.shards,
            others: node.others,
        });
    }
    check_owner(config, manifest.as_ref())?;
    let (mut manifest, was_created) = match manifest {
        Some(manifest) => {
            check_shards(config, &manifest)?;
            let was_created = !manifest.is_ready();
            (manifest, was_created)
        }
        None => (begin_creation(config, clock)?, true),
    };
    let files = shard_files(config, &manifest, opener);
    if was_created {
        create(folder, &mut manifest, &files)?;
    }
    let shards = thread::scope(|scope| {
        let threads: Vec<_> = files
            .into_iter()
            .map(|file| scope.spawn(|| open_shard(file, clock)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("opening catches every panic of redb"))
            .collect()
    });
    Ok(OpenedFolder {
        lock,
        manifest,
        was_created,
        shards,
        others: Vec::new(),
    })
}

/// Checks that a folder with a manifest belongs to whoever opens it.
fn check_owner(config: &Config, manifest: Option<&Manifest>) -> Result<(), OpenError> {
    if let Some(member) = &config.cluster {
        return check_member(config, member, manifest);
    }
    match manifest.and_then(Manifest::owner) {
        None => Ok(()),
        Some(owner) => Err(OpenError::OthersFolder {
            folder: config.folder.clone(),
            found_cluster: owner.cluster.to_owned(),
            found_node: owner.node.to_owned(),
            opened_for: "a server on its own".to_owned(),
            is_same_cluster: false,
        }),
    }
}

fn check_shards(config: &Config, manifest: &Manifest) -> Result<(), OpenError> {
    match config.shards {
        Some(configured) if configured != manifest.shards() => Err(OpenError::ShardCount {
            folder: config.folder.clone(),
            found: manifest.shards(),
            configured,
        }),
        _ => Ok(()),
    }
}

fn begin_creation(config: &Config, clock: &dyn Clock) -> Result<Manifest, OpenError> {
    let folder = &config.folder;
    // Shard files whose manifest was lost hold somebody's data: hands off.
    let files = shard_files_in(folder).map_err(folder_error("read", folder))?;
    if !files.is_empty() {
        return Err(OpenError::ManifestMissing {
            folder: folder.clone(),
        });
    }
    let shards = config.shards.unwrap_or_else(|| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        (2 * cores).clamp(SHARDS_MIN, crate::manifest::SHARDS_MAX.into()) as u16
    });
    let manifest = Manifest::new(shards, clock.wall())?;
    manifest.write(folder)?;
    Ok(manifest)
}

fn shard_files(config: &Config, manifest: &Manifest, opener: &Arc<dyn Opener>) -> Vec<ShardFile> {
    let shards = manifest.shards();
    (0..shards)
        .map(|shard| ShardFile {
            path: shard_path(&config.folder, ShardId(shard)),
            identity: Identity {
                store_id: manifest.store_id,
                shard,
            },
            tenure: None,
            cache_bytes: config.cache_bytes / usize::from(shards),
            opener: Arc::clone(opener),
        })
        .collect()
}

fn create(folder: &Path, manifest: &mut Manifest, files: &[ShardFile]) -> Result<(), OpenError> {
    let created: Vec<Result<(), Failure>> = thread::scope(|scope| {
        let threads: Vec<_> = files
            .iter()
            .map(|file| scope.spawn(|| file.create()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("creating catches every panic of redb"))
            .collect()
    });
    for (file, created) in files.iter().zip(created) {
        created.map_err(|failure| OpenError::Create {
            path: file.path.clone(),
            reason: failure.to_string(),
        })?;
    }
    sync_folder(folder).map_err(folder_error("sync", folder))?;
    manifest.set_ready();
    manifest.write(folder)
}
