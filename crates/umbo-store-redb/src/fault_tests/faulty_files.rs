//! Files that fail, panic, wait and tell, as a test says.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use redb::backends::FileBackend;
use redb::{Builder, Database, StorageBackend};

use crate::failure::Failure;
use crate::shard_file::Opener;

/// What happens instead of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Fail(io::ErrorKind),
    Panic,
}

/// Which operations a fault is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Sync,
    /// Writes, changes of length and syncs.
    Change,
}

#[derive(Debug, Default)]
struct Armed {
    fault: Option<(Kind, Fault)>,
    is_once: bool,
}

#[derive(Debug, Default)]
pub(super) struct Control {
    armed: Mutex<Armed>,
    /// Operations of the armed kind that still succeed.
    countdown: AtomicI64,
    hits: AtomicU64,
    syncs: Mutex<u64>,
    synced: Condvar,
    is_held: Mutex<bool>,
    released: Condvar,
    waiting: AtomicU64,
}

impl Control {
    fn check(&self, kind: Kind) -> io::Result<()> {
        let mut armed = self.armed.lock().unwrap();
        let Some((armed_kind, fault)) = armed.fault else {
            return Ok(());
        };
        let is_meant = armed_kind == kind || (armed_kind == Kind::Change && kind != Kind::Read);
        if !is_meant || self.countdown.fetch_sub(1, Ordering::SeqCst) > 0 {
            return Ok(());
        }
        self.hits.fetch_add(1, Ordering::SeqCst);
        if armed.is_once {
            armed.fault = None;
        }
        drop(armed);
        match fault {
            Fault::Fail(kind) => Err(kind.into()),
            Fault::Panic => panic!("a fault of the test"),
        }
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
    /// Lets the operations of a kind fail from the `after`th on.
    pub(super) fn arm(&self, kind: Kind, fault: Fault, after: i64) {
        self.set(Some((kind, fault)), after, false);
    }

    /// Lets one operation of a kind fail.
    pub(super) fn arm_once(&self, kind: Kind, fault: Fault, after: i64) {
        self.set(Some((kind, fault)), after, true);
    }

    /// Lets everything succeed again. Returns how many operations have failed.
    pub(super) fn disarm(&self) -> u64 {
        self.set(None, 0, false);
        self.0.hits.swap(0, Ordering::SeqCst)
    }

    fn set(&self, fault: Option<(Kind, Fault)>, after: i64, is_once: bool) {
        let mut armed = self.0.armed.lock().unwrap();
        self.0.countdown.store(after, Ordering::SeqCst);
        *armed = Armed { fault, is_once };
    }

    /// Lets every sync wait.
    pub(super) fn hold_syncs(&self) {
        self.0.waiting.store(0, Ordering::SeqCst);
        *self.0.is_held.lock().unwrap() = true;
    }

    /// Says whether a sync waits.
    pub(super) fn is_sync_waiting(&self) -> bool {
        self.0.waiting.load(Ordering::SeqCst) > 0
    }

    /// Lets the syncs go on.
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
    fn open(&self, builder: &Builder, path: &Path) -> Result<Database, Failure> {
        let file = std::fs::File::options().read(true).write(true).open(path)?;
        Ok(builder.create_with_backend(FaultyFile {
            inner: FileBackend::new(file)?,
            control: Arc::clone(&self.0),
        })?)
    }
}

#[derive(Debug)]
struct FaultyFile {
    inner: FileBackend,
    control: Arc<Control>,
}

impl StorageBackend for FaultyFile {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.control.check(Kind::Read)?;
        self.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.control.check(Kind::Write)?;
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.control.wait_while_held();
        self.control.check(Kind::Sync)?;
        self.inner.sync_data()?;
        *self.control.syncs.lock().unwrap() += 1;
        self.control.synced.notify_all();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.control.check(Kind::Write)?;
        self.inner.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }
}
