//! Failed reads of the disk, isolated from redb.
//!
//! redb refuses all work after one failed read until the file is opened again. So a failed read is not returned to
//! redb: it unwinds through redb to [`isolated`], which turns it into [`FileError::Unreadable`] for this one use of the
//! file. redb never gets replacement bytes for an unreadable page, nothing is cached, and no page can send a key the
//! wrong way. The invariant: work under [`isolated`] that met a failed read never succeeds. Outside of [`isolated`],
//! while redb opens, commits or closes, a failed read is an ordinary I/O error of redb.
//!
//! Unwinding is safe because redb 4.6.0, which the workspace pins, holds no lock over an isolated read that unwinding
//! would poison. By its source:
//! - `CheckedBackend::read` holds the `io_gate` for reading, and a `RwLock` is poisoned only under a write guard.
//! - `PagedCachedFile::read` has given its locks back when it reads the file.
//! - `PagedCachedFile::write` reads under the mutex of a stripe of the write buffer, if the page is in no cache.
//!   Its only such caller is `get_page_mut`, for pages that the transaction itself has allocated. They are in the file
//!   because the write buffer was full: [`crate::written_pages`] has them, and their reads never unwind.
//! - `WriteTransaction::{open_table, list_tables, delete_table}` read under the mutex of the tables. The engine opens
//!   tables [`unisolated`], and calls the others outside of [`isolated`].
//! - `Table::get_mut` reads under the mutex of the freed pages. The engine does not call it.
//! - `WriteTransaction::commit` and `abort`, and opening and closing, read under several locks, outside of
//!   [`isolated`].

use std::cell::Cell;
use std::io;
use std::panic::resume_unwind;
use std::thread::LocalKey;

use crate::file_error::{BadRead, FileError, MustWait, guarded};

thread_local! {
    static MAY_WAIT: Cell<bool> = const { Cell::new(true) };
    static IS_ISOLATED: Cell<bool> = const { Cell::new(false) };
    static FAILED_READS: Cell<u64> = const { Cell::new(0) };
}

/// Runs `work` with a flag of this thread set to `value`. Afterwards the flag has its previous value, even if `work`
/// panics.
fn with<T>(flag: &'static LocalKey<Cell<bool>>, value: bool, work: impl FnOnce() -> T) -> T {
    struct Restore(&'static LocalKey<Cell<bool>>, bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }
    let _restore = Restore(flag, flag.replace(value));
    work()
}

/// Runs `work` and turns a failed read or a panic of redb in it into a failure. `work` may change only a transaction
/// that the caller aborts.
pub(crate) fn isolated<T>(work: impl FnOnce() -> Result<T, FileError>) -> Result<T, FileError> {
    let failed_before = FAILED_READS.get();
    match with(&IS_ISOLATED, true, || guarded(work)) {
        Ok(_) if FAILED_READS.get() != failed_before => Err(FileError::Unreadable(
            "a part of the file cannot be read".to_owned(),
        )),
        result => result,
    }
}

/// Runs `work` under [`isolated`] if it need not wait for the disk; otherwise fails with
/// [`FileError::MustWait`].
pub(crate) fn at_once<T>(work: impl FnOnce() -> Result<T, FileError>) -> Result<T, FileError> {
    with(&MAY_WAIT, false, || isolated(work))
}

/// Returns whether reads on this thread are forbidden to wait for the disk.
pub(crate) fn must_not_wait() -> bool {
    !MAY_WAIT.get() && is_isolated()
}

/// Ends a read that would have to wait. May be called only while [`must_not_wait`] holds.
pub(crate) fn refuse_to_wait() -> ! {
    resume_unwind(Box::new(MustWait))
}

/// Runs `work` so that a failed read is returned to redb as an error, also under [`isolated`]. For reads
/// while redb holds a lock: unwinding would poison the lock, and the next use of it while a table is dropped
/// would end the process.
pub(crate) fn unisolated<T>(work: impl FnOnce() -> T) -> T {
    with(&IS_ISOLATED, false, work)
}

/// Returns whether a failed read on this thread may unwind. A read that fails during another unwinding may
/// not: a second unwinding would end the process.
pub(crate) fn is_isolated() -> bool {
    IS_ISOLATED.get() && !std::thread::panicking()
}

/// Ends a failed read: unwinds to [`isolated`], or returns the error if there is no [`isolated`] on the stack.
pub(crate) fn fail_read(kind: io::ErrorKind, reason: String) -> io::Error {
    FAILED_READS.set(FAILED_READS.get() + 1);
    if is_isolated() {
        // Unlike a panic this calls no hook, and prints nothing.
        resume_unwind(Box::new(BadRead { reason }));
    }
    io::Error::new(kind, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail() -> io::Error {
        fail_read(io::ErrorKind::Other, "bytes 1 to 2".to_owned())
    }

    #[test]
    fn a_failed_read_unwinds_only_where_it_is_isolated() {
        let failure = isolated::<()>(|| Err(fail().into())).unwrap_err();
        assert_eq!(failure, FileError::Unreadable("bytes 1 to 2".to_owned()));
        assert!(!is_isolated());
        let failure = guarded::<()>(|| Err(fail().into())).unwrap_err();
        assert!(matches!(failure, FileError::Io(_)), "{failure}");
    }

    #[test]
    fn a_failed_read_is_an_error_where_redb_holds_a_lock() {
        let failure = isolated::<()>(|| Err(unisolated(fail).into())).unwrap_err();
        assert!(matches!(failure, FileError::Io(_)), "{failure}");
    }

    #[test]
    fn a_panic_of_the_engine_leaves_no_flag_behind() {
        let work = || at_once::<()>(|| panic!("an assertion of the engine"));
        std::panic::catch_unwind(work).unwrap_err();
        assert!(!is_isolated() && MAY_WAIT.get());
    }

    #[test]
    fn work_that_hides_a_failed_read_does_not_succeed() {
        let hidden = isolated(|| {
            let _ = guarded::<()>(|| Err(fail().into()));
            Ok(())
        });
        assert!(matches!(hidden, Err(FileError::Unreadable(_))));
        isolated(|| Ok(())).unwrap();
    }
}
