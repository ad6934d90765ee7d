//! The reserve of a shard: bytes of the disk, in a separate file, for commits that make room on a full disk.
//!
//! Owns the file `shard-NNN.reserve` and the decision when its bytes are given up. If a write of the shard's file finds
//! the disk full, it takes bytes from the reserve and is made again, unless the commit stores rows. The invariant: a
//! commit that stores rows uses nothing of the reserve, and no such commit begins while less than half of the reserve
//! is left.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::disk_space::disk_space;
use crate::opener::Opener;
use crate::reserved_file::{STEP_LEN, is_full};

/// Extension of the file.
const EXTENSION: &str = "reserve";
/// Bytes of a whole reserve: enough for the pages that the removal of some hundred rows copies, several times over,
/// as pages that are freed can be used from the second commit on.
const RESERVE_LEN: u64 = 4 << 20;
/// The same on a small disk: all reserves together take at most this part of it,
const DISK_PART: u64 = 8;
/// but each has at least these bytes, which hold a few small commits.
const RESERVE_LEN_MIN: u64 = 512 << 10;

/// The reserve of a shard's file.
#[derive(Debug)]
pub(crate) struct Reserve {
    opener: Arc<dyn Opener>,
    path: PathBuf,
    /// Bytes of the whole reserve; 0 for a file that is not served.
    len: u64,
    /// Bytes of the reserve that are left.
    left: AtomicU64,
    /// Whether the commit under way may use the reserve.
    is_open: AtomicBool,
}

impl Reserve {
    /// Makes the reserve of a file that is not served, which has no bytes.
    pub(crate) fn none(opener: Arc<dyn Opener>) -> Self {
        Self::of(opener, Path::new(""), 0)
    }

    /// Describes the reserve of a shard's file in a folder of this number of shards. Nothing is written yet.
    pub(crate) fn beside(opener: Arc<dyn Opener>, file: &Path, shards: usize) -> Self {
        let disk = file.parent().and_then(disk_space);
        let part = disk.map_or(u64::MAX, |disk| {
            disk.size / DISK_PART / shards.max(1) as u64
        });
        Self::of(opener, file, part.clamp(RESERVE_LEN_MIN, RESERVE_LEN))
    }

    /// Makes the same reserve, and measures its remaining bytes again.
    pub(crate) fn anew(&self) -> Self {
        Self::of(Arc::clone(&self.opener), &self.path, self.len)
    }

    fn of(opener: Arc<dyn Opener>, file: &Path, len: u64) -> Self {
        let path = file.with_extension(EXTENSION);
        let left = if len == 0 {
            0
        } else {
            opener.reserved(&path).min(len)
        };
        Self {
            opener,
            path,
            len,
            left: AtomicU64::new(left),
            is_open: AtomicBool::new(true),
        }
    }

    /// Gives up the reserve of a file that leaves its folder.
    pub(crate) fn remove_beside(opener: &dyn Opener, file: &Path) -> io::Result<()> {
        opener.reserve(&file.with_extension(EXTENSION), 0)?;
        Ok(())
    }

    /// Allows or forbids the commits from now on to use the reserve.
    pub(crate) fn set_open(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Relaxed);
    }

    /// Returns whether no byte of the reserve is missing.
    pub(crate) fn is_whole(&self) -> bool {
        self.left() >= self.len
    }

    /// Returns whether enough of the reserve is left to store rows.
    pub(crate) fn is_sufficient(&self) -> bool {
        self.left() >= self.len / 2
    }

    fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Refills the reserve with the bytes that the disk has room for.
    pub(crate) fn refill(&self) -> io::Result<()> {
        if !self.is_whole() {
            let left = self.opener.reserve(&self.path, self.len)?;
            self.left.store(left, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Tests whether the disk has room for this many bytes in addition to the reserve, and frees them again.
    pub(crate) fn probe(&self, bytes: u64) -> io::Result<()> {
        let wanted = self.left() + bytes;
        let probed = self.opener.reserve(&self.path, wanted)?;
        self.opener.reserve(&self.path, self.left())?;
        if probed < wanted {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    /// Makes a change of the file, and makes it again with bytes of the reserve if the disk is full.
    pub(crate) fn spend<T>(
        &self,
        bytes: usize,
        mut change: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match change() {
                Err(error) if is_full(&error) && self.give_up(bytes as u64) => {}
                result => return result,
            }
        }
    }

    /// Gives bytes to the disk, at least this many if the reserve has them. Returns whether it gave some.
    fn give_up(&self, bytes: u64) -> bool {
        let left = self.left();
        if left == 0 || !self.is_open.load(Ordering::Relaxed) {
            return false;
        }
        let after = left.saturating_sub(bytes.max(1).next_multiple_of(STEP_LEN));
        if self.opener.reserve(&self.path, after).is_err() {
            return false;
        }
        if left == self.len {
            let file = self.path.display();
            tracing::warn!(%file, "the disk is full: a shard begins to use its reserve to make room");
        }
        self.left.store(after, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain_files::PlainFiles;

    #[test]
    fn a_reserve_is_given_up_in_steps_and_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("shard-000.redb");
        let opener: Arc<dyn Opener> = Arc::new(PlainFiles);
        let reserve = Reserve::of(Arc::clone(&opener), &file, 3 * STEP_LEN);
        assert!(!reserve.is_sufficient());
        reserve.refill().unwrap();
        assert!(reserve.is_whole());
        reserve.probe(STEP_LEN).unwrap();
        let mut tries = 0;
        let mut change = || {
            tries += 1;
            if tries < 3 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            Ok(tries)
        };
        assert_eq!(reserve.spend(1, &mut change).unwrap(), 3);
        assert!(!reserve.is_sufficient());
        let again = Reserve::of(opener, &file, 3 * STEP_LEN);
        assert_eq!(again.left(), STEP_LEN, "it is known after a restart");
        // Commits that store rows get nothing of it, and the last bytes are given only once.
        let full = || Err::<(), _>(io::Error::from(io::ErrorKind::StorageFull));
        again.set_open(false);
        again.spend(1, full).unwrap_err();
        assert_eq!(again.left(), STEP_LEN);
        again.set_open(true);
        again.spend(1, full).unwrap_err();
        assert_eq!(again.left(), 0);
        again.refill().unwrap();
        assert!(again.is_whole());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
