//! Opening a data folder: lock, manifest, and all shards in parallel.
//!
//! The invariant: a folder that was ready once is never given a new, empty shard file; a shard
//! that does not open is reported and the others serve.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use umbo_types::{Clock, ShardId, Version};

use crate::config::Config;
use crate::error::OpenError;
use crate::failure::Failure;
use crate::folder_lock::FolderLock;
use crate::manifest::{Manifest, shard_path, sync_folder};
use crate::report::ShardReport;
use crate::shard_file::{OpenedFile, Opener, ShardFile};
use crate::tables::Identity;

/// Fewest shards of a new folder, unless it is told.
const SHARDS_MIN: usize = 4;

/// A folder that was opened.
pub(crate) struct OpenedFolder {
    pub(crate) lock: FolderLock,
    pub(crate) manifest: Manifest,
    pub(crate) was_created: bool,
    /// Each shard, in order.
    pub(crate) shards: Vec<OpenedShard>,
}

/// A shard that was opened, or was not.
pub(crate) struct OpenedShard {
    pub(crate) file: ShardFile,
    pub(crate) opened: Result<OpenedFile, Failure>,
    pub(crate) report: ShardReport,
}

/// Opens a folder, or creates it.
pub(crate) fn open_folder(
    config: &Config,
    clock: &dyn Clock,
    opener: &Arc<dyn Opener>,
) -> Result<OpenedFolder, OpenError> {
    let folder = &config.folder;
    std::fs::create_dir_all(folder).map_err(|source| OpenError::Folder {
        action: "create",
        path: folder.clone(),
        source,
    })?;
    let lock = FolderLock::take(folder)?;
    let (mut manifest, was_created) = match Manifest::read(folder)? {
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
    })
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
    if shard_path(folder, ShardId(0)).exists() {
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
    sync_folder(folder).map_err(|source| OpenError::Folder {
        action: "sync",
        path: folder.to_owned(),
        source,
    })?;
    manifest.set_ready();
    manifest.write(folder)
}

fn open_shard(file: ShardFile, clock: &dyn Clock) -> OpenedShard {
    let begun = clock.monotonic();
    let opened = file.open();
    let mut report = ShardReport {
        shard: file.shard(),
        file: file.path.clone(),
        rows: 0,
        version_ceiling: Version::default(),
        took: clock.monotonic().saturating_duration_since(begun),
        was_recovered: false,
        was_repaired: false,
        unavailable: None,
    };
    match &opened {
        Ok(opened) => {
            report.rows = opened.snapshot.row_count().unwrap_or_default();
            report.version_ceiling = opened.progress.version_ceiling;
            report.was_recovered = !opened.progress.is_closed;
            report.was_repaired = opened.was_repaired;
        }
        Err(failure) => report.unavailable = Some(file.blame(failure)),
    }
    log(&report);
    OpenedShard {
        file,
        opened,
        report,
    }
}

fn log(report: &ShardReport) {
    let (file, took) = (report.file.display(), report.took);
    if let Some(reason) = &report.unavailable {
        tracing::error!(%reason, "a shard is unavailable, the others serve");
    } else if report.was_recovered {
        tracing::warn!(
            %file,
            ?took,
            rows = report.rows,
            full_repair = report.was_repaired,
            "a shard that was not closed has recovered"
        );
    } else {
        tracing::debug!(%file, ?took, rows = report.rows, "a shard is open");
    }
}
