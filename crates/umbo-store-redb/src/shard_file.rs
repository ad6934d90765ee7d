//! One shard's redb file: making it, opening it, and opening it again after a failure.
//!
//! Owns the path and how redb is opened on it. The invariant: an existing file is never made anew;
//! one that is missing, empty or not this shard's is an error.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::{Builder, Database, Durability, ReadableDatabase};
use umbo_types::{ShardId, Timestamp};

use crate::failure::{Failure, guarded};
use crate::snapshot::Snapshot;
use crate::tables::{
    EXPIRY, Identity, META, META_IDENTITY, META_PROGRESS, Progress, ROWS, next_expiry,
};

/// How redb reaches the bytes of an existing file; tests put faults in between.
pub(crate) trait Opener: Send + Sync + std::fmt::Debug {
    /// Opens the database in an existing file.
    fn open(&self, builder: &Builder, path: &Path) -> Result<Database, Failure>;
}

/// The file system as it is.
#[derive(Debug)]
pub(crate) struct PlainFiles;

impl Opener for PlainFiles {
    fn open(&self, builder: &Builder, path: &Path) -> Result<Database, Failure> {
        let file = File::options().read(true).write(true).open(path)?;
        Ok(builder.create_file(file)?)
    }
}

/// Where a shard's file is and what it must be.
#[derive(Debug, Clone)]
pub(crate) struct ShardFile {
    /// The file.
    pub(crate) path: PathBuf,
    /// Which shard of which store it is.
    pub(crate) identity: Identity,
    /// Memory for its pages.
    pub(crate) cache_bytes: usize,
    /// How it is opened.
    pub(crate) opener: Arc<dyn Opener>,
}

/// A shard's file, opened.
pub(crate) struct OpenedFile {
    /// The database, for the committer.
    pub(crate) database: Database,
    /// Its last committed state, for readers.
    pub(crate) snapshot: Snapshot,
    /// How far it has come.
    pub(crate) progress: Progress,
    /// Earliest expiry in the index.
    pub(crate) next_expiry: Option<Timestamp>,
    /// Whether redb had to walk the whole file to repair it.
    pub(crate) was_repaired: bool,
}

impl ShardFile {
    /// Returns the shard's number.
    pub(crate) fn shard(&self) -> ShardId {
        ShardId(self.identity.shard)
    }

    /// Puts the file's name before a reason.
    pub(crate) fn blame(&self, reason: impl std::fmt::Display) -> String {
        format!("{}: {reason}", self.path.display())
    }

    /// Makes the file of a folder that is being created, replacing what an interrupted creation
    /// has left.
    pub(crate) fn create(&self) -> Result<(), Failure> {
        guarded(|| {
            File::create(&self.path)?.sync_all()?;
            let (database, _) = self.database()?;
            let mut transaction = database.begin_write()?;
            transaction.set_quick_repair(true);
            {
                transaction.open_table(ROWS)?;
                transaction.open_table(EXPIRY)?;
                let mut meta = transaction.open_table(META)?;
                let progress = Progress {
                    is_closed: true,
                    ..Progress::default()
                };
                meta.insert(META_IDENTITY, &self.identity.encode()[..])?;
                meta.insert(META_PROGRESS, &progress.encode()[..])?;
            }
            transaction.commit()?;
            Ok(())
        })
    }

    /// Opens the file.
    pub(crate) fn open(&self) -> Result<OpenedFile, Failure> {
        guarded(|| match std::fs::metadata(&self.path)?.len() {
            0 => Err(Failure::Damaged("the file is empty".to_owned())),
            _ => self.open_existing(),
        })
    }

    fn open_existing(&self) -> Result<OpenedFile, Failure> {
        let (database, was_repaired) = self.database()?;
        let transaction = database.begin_read()?;
        let meta = transaction.open_table(META)?;
        let record = |name| -> Result<Vec<u8>, Failure> {
            let guard = meta.get_owned(name)?;
            let guard = guard.ok_or_else(|| Failure::Damaged(format!("no {name} record")))?;
            Ok(guard.value().to_vec())
        };
        let identity = Identity::decode(&record(META_IDENTITY)?);
        if identity != Some(self.identity) {
            return Err(Failure::Damaged(format!(
                "the file is {identity:?}, not {:?}: it belongs to another shard or data folder",
                self.identity
            )));
        }
        let progress = Progress::decode(&record(META_PROGRESS)?)
            .ok_or_else(|| Failure::Damaged("the progress record makes no sense".to_owned()))?;
        let snapshot = Snapshot::of(&transaction)?;
        Ok(OpenedFile {
            database,
            snapshot,
            progress,
            next_expiry: next_expiry(&transaction.open_table(EXPIRY)?)?,
            was_repaired,
        })
    }

    fn database(&self) -> Result<(Database, bool), Failure> {
        let was_repaired = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&was_repaired);
        let mut builder = Builder::new();
        builder
            .set_cache_size(self.cache_bytes)
            .set_repair_callback(move |_| noted.store(true, Ordering::Relaxed));
        let database = self.opener.open(&builder, &self.path)?;
        Ok((database, was_repaired.load(Ordering::Relaxed)))
    }
}

/// Begins a transaction with the settings that every commit of a shard has.
pub(crate) fn begin_write(
    database: &Database,
    durability: Durability,
) -> Result<redb::WriteTransaction, Failure> {
    let mut transaction = database.begin_write()?;
    // The next opening after a crash takes a millisecond instead of a walk over the file.
    transaction.set_quick_repair(true);
    transaction
        .set_durability(durability)
        .map_err(|error| Failure::Io(error.to_string()))?;
    Ok(transaction)
}
