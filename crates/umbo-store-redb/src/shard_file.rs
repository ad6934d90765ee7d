//! One shard's redb file: making it, opening it, and opening it again after a failure.
//!
//! Owns the path and how redb is opened on it. The invariant: an existing file is never made anew;
//! one that is missing, empty or not this shard's is an error.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::{Builder, Database, DatabaseError, Durability, ReadTransaction, ReadableDatabase};
use umbo_types::{ShardId, Timestamp};

use crate::failure::{Failure, guarded};
use crate::snapshot::Snapshot;
use crate::tables::{
    EXPIRY, Identity, META, META_IDENTITY, META_PROGRESS, Progress, ROWS, next_expiry,
};
use crate::tenure::{Holder, META_HOLDER, Tenure};

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
    /// Who has it, in a cluster.
    pub(crate) tenure: Option<Tenure>,
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

/// What a look at a shard's own file has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inspection {
    /// It was closed in order.
    Closed,
    /// It was not: it recovers when it is opened.
    Unclosed,
    /// A process has it open.
    InUse,
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
                if let Some(tenure) = &self.tenure {
                    meta.insert(META_HOLDER, &tenure.holder().encode()[..])?;
                }
                meta.insert(META_PROGRESS, &progress.encode()[..])?;
            }
            transaction.commit()?;
            Ok(())
        })
    }

    /// Opens the file.
    pub(crate) fn open(&self) -> Result<OpenedFile, Failure> {
        guarded(|| match std::fs::metadata(&self.path)?.len() {
            0 => Err(empty()),
            _ => self.open_existing(),
        })
    }

    fn open_existing(&self) -> Result<OpenedFile, Failure> {
        let (database, was_repaired) = self.database()?;
        let transaction = database.begin_read()?;
        self.check_identity(&transaction)?;
        let progress = progress(&transaction)?;
        let snapshot = Snapshot::of(&transaction)?;
        Ok(OpenedFile {
            database,
            snapshot,
            progress,
            next_expiry: next_expiry(&transaction.open_table(EXPIRY)?)?,
            was_repaired,
        })
    }

    /// Looks, without touching the file, whether it is this shard's, and the last of it.
    pub(crate) fn inspect(&self) -> Result<Inspection, Failure> {
        guarded(|| {
            if std::fs::metadata(&self.path)?.len() == 0 {
                return Err(empty());
            }
            let database = match Builder::new().open_read_only(&self.path) {
                Ok(database) => database,
                Err(DatabaseError::RepairAborted) => return Ok(Inspection::Unclosed),
                Err(DatabaseError::DatabaseAlreadyOpen) => return Ok(Inspection::InUse),
                Err(error) => return Err(error.into()),
            };
            let transaction = database.begin_read()?;
            self.check_identity(&transaction)?;
            let progress = progress(&transaction)?;
            self.check_holder(&transaction, progress)?;
            Ok(if progress.is_closed {
                Inspection::Closed
            } else {
                Inspection::Unclosed
            })
        })
    }

    /// Checks, without touching the file, that it is this shard's, whoever has had it.
    pub(crate) fn peek(&self) -> Result<(), Failure> {
        guarded(|| match Builder::new().open_read_only(&self.path) {
            Ok(database) => self.check_identity(&database.begin_read()?),
            // What has to be repaired first may be this shard's.
            Err(DatabaseError::RepairAborted) => Ok(()),
            Err(error) => Err(error.into()),
        })
    }

    /// Notes in a file that was opened that this node has it, and is using it. Refuses one that is
    /// not the last of its shard.
    pub(crate) fn claim(&self, opened: &mut OpenedFile) -> Result<(), Failure> {
        let Some(tenure) = &self.tenure else {
            return Ok(());
        };
        guarded(|| {
            let database = &opened.database;
            self.check_holder(&database.begin_read()?, opened.progress)?;
            opened.progress = Progress {
                sequence: opened.progress.sequence + 1,
                is_closed: false,
                ..opened.progress
            };
            let transaction = begin_write(database, Durability::Immediate)?;
            {
                let mut meta = transaction.open_table(META)?;
                meta.insert(META_HOLDER, &tenure.holder().encode()[..])?;
                meta.insert(META_PROGRESS, &opened.progress.encode()[..])?;
            }
            transaction.commit()?;
            opened.snapshot = Snapshot::of(&database.begin_read()?)?;
            Ok(())
        })
    }

    fn check_holder(
        &self,
        transaction: &ReadTransaction,
        progress: Progress,
    ) -> Result<(), Failure> {
        let Some(tenure) = &self.tenure else {
            return Ok(());
        };
        let found = Holder::decode(&record(transaction, META_HOLDER)?);
        let found = found.ok_or_else(|| {
            Failure::Damaged("the record of its holder makes no sense".to_owned())
        })?;
        let checked = tenure.check(&found, progress.is_closed);
        checked.map_err(|refused| Failure::Damaged(refused.to_string()))
    }

    fn check_identity(&self, transaction: &ReadTransaction) -> Result<(), Failure> {
        let identity = Identity::decode(&record(transaction, META_IDENTITY)?);
        if identity == Some(self.identity) {
            return Ok(());
        }
        Err(Failure::Damaged(format!(
            "the file is {identity:?}, not {:?}: it belongs to another shard, cluster or data \
             folder",
            self.identity
        )))
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

fn empty() -> Failure {
    Failure::Damaged("the file is empty".to_owned())
}

fn progress(transaction: &ReadTransaction) -> Result<Progress, Failure> {
    Progress::decode(&record(transaction, META_PROGRESS)?)
        .ok_or_else(|| Failure::Damaged("the progress record makes no sense".to_owned()))
}

fn record(transaction: &ReadTransaction, name: &str) -> Result<Vec<u8>, Failure> {
    let record = transaction.open_table(META)?.get_owned(name)?;
    let record = record.ok_or_else(|| Failure::Damaged(format!("no {name} record")))?;
    Ok(record.value().to_vec())
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
