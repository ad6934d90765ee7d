//! Opening a data folder: lock, manifest, and all shards in parallel.
//!
//! The invariant: a folder that was ready once never gets a new, empty shard file; a shard that does not open
//! is reported and the others serve.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use umbo_types::{Clock, ShardId};

use crate::config::Config;
use crate::disk::Disk;
use crate::error::{OpenError, folder_error};
use crate::folder_check::check_member;
use crate::folder_lock::FolderLock;
use crate::kept_records::KeptRecords;
use crate::manifest::{Manifest, create_folder, shard_files_in, shard_path};
use crate::member_folder::open_member;
use crate::opened_shard::{OpenedShard, open_shard};
use crate::opener::Opener;
use crate::replaced_file::sync_folder;
use crate::runner::Runner;
use crate::shard_file::ShardFile;
use crate::tables::ShardIdentity;

/// Fewest shards of a new folder without a configured number.
const SHARDS_MIN: usize = 4;

/// An opened folder.
pub(crate) struct OpenedFolder {
    pub(crate) lock: FolderLock,
    pub(crate) manifest: Manifest,
    pub(crate) was_created: bool,
    /// The copy of the records in the folder.
    pub(crate) kept: Arc<KeptRecords>,
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
    // A folder that belongs to another store is not touched, not even by a lock. A manifest that cannot be
    // read is reported as an error below.
    if let Ok(manifest) = Manifest::read(folder) {
        check_owner(config, manifest.as_ref())?;
    }
    create_folder(folder).map_err(folder_error("create", folder))?;
    let lock = FolderLock::take(folder)?;
    let manifest = Manifest::read(folder)?;
    let kept = Arc::new(KeptRecords::open(folder)?);
    if let Some(member) = &config.cluster {
        let node = open_member(config, member, manifest, clock, (opener, &kept))?;
        return Ok(OpenedFolder {
            lock,
            manifest: node.manifest,
            was_created: node.was_created,
            kept,
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
    let files = shard_files(config, &manifest, opener, &kept);
    if was_created {
        create(folder, &mut manifest, &files, opener.runner())?;
    }
    let shards = opener.runner().each(files, |file| open_shard(file, clock));
    Ok(OpenedFolder {
        lock,
        manifest,
        was_created,
        kept,
        shards,
        others: Vec::new(),
    })
}

/// Checks that a folder with a manifest belongs to the configured server or node.
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
            opened_for: "a standalone server".to_owned(),
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
    // Shard files whose manifest was lost hold data: they are not touched.
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

fn shard_files(
    config: &Config,
    manifest: &Manifest,
    opener: &Arc<dyn Opener>,
    kept: &Arc<KeptRecords>,
) -> Vec<ShardFile> {
    let shards = manifest.shards();
    let file = |shard| {
        let path = shard_path(&config.folder, ShardId(shard));
        ShardFile {
            disk: Disk::of_shard(Arc::clone(opener), &path, shards.into()),
            path,
            identity: ShardIdentity {
                store_id: manifest.store_id,
                shard,
            },
            ownership: None,
            has_log: config.has_log,
            cache_bytes: config.cache_bytes / usize::from(shards),
            idempotency_bytes_max: config.idempotency_bytes_max,
            opener: Arc::clone(opener),
            kept: Arc::clone(kept),
        }
    };
    (0..shards).map(file).collect()
}

fn create(
    folder: &Path,
    manifest: &mut Manifest,
    files: &[ShardFile],
    runner: Runner,
) -> Result<(), OpenError> {
    let created = runner.each(files.iter().collect(), ShardFile::create);
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
