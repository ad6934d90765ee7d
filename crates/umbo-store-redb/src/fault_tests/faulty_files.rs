//! Files that fail, panic, wait and report operations on command of a test.

use std::backtrace::Backtrace;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

use redb::backends::FileBackend;
use redb::{DatabaseError, StorageBackend, StorageError};

use crate::opener::{Opener, ReadAtOnce};

/// Number of the system's error for a sector that cannot be read.
const EIO: i32 = 5;

/// What happens instead of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileFault {
    Fail(io::ErrorKind),
    /// As redb does on damaged bytes.
    RedbPanic,
    /// As a broken invariant of the engine does.
    OwnPanic,
}

/// Which operations a fault is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileOperation {
    Read,
    Write,
    Sync,
    /// Writes, changes of length and syncs.
    Change,
}

/// Whether a read under a lock of redb fails.
#[derive(Debug, Default)]
enum LockedRead {
    #[default]
    Served,
    /// The next one will.
    Armed,
    /// One has, and so do all of its page.
    Failed(u64),
}

/// A file whose reads or syncs hang.
#[derive(Debug)]
struct Hung {
    name: String,
    kind: FileOperation,
}

impl Hung {
    fn is(&self, name: &str, kind: FileOperation) -> bool {
        self.name == name && self.kind == kind
    }
}

#[derive(Debug, Default)]
struct Armed {
    fault: Option<(FileOperation, FileFault)>,
    is_once: bool,
}

#[derive(Debug, Default)]
pub(super) struct Control {
    armed: Mutex<Armed>,
    /// Number of operations of the armed kind that still succeed.
    countdown: AtomicI64,
    hits: AtomicU64,
    syncs: Mutex<u64>,
    synced: Condvar,
    is_held: Mutex<bool>,
    released: Condvar,
    waiting: AtomicU64,
    /// Ranges of the shard's file whose reads fail, and how many have.
    bad_sectors: Mutex<Vec<Range<u64>>>,
    /// Ranges that join them once the shard's log is opened, which is after its file.
    bad_once_open: Mutex<Vec<Range<u64>>>,
    bad_sector_reads: AtomicU64,
    locked_read: Mutex<LockedRead>,
    /// Beginning of the disk's clock, and what a test has advanced it by.
    began: OnceLock<Instant>,
    advanced: Mutex<Duration>,
    openings: AtomicU64,
    /// Whether reads that have to wait can be told from others.
    tells_waiting: AtomicBool,
    hung: Mutex<Option<Hung>>,
    /// How many reads and syncs of hung files have had to wait.
    hanging: AtomicU64,
    unhung: Condvar,
}

impl Control {
    /// Fills the part before a bad sector, as disks do, and fails.
    fn check_sectors(&self, file: &FileBackend, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bad = self.bad_sectors.lock().unwrap().clone();
        let end = offset + out.len() as u64;
        let Some(hit) = bad.iter().find(|bad| bad.start < end && offset < bad.end) else {
            return Ok(());
        };
        self.bad_sector_reads.fetch_add(1, Ordering::SeqCst);
        let good = usize::try_from(hit.start.saturating_sub(offset)).unwrap();
        file.read(offset, &mut out[..good])?;
        Err(io::Error::from_raw_os_error(EIO))
    }

    fn check(&self, kind: FileOperation) -> io::Result<()> {
        let mut armed = self.armed.lock().unwrap();
        let Some((armed_kind, fault)) = armed.fault else {
            return Ok(());
        };
        let is_meant = armed_kind == kind
            || (armed_kind == FileOperation::Change && kind != FileOperation::Read);
        if !is_meant || self.countdown.fetch_sub(1, Ordering::SeqCst) > 0 {
            return Ok(());
        }
        self.hits.fetch_add(1, Ordering::SeqCst);
        if armed.is_once {
            armed.fault = None;
        }
        drop(armed);
        match fault {
            FileFault::Fail(kind) => Err(kind.into()),
            FileFault::RedbPanic => {
                <u32 as redb::Value>::from_bytes(&[]);
                unreachable!("redb panics")
            }
            FileFault::OwnPanic => panic!("a fault of the test"),
        }
    }

    /// Fails a read by redb's function that reads under a lock, and the repetitions of that read.
    fn check_locked(&self, offset: u64) -> io::Result<()> {
        let mut locked = self.locked_read.lock().unwrap();
        let is_it = match *locked {
            LockedRead::Served => return Ok(()),
            LockedRead::Armed => {
                let stack = Backtrace::force_capture().to_string();
                stack.contains("PagedCachedFile::write")
            }
            LockedRead::Failed(page) => page == offset,
        };
        if !is_it {
            return Ok(());
        }
        *locked = LockedRead::Failed(offset);
        self.hits.fetch_add(1, Ordering::SeqCst);
        Err(io::Error::from_raw_os_error(EIO))
    }

    fn wait_while_hung(&self, name: &str, kind: FileOperation) {
        let hung = self.hung.lock().unwrap();
        let is_it = hung.as_ref().is_some_and(|hung| hung.is(name, kind));
        self.hanging.fetch_add(u64::from(is_it), Ordering::SeqCst);
        let is_hung =
            |hung: &mut Option<Hung>| hung.as_ref().is_some_and(|hung| hung.is(name, kind));
        drop(self.unhung.wait_while(hung, is_hung).unwrap());
    }

    fn wait_while_held(&self) {
        let held = self.is_held.lock().unwrap();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        drop(self.released.wait_while(held, |held| *held).unwrap());
    }
}

/// Opens files whose operations a test controls.
#[derive(Debug, Default)]
pub(super) struct FaultyFiles(Arc<Control>);

impl FaultyFiles {
    /// Makes the operations of a kind fail from the `after`th on.
    pub(super) fn arm(&self, kind: FileOperation, fault: FileFault, after: i64) {
        self.set(Some((kind, fault)), after, false);
    }

    /// Makes one operation of a kind fail.
    pub(super) fn arm_once(&self, kind: FileOperation, fault: FileFault, after: i64) {
        self.set(Some((kind, fault)), after, true);
    }

    /// Makes reads of a page fail from its first read under a lock of redb on.
    pub(super) fn arm_locked_read(&self) {
        *self.0.locked_read.lock().unwrap() = LockedRead::Armed;
    }

    /// Makes all operations succeed again. Returns how many have failed.
    pub(super) fn disarm(&self) -> u64 {
        self.set(None, 0, false);
        *self.0.locked_read.lock().unwrap() = LockedRead::Served;
        self.0.hits.swap(0, Ordering::SeqCst)
    }

    fn set(&self, fault: Option<(FileOperation, FileFault)>, after: i64, is_once: bool) {
        let mut armed = self.0.armed.lock().unwrap();
        self.0.countdown.store(after, Ordering::SeqCst);
        *armed = Armed { fault, is_once };
    }

    /// Makes each read of these bytes fail.
    pub(super) fn break_sectors(&self, bytes: Range<u64>) {
        self.0.bad_sectors.lock().unwrap().push(bytes);
    }

    /// Makes the broken sectors readable until the file has been opened again, and its log is read.
    pub(super) fn hide_bad_sectors_from_opening(&self) {
        let bad = std::mem::take(&mut *self.0.bad_sectors.lock().unwrap());
        *self.0.bad_once_open.lock().unwrap() = bad;
    }

    /// Makes all bytes readable again.
    pub(super) fn heal_sectors(&self) {
        self.0.bad_sectors.lock().unwrap().clear();
    }

    /// Returns how many reads of bad sectors were tried.
    pub(super) fn bad_sector_reads(&self) -> u64 {
        self.0.bad_sector_reads.load(Ordering::SeqCst)
    }

    /// Advances the disk's clock, which stands still otherwise.
    pub(super) fn advance(&self, time: Duration) {
        *self.0.advanced.lock().unwrap() += time;
    }

    /// Makes reads that have to wait distinguishable from others, in files that are opened from now on.
    pub(super) fn tell_waiting(&self) {
        self.0.tells_waiting.store(true, Ordering::SeqCst);
    }

    /// Makes every read or sync of this file hang.
    pub(super) fn hang(&self, name: &str, kind: FileOperation) {
        *self.0.hung.lock().unwrap() = Some(Hung {
            name: name.to_owned(),
            kind,
        });
    }

    /// Ends the hanging.
    pub(super) fn release(&self) {
        *self.0.hung.lock().unwrap() = None;
        self.0.unhung.notify_all();
    }

    /// Returns how many operations have had to wait while their file hung.
    pub(super) fn hanging(&self) -> u64 {
        self.0.hanging.load(Ordering::SeqCst)
    }

    /// Returns how often the file of a shard was opened.
    pub(super) fn openings(&self) -> u64 {
        self.0.openings.load(Ordering::SeqCst)
    }

    /// Makes every sync wait.
    pub(super) fn hold_syncs(&self) {
        self.0.waiting.store(0, Ordering::SeqCst);
        *self.0.is_held.lock().unwrap() = true;
    }

    /// Returns whether a sync waits.
    pub(super) fn is_sync_waiting(&self) -> bool {
        self.0.waiting.load(Ordering::SeqCst) > 0
    }

    /// Releases the waiting syncs.
    pub(super) fn release_syncs(&self) {
        *self.0.is_held.lock().unwrap() = false;
        self.0.released.notify_all();
    }

    /// Returns the number of syncs so far.
    pub(super) fn syncs(&self) -> u64 {
        *self.0.syncs.lock().unwrap()
    }

    /// Waits until there have been this many syncs.
    pub(super) fn wait_for_syncs(&self, count: u64) {
        let syncs = self.0.syncs.lock().unwrap();
        drop(self.0.synced.wait_while(syncs, |syncs| *syncs < count));
    }
}

impl Opener for FaultyFiles {
    fn open(&self, path: &Path) -> Result<Box<dyn StorageBackend>, DatabaseError> {
        if path.extension().is_some_and(|name| name == "redb") {
            self.0.openings.fetch_add(1, Ordering::SeqCst);
        } else if path.extension().is_some_and(|name| name == "log1") {
            let bad = std::mem::take(&mut *self.0.bad_once_open.lock().unwrap());
            self.0.bad_sectors.lock().unwrap().extend(bad);
        }
        let file = std::fs::File::options().read(true).write(true).open(path);
        Ok(Box::new(FaultyFile {
            name: path.file_name().unwrap().display().to_string(),
            inner: FileBackend::new(file.map_err(StorageError::Io)?)?,
            control: Arc::clone(&self.0),
        }))
    }

    fn open_at_once(&self, path: &Path) -> Option<Box<dyn ReadAtOnce>> {
        let tells = self.0.tells_waiting.load(Ordering::SeqCst);
        tells.then(|| {
            Box::new(CachedFile {
                name: path.file_name().unwrap().display().to_string(),
                file: std::fs::File::open(path).unwrap(),
                control: Arc::clone(&self.0),
            }) as Box<dyn ReadAtOnce>
        })
    }

    fn now(&self) -> Instant {
        *self.0.began.get_or_init(Instant::now) + *self.0.advanced.lock().unwrap()
    }
}

#[derive(Debug)]
struct CachedFile {
    name: String,
    file: std::fs::File,
    control: Arc<Control>,
}

impl ReadAtOnce for CachedFile {
    fn read_at_once(&self, offset: u64, out: &mut [u8]) -> bool {
        let hung = self.control.hung.lock().unwrap();
        let is_hung = hung
            .as_ref()
            .is_some_and(|hung| hung.is(&self.name, FileOperation::Read));
        !is_hung && self.file.read_exact_at(out, offset).is_ok()
    }
}

#[derive(Debug)]
struct FaultyFile {
    name: String,
    inner: FileBackend,
    control: Arc<Control>,
}

impl FaultyFile {
    /// Returns whether it is the file of a shard, whose sectors tests break.
    fn is_of_rows(&self) -> bool {
        Path::new(&self.name)
            .extension()
            .is_some_and(|name| name == "redb")
    }
}

impl StorageBackend for FaultyFile {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.control
            .wait_while_hung(&self.name, FileOperation::Read);
        self.control.check(FileOperation::Read)?;
        if self.is_of_rows() {
            self.control.check_sectors(&self.inner, offset, out)?;
        }
        self.control.check_locked(offset)?;
        self.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.control.check(FileOperation::Write)?;
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.control.wait_while_held();
        self.control
            .wait_while_hung(&self.name, FileOperation::Sync);
        self.control.check(FileOperation::Sync)?;
        self.inner.sync_data()?;
        *self.control.syncs.lock().unwrap() += 1;
        self.control.synced.notify_all();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.control.check(FileOperation::Write)?;
        self.inner.write(offset, data)?;
        // A disk stores a bad sector elsewhere when it is written.
        if self.is_of_rows() {
            let written = offset..offset + data.len() as u64;
            let mut bad = self.control.bad_sectors.lock().unwrap();
            bad.retain(|bad| bad.end <= written.start || written.end <= bad.start);
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }
}
