//! Errors of one use of a shard's file, sorted by how the store reacts to them.
//!
//! Owns the translation of redb's errors and panics. A panic that begins in redb's source is caught here and nowhere
//! else; it is treated as damage of the file that was being used. Any other panic is a defect of Umbo, and goes on.

use std::any::Any;
use std::cell::Cell;
use std::io;
use std::panic::{self, AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;

use redb::{
    CommitError, CompactionError, CursorError, DatabaseError, StorageError, TableError,
    TransactionError,
};

use umbo_types::NamespaceId;

use crate::reserved_file::is_full;
use crate::row_codec::RowDamage;

/// Error of one use of a shard's file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FileError {
    /// No room on the disk.
    #[error("no space left on the disk: {0}")]
    Full(String),
    /// There is no file.
    #[error("{0}")]
    Missing(String),
    /// The system failed, or redb refuses work after an earlier failure until the file is opened again.
    #[error("{0}")]
    Io(String),
    /// A part of the file cannot be read; the rest can be.
    #[error("{0}")]
    Unreadable(String),
    /// The read would have to wait for the disk, on a thread that must not wait.
    #[error("the read has to wait for the disk")]
    MustWait,
    /// The disk does not answer.
    #[error("the disk does not answer")]
    Stuck,
    /// The file is being compacted.
    #[error("the file is being compacted")]
    Paused,
    /// The content of the file cannot be decoded.
    #[error("{0}")]
    Damaged(String),
    /// The namespace is fenced; the file is intact.
    #[error("namespace {0} was removed")]
    Gone(NamespaceId),
}

impl FileError {
    /// Returns whether the same use of the file may succeed later although the file is not changed.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Full(_)
            | Self::Io(_)
            | Self::Unreadable(_)
            | Self::MustWait
            | Self::Stuck
            | Self::Paused => true,
            Self::Missing(_) | Self::Damaged(_) | Self::Gone(_) => false,
        }
    }
}

/// The payload that a failed read unwinds with.
pub(crate) struct BadRead {
    /// The range of bytes and the system's error.
    pub(crate) reason: String,
}

/// The payload that a read unwinds with if it would have to wait for the disk on a thread that must not wait.
pub(crate) struct MustWait;

thread_local! {
    /// Whether the last panic of the thread began in redb. Unknown if a process has replaced the hook below; a panic
    /// counts as a panic of redb then.
    static BEGAN_IN_REDB: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Installs a hook that records the place of each panic, because the payload does not contain it.
fn record_places() {
    static HOOK: Once = Once::new();
    if std::thread::panicking() {
        return;
    }
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            BEGAN_IN_REDB.set(panic.location().map(|place| is_of_redb(place.file())));
            before(panic);
        }));
    });
}

/// Returns whether a source file is redb's, in a registry or vendored.
fn is_of_redb(file: &str) -> bool {
    let mut folders = file.split(['/', '\\']);
    folders.any(|folder| folder == "redb" || folder.starts_with("redb-"))
}

/// Runs `work` on a redb file and turns a panic of redb into a failure.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, FileError>) -> Result<T, FileError> {
    // An unwinding leaves no state of this crate half-changed: readers only read, and the committer drops its
    // transaction and opens the file again after any failure.
    record_places();
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(match panic.downcast::<BadRead>() {
            Ok(read) => FileError::Unreadable(read.reason),
            Err(panic) if panic.is::<MustWait>() => FileError::MustWait,
            Err(panic) if BEGAN_IN_REDB.take() == Some(false) => resume_unwind(panic),
            Err(panic) => FileError::Damaged(format!("redb panicked: {}", panic_text(&*panic))),
        })
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&str>() {
        return text;
    }
    panic
        .downcast_ref::<String>()
        .map_or("no reason given", String::as_str)
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            _ if is_full(&error) => Self::Full(error.to_string()),
            io::ErrorKind::NotFound => Self::Missing(error.to_string()),
            io::ErrorKind::InvalidData => Self::Damaged(error.to_string()),
            io::ErrorKind::UnexpectedEof => Self::Damaged("the file is cut short".to_owned()),
            _ => Self::Io(error.to_string()),
        }
    }
}

impl From<StorageError> for FileError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Io(error) => error.into(),
            StorageError::Corrupted(reason) => Self::Damaged(reason),
            other => Self::Io(other.to_string()),
        }
    }
}

impl From<TransactionError> for FileError {
    fn from(error: TransactionError) -> Self {
        match error {
            TransactionError::Storage(error) => error.into(),
            other => Self::Io(other.to_string()),
        }
    }
}

impl From<CommitError> for FileError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Storage(error) => error.into(),
            other => Self::Io(other.to_string()),
        }
    }
}

impl From<CompactionError> for FileError {
    fn from(error: CompactionError) -> Self {
        match error {
            CompactionError::Storage(error) => error.into(),
            other => Self::Io(other.to_string()),
        }
    }
}

impl From<TableError> for FileError {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Storage(error) => error.into(),
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl From<CursorError> for FileError {
    fn from(error: CursorError) -> Self {
        match error {
            CursorError::Storage(error) => error.into(),
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl From<DatabaseError> for FileError {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::Storage(error) => error.into(),
            DatabaseError::UpgradeRequired(_) => Self::Damaged(error.to_string()),
            other => Self::Io(other.to_string()),
        }
    }
}

impl From<RowDamage> for FileError {
    fn from(damage: RowDamage) -> Self {
        Self::Damaged(damage.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_redb_becomes_a_failure_with_its_text() {
        let decode = || Ok(<u32 as redb::Value>::from_bytes(&[1]));
        let failure = guarded(decode).unwrap_err();
        assert!(matches!(failure, FileError::Damaged(_)), "{failure}");
        assert!(
            failure.to_string().contains("TryFromSliceError"),
            "{failure}"
        );
    }

    #[test]
    #[should_panic(expected = "an assertion of the engine")]
    fn another_panic_goes_on() {
        // One of redb before it does not count.
        let _ = guarded(|| Ok(<u32 as redb::Value>::from_bytes(&[1])));
        let _ = guarded::<()>(|| panic!("an assertion of the engine"));
    }

    #[test]
    fn redb_is_known_by_its_folder() {
        assert!(is_of_redb("registry/src/index/redb-4.6.0/src/db.rs"));
        assert!(is_of_redb("vendor/redb/src/db.rs"));
        assert!(!is_of_redb("crates/umbo-store-redb/src/shard.rs"));
    }

    #[test]
    fn a_full_disk_is_told_from_other_failures() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert!(matches!(FileError::from(full), FileError::Full(_)));
        let other = StorageError::Io(io::Error::from(io::ErrorKind::Other));
        assert!(matches!(FileError::from(other), FileError::Io(_)));
        assert!(matches!(
            FileError::from(StorageError::PreviousIo),
            FileError::Io(_)
        ));
    }
}
