//! Every access of redb to a shard's file, with its failures recorded.
//!
//! Owns the handling of a failed read: it is tried once more, remembered, counted, and kept from redb if the
//! read is isolated (see [`crate::bad_read`]). Writes, syncs and locks pass unchanged;
//! after some of its writes a long commit gives way.

use std::cell::Cell;
use std::io;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;

use redb::{BackendError, StorageBackend};
use umbo_store::give_way;

use crate::bad_read::{fail_read, is_isolated, must_not_wait, refuse_to_wait};
use crate::disk::Disk;
use crate::opener::ReadAtOnce;

/// Writes of pages between which a long commit gives way: some 25 µs.
const WRITES_GIVE_WAY_EVERY: usize = 8;

thread_local! {
    /// Writes of pages so far of the long commit under way, if there is one.
    static LONG_COMMIT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Runs a commit. If it is long, its writes give way to shorter work. A short commit does not give way: clients wait
/// for it, and it is over in a fraction of a millisecond.
pub(crate) fn committing<T>(is_long: bool, commit: impl FnOnce() -> T) -> T {
    LONG_COMMIT.set(is_long.then_some(0));
    let result = commit();
    LONG_COMMIT.set(None);
    result
}

/// A file below redb.
#[derive(Debug)]
pub(crate) struct WatchedFile {
    /// The path, for messages.
    pub(crate) path: PathBuf,
    /// The file itself.
    pub(crate) inner: Box<dyn StorageBackend>,
    /// Reader of the part of it that is in memory, if the system can tell.
    pub(crate) at_once: Option<Box<dyn ReadAtOnce>>,
    /// The state of its disk.
    pub(crate) disk: Arc<Disk>,
}

impl WatchedFile {
    /// Reads from the disk; a failure is retried once, because some errors are transient.
    fn read_disk(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner
            .read(offset, out)
            .or_else(|_| self.inner.read(offset, out))
    }

    fn reason(offset: u64, len: usize, error: &io::Error) -> String {
        let end = offset + len as u64;
        let reason = match error.kind() {
            io::ErrorKind::UnexpectedEof => "the file is cut short".to_owned(),
            _ => error.to_string(),
        };
        format!("bytes {offset} to {end} cannot be read: {reason}")
    }
}

impl StorageBackend for WatchedFile {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        // redb may read such a page while it holds a lock, which unwinding would poison.
        if self.disk.written.may_hold(offset) {
            return self.inner.read(offset, out);
        }
        if is_isolated()
            && let Some((kind, reason)) = self.disk.known_bad(offset, out.len())
        {
            self.disk.count_failed_read();
            return Err(fail_read(kind, reason));
        }
        if must_not_wait()
            && let Some(file) = &self.at_once
        {
            if file.read_at_once(offset, out) {
                return Ok(());
            }
            refuse_to_wait();
        }
        let begun = self.disk.now();
        let Err(error) = self.read_disk(offset, out) else {
            self.disk.note_good(offset, out.len());
            return Ok(());
        };
        let took = self.disk.now().saturating_duration_since(begun);
        let reason = Self::reason(offset, out.len(), &error);
        self.disk.count_failed_read();
        let why = (error.kind(), &reason[..]);
        if self.disk.note_bad(offset, out.len(), why, took) {
            tracing::error!(file = %self.path.display(), %reason, "a part of a file cannot be read");
        }
        Err(fail_read(error.kind(), reason))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.reserve.spend(0, || self.inner.set_len(len))?;
        self.disk.note_len(len);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.written.insert(offset);
        let write = || self.inner.write(offset, data);
        self.disk.reserve.spend(data.len(), write)?;
        self.disk.note_good(offset, data.len());
        if let Some(writes) = LONG_COMMIT.get() {
            give_way(writes, WRITES_GIVE_WAY_EVERY);
            LONG_COMMIT.set(Some(writes + 1));
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.inner.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.query_lock_range(start, end)
    }
}
