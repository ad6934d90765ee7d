//! A simulated disk under redb: synced bytes stay, later writes may be torn by a crash.
//!
//! Contents are kept per sector. A crash keeps of each sector that was written since the last sync one of its
//! versions, at random; a failed sync follows Linux (Rebello et al. 2020): some sectors reach the disk, the
//! others do not although readers still see them, until they are written again. The folder around the files
//! is real: each simulated file is represented by a small real one that contains its number, so that renames
//! and checks of existence work.

mod image;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redb::{DatabaseError, StorageBackend, StorageError};
use tokio::sync::Notify;
use umbo_store_redb::{Opener, Runner};

use crate::chance::Chance;
use crate::simulation::{met, note};
use image::Image;
pub use image::SECTOR_LEN;

/// Faults of a disk that last until they are changed; probabilities in ten-thousandths.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiskFaults {
    /// Reads that fail.
    pub read: u64,
    /// Writes that fail.
    pub write: u64,
    /// Syncs that fail and lose writes.
    pub sync: u64,
}

#[derive(Debug)]
struct DiskState {
    files: BTreeMap<u64, Image>,
    /// Files of rows: only these are damaged. The log of a shard reports damage, and the shard does not open.
    row_files: BTreeSet<u64>,
    /// Bytes that are kept for later, by file.
    reserves: BTreeMap<PathBuf, u64>,
    last_file: u64,
    chance: Chance,
    faults: DiskFaults,
    /// The power fails, or the process is killed, before this many further changes.
    changes_left: Option<u64>,
    /// Number of changes: writes, changes of length, and syncs.
    changes: u64,
    /// Whether the next end is that of the process, which loses no write.
    is_kill: bool,
    /// The power has failed: all operations fail until [`SimulatedDisk::restart`].
    is_off: bool,
    /// Handles of an earlier start fail.
    start: u64,
    /// Open handles.
    handles: u64,
    /// Space for all files together, in bytes.
    room: u64,
    /// Shortest and longest time of a commit, in microseconds.
    commit_time: (u64, u64),
}

impl DiskState {
    /// Returns the space that is used of the disk, in bytes.
    fn used(&self) -> u64 {
        let files: u64 = self.files.values().map(Image::space).sum();
        files + self.reserves.values().sum::<u64>()
    }
}

/// A disk of a simulated host. Clones share the disk.
#[derive(Debug, Clone)]
pub struct SimulatedDisk {
    state: Arc<Mutex<DiskState>>,
    went_off: Arc<Notify>,
}

impl SimulatedDisk {
    /// Makes an empty disk without faults.
    pub fn new(chance: Chance) -> Self {
        Self {
            state: Arc::new(Mutex::new(DiskState {
                files: BTreeMap::new(),
                row_files: BTreeSet::new(),
                reserves: BTreeMap::new(),
                last_file: 0,
                chance,
                faults: DiskFaults::default(),
                changes_left: None,
                changes: 0,
                is_kill: false,
                is_off: false,
                start: 0,
                handles: 0,
                room: u64::MAX,
                commit_time: (100, 2_000),
            })),
            went_off: Arc::new(Notify::new()),
        }
    }

    /// Sets the lasting faults.
    pub fn set_faults(&self, faults: DiskFaults) {
        self.lock().faults = faults;
    }

    /// Sets the free space for all files, in bytes; none for unlimited.
    pub fn set_room(&self, bytes: Option<u64>) {
        let mut state = self.lock();
        state.room = bytes.map_or(u64::MAX, |bytes| state.used() + bytes);
    }

    /// Sets how long a commit takes, in microseconds.
    pub fn set_commit_time(&self, shortest: u64, longest: u64) {
        self.lock().commit_time = (shortest, longest);
    }

    /// Makes the power fail before this many further changes.
    pub fn fail_power_after(&self, changes: u64) {
        self.lock().changes_left = Some(changes);
    }

    /// Kills the process before this many further changes: what it wrote stays, synced or not.
    pub fn kill_after(&self, changes: u64) {
        let mut state = self.lock();
        state.changes_left = Some(changes);
        state.is_kill = true;
    }

    /// Returns the number of changes so far: writes, changes of length, and syncs.
    pub fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Makes the power fail at once.
    pub fn fail_power(&self) {
        self.lock().is_off = true;
        self.went_off.notify_one();
    }

    /// Waits until the power has failed.
    pub async fn power_failed(&self) {
        while !self.is_off() {
            self.went_off.notified().await;
        }
    }

    /// Returns whether the power has failed.
    pub fn is_off(&self) -> bool {
        self.lock().is_off
    }

    /// Returns the number of open handles.
    pub fn handles(&self) -> u64 {
        self.lock().handles
    }

    /// Starts the host again: after a power failure, writes that were not synced are torn.
    pub fn restart(&self) {
        let mut state = self.lock();
        let DiskState {
            files,
            chance,
            is_kill,
            ..
        } = &mut *state;
        if *is_kill {
            note!("the process was killed");
        } else {
            let torn = files.values_mut().map(|image| image.crash(chance));
            note!(
                "power fails: {} sectors were not synced",
                torn.sum::<usize>()
            );
        }
        state.is_kill = false;
        state.is_off = false;
        state.changes_left = None;
        state.start += 1;
    }

    /// Removes all faults. What a failed sync has lost stays lost, and damage stays.
    pub fn heal(&self) {
        let mut state = self.lock();
        state.faults = DiskFaults::default();
        state.room = u64::MAX;
        state.changes_left = None;
        state.is_kill = false;
        state.commit_time = (100, 2_000);
        for image in state.files.values_mut() {
            image.heal();
        }
    }

    /// Returns the contents of a file, as a copying program reads them.
    pub fn read_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        let number = Self::number_of(path)?;
        let state = self.lock();
        let image = state.files.get(&number);
        let image = image.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(image.contents().to_vec())
    }

    /// Makes a file with these contents, durably, replacing any file of that name.
    pub fn write_file(&self, path: &Path, contents: Vec<u8>) -> io::Result<()> {
        self.create(path)?;
        let number = Self::number_of(path)?;
        self.lock().files.insert(number, Image::of(contents));
        Ok(())
    }

    /// Makes the sector with the middle of these bytes unreadable. Returns whether the bytes were found.
    pub fn spoil_sector_of(&self, bytes: &[u8]) -> bool {
        let mut state = self.lock();
        let DiskState {
            files, row_files, ..
        } = &mut *state;
        let mut images = files
            .iter_mut()
            .filter(|(number, _)| row_files.contains(number));
        images.any(|(_, image)| image.spoil(bytes))
    }

    /// Flips a bit in the middle of these bytes wherever they occur. Returns whether they were found.
    pub fn flip_bit_of(&self, bytes: &[u8]) -> bool {
        let mut state = self.lock();
        let DiskState {
            files, row_files, ..
        } = &mut *state;
        let images = files
            .iter_mut()
            .filter(|(number, _)| row_files.contains(number));
        let flipped = images.map(|(_, image)| image.flip(bytes));
        flipped.filter(|&flipped| flipped).count() > 0
    }

    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number_of(path: &Path) -> io::Result<u64> {
        let text = std::fs::read_to_string(path)?;
        let number = text.trim().parse();
        number.map_err(|_| io::Error::other("not a simulated file"))
    }
}

impl Opener for SimulatedDisk {
    fn open(&self, path: &Path) -> Result<Box<dyn StorageBackend>, DatabaseError> {
        let number = Self::number_of(path).map_err(StorageError::Io)?;
        let mut state = self.lock();
        if state.is_off || !state.files.contains_key(&number) {
            return Err(StorageError::Io(io::Error::other("the power has failed")).into());
        }
        state.handles += 1;
        let start = state.start;
        drop(state);
        Ok(Box::new(Handle {
            disk: self.clone(),
            number,
            start,
        }))
    }

    fn create(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.last_file += 1;
        let number = state.last_file;
        state.files.insert(number, Image::default());
        if path
            .extension()
            .is_some_and(|extension| extension == "redb")
        {
            state.row_files.insert(number);
        }
        std::fs::write(path, number.to_string())
    }

    fn reserve(&self, path: &Path, bytes: u64) -> io::Result<u64> {
        let mut state = self.lock();
        if state.is_off {
            return Err(io::Error::other("the power has failed"));
        }
        state.reserves.remove(path);
        let reserved = bytes.min(state.room.saturating_sub(state.used()));
        state.reserves.insert(path.to_owned(), reserved);
        Ok(reserved)
    }

    fn reserved(&self, path: &Path) -> u64 {
        self.lock().reserves.get(path).copied().unwrap_or(0)
    }

    fn free(&self, _: &Path) -> Option<u64> {
        let state = self.lock();
        Some(state.room.saturating_sub(state.used()))
    }

    fn bytes_on_disk(&self, path: &Path) -> Option<u64> {
        let number = Self::number_of(path).ok()?;
        Some(self.lock().files.get(&number)?.space())
    }

    fn runner(&self) -> Runner {
        Runner::Tasks
    }

    fn commit_time(&self, _path: &Path) -> Duration {
        let mut state = self.lock();
        let (shortest, longest) = state.commit_time;
        Duration::from_micros(state.chance.between(shortest, longest))
    }
}

/// The handle of a file for redb.
#[derive(Debug)]
struct Handle {
    disk: SimulatedDisk,
    number: u64,
    start: u64,
}

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DiskOperation {
    Read,
    Write,
    Sync,
    Length,
}

impl Handle {
    /// Runs an operation on the image, unless a fault prevents it.
    fn operate<T>(
        &self,
        kind: DiskOperation,
        operation: impl FnOnce(&mut Image, &mut Chance) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = self.disk.lock();
        if state.is_off || state.start != self.start {
            return Err(io::Error::other("the power has failed"));
        }
        state.changes += u64::from(kind != DiskOperation::Read);
        let is_kill = state.is_kill;
        if kind != DiskOperation::Read
            && let Some(left) = &mut state.changes_left
        {
            if *left == 0 {
                met(if is_kill {
                    "kill amid a commit"
                } else {
                    "power failure amid a commit"
                });
                state.is_off = true;
                self.disk.went_off.notify_one();
                return Err(io::Error::other("the power has failed"));
            }
            *left -= 1;
        }
        let faults = state.faults;
        let (times, name) = match kind {
            DiskOperation::Read => (faults.read, "failed read"),
            DiskOperation::Write | DiskOperation::Length => (faults.write, "failed write"),
            DiskOperation::Sync => (faults.sync, "failed sync"),
        };
        let is_failing = times > 0 && state.chance.below(10_000) < times;
        let DiskState { files, chance, .. } = &mut *state;
        let image = files
            .get_mut(&self.number)
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        if is_failing {
            met(name);
            note!("file {}: {name}", self.number);
            if kind == DiskOperation::Sync {
                image.fail_sync(chance);
            }
            return Err(io::Error::other("a fault of the disk"));
        }
        operation(image, chance)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.disk.lock().handles -= 1;
    }
}

impl StorageBackend for Handle {
    fn len(&self) -> io::Result<u64> {
        self.operate(DiskOperation::Read, |image, _| Ok(image.len()))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let read = self.operate(DiskOperation::Read, |image, _| image.read(offset, out));
        if let Err(error) = &read
            && error.kind() == io::ErrorKind::InvalidData
        {
            met("unreadable sector");
        }
        read
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.operate(DiskOperation::Length, |image, _| {
            image.set_len(len);
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.operate(DiskOperation::Sync, |image, _| {
            image.sync();
            Ok(())
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (room, used) = {
            let state = self.disk.lock();
            (state.room, state.used())
        };
        self.operate(DiskOperation::Write, |image, _| {
            let more = image.space_for(offset, data.len());
            if more > 0 && used.saturating_add(more) > room {
                met("full disk");
                return Err(io::ErrorKind::StorageFull.into());
            }
            image.write(offset, data)
        })
    }
}
