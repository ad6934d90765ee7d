//! The source of the bytes of a shard's file: the file system, a simulated disk, or a disk with faults.

use std::fs::File;
use std::io;
use std::path::Path;
#[cfg(feature = "simulation")]
use std::time::Duration;
use std::time::Instant;

use redb::{DatabaseError, StorageBackend};

use crate::disk_space::{blocks_of, disk_space};
use crate::reserved_file::set_reserved;
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

    /// Changes how many bytes of the disk a file reserves for later. Returns how many it has reserved then: fewer if
    /// the disk is full.
    fn reserve(&self, path: &Path, bytes: u64) -> io::Result<u64> {
        set_reserved(path, bytes)
    }

    /// Returns how many bytes a file has reserved.
    fn reserved(&self, path: &Path) -> u64 {
        std::fs::metadata(path).map_or(0, |file| file.len())
    }

    /// Returns how many bytes are free on the disk of a shard's file, or `None` if unknown.
    fn free(&self, path: &Path) -> Option<u64> {
        Some(disk_space(path.parent()?)?.free)
    }

    /// Returns how many bytes of the disk a shard's file takes, or `None` if unknown.
    fn bytes_on_disk(&self, path: &Path) -> Option<u64> {
        blocks_of(path)
    }

    /// Returns the executor of committers.
    fn runner(&self) -> Runner {
        Runner::Threads
    }

    /// Opens a reader of the part of an existing file that is in memory. Returns `None` if the system does not support
    /// it: reads then wait for the disk on the calling thread.
    fn open_at_once(&self, _path: &Path) -> Option<Box<dyn ReadAtOnce>> {
        None
    }

    /// Returns the current time of the runner. The bounds on the disk are measured in this time.
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
    /// Fills `out` if this does not have to wait for the disk. Returns whether it did.
    fn read_at_once(&self, offset: u64, out: &mut [u8]) -> bool;
}
