//! Where the bytes of a shard's file come from: the file system, a simulated disk, or one with faults.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
#[cfg(feature = "simulation")]
use std::time::Duration;
use std::time::Instant;

use redb::{DatabaseError, StorageBackend};

use crate::runner::Runner;

/// How redb accesses the bytes of a file, and the executor of its committer. Tests inject faults here, and a
/// simulation a whole disk.
#[cfg_attr(
    not(feature = "simulation"),
    expect(unreachable_pub, reason = "public for simulations only")
)]
pub trait Opener: Send + Sync + std::fmt::Debug {
    /// Opens an existing file.
    fn open(&self, path: &Path) -> Result<Box<dyn StorageBackend>, DatabaseError>;

    /// Creates an empty file, durably, replacing any file of that name.
    fn create(&self, path: &Path) -> io::Result<()> {
        File::create(path)?.sync_all()
    }

    /// Tests whether the disk has room for this many bytes more, and frees them again.
    fn probe_room(&self, path: &Path, bytes: usize) -> io::Result<()> {
        let probe = || -> io::Result<()> {
            let mut file = File::create(path)?;
            let block = vec![0x5A; 64 << 10];
            for _ in 0..bytes.div_ceil(block.len()) {
                file.write_all(&block)?;
            }
            file.sync_data()
        };
        let probed = probe();
        // A probe file that is left over does no harm: the next probe replaces it.
        let _ = std::fs::remove_file(path);
        probed
    }

    /// Returns the executor of committers.
    fn runner(&self) -> Runner {
        Runner::Threads
    }

    /// Opens a reader of the part of an existing file that is in memory. None if the system cannot tell:
    /// reads then wait for the disk on the calling thread.
    fn open_at_once(&self, _path: &Path) -> Option<Box<dyn ReadAtOnce>> {
        None
    }

    /// Returns the current time, in which the bounds on the disk are measured.
    fn now(&self) -> Instant {
        self.runner().now()
    }

    /// Returns how long the next commit of a file takes in simulated time.
    #[cfg(feature = "simulation")]
    fn commit_time(&self, _path: &Path) -> Duration {
        Duration::ZERO
    }
}

/// Reads the part of a file that is in memory.
#[cfg_attr(
    not(feature = "simulation"),
    expect(unreachable_pub, reason = "public for simulations only")
)]
pub trait ReadAtOnce: Send + Sync + std::fmt::Debug {
    /// Fills `out` if that needs no waiting for the disk. Returns whether it did.
    fn read_at_once(&self, offset: u64, out: &mut [u8]) -> bool;
}
