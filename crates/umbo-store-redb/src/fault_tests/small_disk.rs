//! A disk with a bound, on ordinary files. As on most file systems, a file takes room only where it was written.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use redb::backends::FileBackend;
use redb::{DatabaseError, StorageBackend, StorageError};

use crate::opener::Opener;

/// Unit in which a file takes room, in bytes.
const BLOCK_LEN: u64 = 4_096;

#[derive(Debug, Default)]
struct Space {
    /// By file: the blocks that were written.
    files: BTreeMap<PathBuf, BTreeSet<u64>>,
    reserves: BTreeMap<PathBuf, u64>,
    /// What other programs have.
    others: u64,
    size: u64,
}

impl Space {
    fn free(&self) -> u64 {
        let reserves: u64 = self.reserves.values().sum();
        self.size
            .saturating_sub(self.used() + reserves + self.others)
    }

    fn used(&self) -> u64 {
        let blocks: usize = self.files.values().map(BTreeSet::len).sum();
        blocks as u64 * BLOCK_LEN
    }
}

/// Opens files on a disk of so many bytes.
#[derive(Debug)]
pub(super) struct SmallDisk(Arc<Mutex<Space>>);

impl SmallDisk {
    pub(super) fn new(size: u64) -> Self {
        let space = Space {
            size,
            ..Space::default()
        };
        Self(Arc::new(Mutex::new(space)))
    }

    fn space(&self) -> MutexGuard<'_, Space> {
        self.0.lock().unwrap()
    }

    /// Another program takes all that is free.
    pub(super) fn fill(&self) {
        let mut space = self.space();
        space.others += space.free();
    }

    /// Returns the bytes that the files of shards have.
    pub(super) fn used(&self) -> u64 {
        self.space().used()
    }

    /// Returns the bytes that all reserves have.
    pub(super) fn reserved_bytes(&self) -> u64 {
        self.space().reserves.values().sum()
    }
}

impl Opener for SmallDisk {
    fn open(&self, path: &Path) -> Result<Box<dyn StorageBackend>, DatabaseError> {
        let file = std::fs::File::options().read(true).write(true).open(path);
        Ok(Box::new(BoundedFile {
            path: path.to_owned(),
            inner: FileBackend::new(file.map_err(StorageError::Io)?)?,
            space: Arc::clone(&self.0),
        }))
    }

    fn reserve(&self, path: &Path, bytes: u64) -> io::Result<u64> {
        let mut space = self.space();
        space.reserves.remove(path);
        let reserved = bytes.min(space.free());
        space.reserves.insert(path.to_owned(), reserved);
        Ok(reserved)
    }

    fn reserved(&self, path: &Path) -> u64 {
        self.space().reserves.get(path).copied().unwrap_or(0)
    }

    fn free(&self, _: &Path) -> Option<u64> {
        Some(self.space().free())
    }

    fn bytes_on_disk(&self, path: &Path) -> Option<u64> {
        let blocks = self.space().files.get(path)?.len();
        Some(blocks as u64 * BLOCK_LEN)
    }
}

#[derive(Debug)]
struct BoundedFile {
    path: PathBuf,
    inner: FileBackend,
    space: Arc<Mutex<Space>>,
}

impl StorageBackend for BoundedFile {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut space = self.space.lock().unwrap();
        let blocks = space.files.entry(self.path.clone()).or_default();
        blocks.split_off(&len.div_ceil(BLOCK_LEN));
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut space = self.space.lock().unwrap();
        let free = space.free();
        let blocks = space.files.entry(self.path.clone()).or_default();
        let end = (offset + data.len() as u64).div_ceil(BLOCK_LEN);
        let new: Vec<_> = (offset / BLOCK_LEN..end)
            .filter(|block| !blocks.contains(block))
            .collect();
        if new.len() as u64 * BLOCK_LEN > free {
            return Err(io::ErrorKind::StorageFull.into());
        }
        blocks.extend(new);
        self.inner.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }
}
