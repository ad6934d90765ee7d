//! One shard's redb file: creating it, opening it, and opening it again after a failure.
//!
//! Owns the path and the way redb is opened on it. The invariant: an existing file is never created again. A file that
//! is missing, empty or of another shard is an error.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::{
    Builder, Database, DatabaseError, ReadTransaction, ReadableDatabase, TableError,
    TableHandle as _,
};
use umbo_store::{DatasetGroups, FencingTokens};
use umbo_types::{ShardId, Timestamp};

use crate::bad_read::isolated;
use crate::committer::large::first_due;
use crate::dataset_groups::{self, META_DATASETS};
use crate::disk::Disk;
use crate::fences::{Fences, META_FENCES};
use crate::fencing_tokens::{self, META_RUNS};
use crate::file_error::{FileError, guarded};
use crate::kept_records::KeptRecords;
use crate::opener::Opener;
use crate::shard_ownership::{META_OWNER, ShardOwnership};
use crate::sizes::{self, Sizes};
use crate::snapshot::ShardSnapshot;
use crate::tables::{
    EXPIRY, IDEMPOTENCY_EXPIRY, META, META_IDENTITY, ROWS, ShardIdentity, ShardProgress, WRITTEN,
    next_expiry,
};
use crate::watched_file::WatchedFile;
use crate::write_log::{META_LOG, META_LOG_OF_ROWS, NeededLog};

/// Part of a shard's memory that caches rows; the rest caches pages, which ranges and writes need too.
const ROW_CACHE_PART: usize = 4;

/// The path of a shard's file, and the identity that the file must have.
#[derive(Debug, Clone)]
pub(crate) struct ShardFile {
    /// The file.
    pub(crate) path: PathBuf,
    /// The store and the shard of the file.
    pub(crate) identity: ShardIdentity,
    /// The node that owns it, in a cluster.
    pub(crate) ownership: Option<ShardOwnership>,
    /// Whether its committer keeps a log.
    pub(crate) has_log: bool,
    /// Memory for its pages and rows.
    pub(crate) cache_bytes: usize,
    /// Most bytes of keys and idempotency records of a namespace.
    pub(crate) idempotency_bytes_max: u64,
    /// How it is opened.
    pub(crate) opener: Arc<dyn Opener>,
    /// The state of its disk.
    pub(crate) disk: Arc<Disk>,
    /// The copy of the records that its folder keeps, whose fences apply to the shard.
    pub(crate) kept: Arc<KeptRecords>,
}

/// An opened shard file.
pub(crate) struct OpenedFile {
    /// The database, for the committer.
    pub(crate) database: Database,
    /// Last committed state of the file, for readers.
    pub(crate) snapshot: ShardSnapshot,
    /// Progress record of the shard.
    pub(crate) progress: ShardProgress,
    /// Fences of the shard.
    pub(crate) fences: Fences,
    /// Dataset groups of the shard.
    pub(crate) groups: DatasetGroups,
    /// The latest runs of loads that have written to the shard.
    pub(crate) runs: FencingTokens,
    /// Whether it may have written keys of datasets that are being built.
    pub(crate) has_written: bool,
    /// Earliest expiry in the index.
    pub(crate) next_expiry: Option<Timestamp>,
    /// When the first upload without references is due.
    pub(crate) next_upload_due: Option<Timestamp>,
    /// Sizes of its namespaces, or `None` if the file does not have them.
    pub(crate) sizes: Option<Sizes>,
    /// Whether redb had to read the whole file to repair it.
    pub(crate) was_repaired: bool,
    /// Epoch of the log that the file needs to be complete.
    pub(crate) needed_log: Option<NeededLog>,
}

/// Result of inspecting a shard's own file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inspection {
    /// The file was closed properly.
    Closed,
    /// The file was not closed: it is recovered when it is opened. If redb has to repair it, the file is checked only
    /// then.
    Unclosed,
    /// A process has it open.
    InUse,
}

impl ShardFile {
    /// Returns the shard's number.
    pub(crate) fn shard(&self) -> ShardId {
        ShardId(self.identity.shard)
    }

    /// Returns the memory for rows that were read lately.
    pub(crate) fn row_cache_bytes(&self) -> usize {
        self.cache_bytes / ROW_CACHE_PART
    }

    /// Puts the file's name before a reason.
    pub(crate) fn blame(&self, reason: impl std::fmt::Display) -> String {
        format!("{}: {reason}", self.path.display())
    }

    /// Creates the file of a folder that is being created, and replaces a file of an interrupted creation.
    pub(crate) fn create(&self) -> Result<(), FileError> {
        guarded(|| {
            self.opener.create(&self.path)?;
            let (database, _) = self.database()?;
            let mut transaction = database.begin_write()?;
            transaction.set_quick_repair(true);
            {
                transaction.open_table(ROWS)?;
                transaction.open_table(EXPIRY)?;
                let mut meta = transaction.open_table(META)?;
                let progress = ShardProgress {
                    is_closed: true,
                    ..ShardProgress::default()
                };
                meta.insert(META_IDENTITY, &self.identity.encode()[..])?;
                if let Some(ownership) = &self.ownership {
                    meta.insert(META_OWNER, &ownership.owner_record().encode()[..])?;
                }
                meta.insert(META_FENCES, &Fences::default().encode()[..])?;
                sizes::mark(&mut meta)?;
                progress.write(&mut meta)?;
            }
            transaction.commit()?;
            close(database)
        })
    }

    /// Opens the file, without the rows that are only in its log.
    pub(crate) fn open(&self) -> Result<OpenedFile, FileError> {
        guarded(|| {
            if std::fs::metadata(&self.path)?.len() == 0 {
                return Err(empty());
            }
            let (database, was_repaired) = self.database()?;
            self.opened(database, was_repaired)
        })
    }

    /// Reads the state of an open file.
    pub(crate) fn opened(
        &self,
        database: Database,
        was_repaired: bool,
    ) -> Result<OpenedFile, FileError> {
        let transaction = database.begin_read()?;
        self.check_identity(&transaction)?;
        let progress = progress(&transaction)?;
        let fences = fences(&transaction)?;
        let next_expiry = match isolated(|| earliest_expiry(&transaction)) {
            // The shard serves nevertheless: the sweeper meets the bad page, and pauses.
            Err(FileError::Unreadable(_)) => Some(Timestamp(0)),
            next_expiry => next_expiry?,
        };
        let next_upload_due = match isolated(|| first_due(&transaction)) {
            Err(FileError::Unreadable(_)) => Some(Timestamp(0)),
            next_due => next_due?,
        };
        Ok(OpenedFile {
            database,
            snapshot: ShardSnapshot::of(&transaction, &fences)?,
            progress,
            fences,
            groups: groups(&transaction)?,
            runs: runs(&transaction)?,
            has_written: transaction
                .list_tables()?
                .any(|table| table.name() == WRITTEN.name()),
            next_expiry,
            next_upload_due,
            sizes: isolated(|| sizes::read(&transaction)).unwrap_or_default(),
            was_repaired,
            needed_log: needed_log(&transaction)?,
        })
    }

    /// Checks, without touching the file, that it belongs to this shard and is the newest file of the shard. A file
    /// that redb has to repair is not checked.
    pub(crate) fn inspect(&self) -> Result<Inspection, FileError> {
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
            self.check_owner(&transaction)?;
            Ok(if progress.is_closed {
                Inspection::Closed
            } else {
                Inspection::Unclosed
            })
        })
    }

    /// Checks, without touching the file, that it belongs to this shard. Ignores its owner.
    pub(crate) fn peek(&self) -> Result<(), FileError> {
        guarded(|| match Builder::new().open_read_only(&self.path) {
            Ok(database) => self.check_identity(&database.begin_read()?),
            // A file that has to be repaired first may belong to this shard.
            Err(DatabaseError::RepairAborted) => Ok(()),
            Err(error) => Err(error.into()),
        })
    }

    fn check_identity(&self, transaction: &ReadTransaction) -> Result<(), FileError> {
        let identity = ShardIdentity::decode(&record(transaction, META_IDENTITY)?);
        if identity == Some(self.identity) {
            return Ok(());
        }
        Err(FileError::Damaged(format!(
            "the file is {identity:?}, not {:?}: it belongs to another shard, cluster or data \
             folder",
            self.identity
        )))
    }

    fn database(&self) -> Result<(Database, bool), FileError> {
        let was_repaired = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&was_repaired);
        let mut builder = Builder::new();
        builder
            .set_cache_size(self.cache_bytes - self.row_cache_bytes())
            .set_repair_callback(move |_| noted.store(true, Ordering::Relaxed));
        let at_once = self.opener.open_at_once(&self.path);
        self.disk.note_tells_waiting(at_once.is_some());
        let database = builder.create_with_backend(WatchedFile {
            path: self.path.clone(),
            inner: self.opener.open(&self.path)?,
            at_once,
            disk: Arc::clone(&self.disk),
        })?;
        Ok((database, was_repaired.load(Ordering::Relaxed)))
    }
}

/// Returns the earliest expiry of rows and idempotency records.
fn earliest_expiry(transaction: &ReadTransaction) -> Result<Option<Timestamp>, FileError> {
    let none = BTreeSet::new();
    let of_rows = next_expiry(&transaction.open_table(EXPIRY)?, &none)?;
    let of_records = match transaction.open_table(IDEMPOTENCY_EXPIRY) {
        // A file of a version without idempotency records, or a file without any commit.
        Err(TableError::TableDoesNotExist(_)) => None,
        table => next_expiry(&table?, &none)?,
    };
    Ok([of_rows, of_records].into_iter().flatten().min())
}

fn empty() -> FileError {
    FileError::Damaged("the file is empty".to_owned())
}

fn progress(transaction: &ReadTransaction) -> Result<ShardProgress, FileError> {
    ShardProgress::read(&transaction.open_table(META)?)
}

pub(crate) fn fences(transaction: &ReadTransaction) -> Result<Fences, FileError> {
    Fences::decode(&record(transaction, META_FENCES)?)
        .ok_or_else(|| FileError::Damaged("the record of its fences cannot be decoded".to_owned()))
}

pub(crate) fn groups(transaction: &ReadTransaction) -> Result<DatasetGroups, FileError> {
    let Some(record) = transaction.open_table(META)?.get_owned(META_DATASETS)? else {
        return Ok(DatasetGroups::default());
    };
    dataset_groups::decode(record.value()).ok_or_else(|| {
        FileError::Damaged("the record of its datasets cannot be decoded".to_owned())
    })
}

fn needed_log(transaction: &ReadTransaction) -> Result<Option<NeededLog>, FileError> {
    let meta = transaction.open_table(META)?;
    for name in [META_LOG, META_LOG_OF_ROWS] {
        let epoch = meta.get_owned(name)?;
        if let Some(epoch) = epoch.and_then(|epoch| epoch.value().try_into().ok()) {
            return Ok(Some(NeededLog {
                epoch: u64::from_be_bytes(epoch),
                has_first_records: name == META_LOG,
            }));
        }
    }
    Ok(None)
}

fn runs(transaction: &ReadTransaction) -> Result<FencingTokens, FileError> {
    let Some(record) = transaction.open_table(META)?.get_owned(META_RUNS)? else {
        return Ok(FencingTokens::default());
    };
    fencing_tokens::decode(record.value()).ok_or_else(|| {
        FileError::Damaged("the record of its runs of loads cannot be decoded".to_owned())
    })
}

pub(crate) fn record(transaction: &ReadTransaction, name: &str) -> Result<Vec<u8>, FileError> {
    let record = transaction.open_table(META)?.get_owned(name)?;
    let record = record.ok_or_else(|| FileError::Damaged(format!("no {name} record")))?;
    Ok(record.value().to_vec())
}

/// Closes a database. It is closed also if this fails: its last commit is in the file, and the next opening recovers
/// it.
pub(crate) fn close(database: Database) -> Result<(), FileError> {
    guarded(|| Ok(database.close()?))
}

/// Begins a transaction with the settings that every commit of a shard has.
pub(crate) fn begin_write(database: &Database) -> Result<redb::WriteTransaction, FileError> {
    let mut transaction = database.begin_write()?;
    // The next opening after a crash takes a millisecond instead of reading the whole file.
    transaction.set_quick_repair(true);
    Ok(transaction)
}
