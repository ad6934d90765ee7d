//! The state of the disk below a shard's file.
//!
//! Owns the ranges that could not be read lately, the pages that were written lately, the count of failed reads, and
//! the reads that wait for the disk. It outlives the openings of the file. The invariant: a range that is remembered as
//! unreadable is not read from the disk before it is written or its retry is due. A disk may take seconds to report a
//! bad sector, so other requests would wait behind each attempt.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::file_error::FileError;
use crate::opener::Opener;
use crate::reserve::Reserve;
use crate::written_pages::WrittenPages;

/// Most unreadable ranges remembered for a file, of about 100 bytes each. Ranges beyond that are read from
/// the disk each time.
const BAD_RANGES_MAX: usize = 256;
/// Least time from one failed read of a range to the next.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// The same as a multiple of the time that the read took: a bad range may use at most a twentieth of a
/// thread's time.
const RETRY_AFTER_READS: u32 = 20;

/// Most reads of a file that wait for its disk at once, each on a separate thread.
const WAITING_READS_MAX: usize = 16;
/// The same for all files of the process. The runtime has 512 blocking threads, and needs some for other
/// work.
const ALL_WAITING_READS_MAX: usize = 256;
/// A disk that keeps a read waiting for longer than this counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(1);

static ALL_WAITING_READS: Semaphore = Semaphore::const_new(ALL_WAITING_READS_MAX);

/// A range of the file that could not be read.
#[derive(Debug)]
struct BadRange {
    start: u64,
    end: u64,
    kind: io::ErrorKind,
    reason: String,
    retry_at: Instant,
}

/// The state of the disk below a file.
#[derive(Debug)]
pub(crate) struct Disk {
    opener: Arc<dyn Opener>,
    /// The bytes of a full disk that the file may use to make room.
    pub(crate) reserve: Reserve,
    /// Pages that the transaction under way may have written.
    pub(crate) written: WrittenPages,
    failed_reads: AtomicU64,
    bad: Mutex<Vec<BadRange>>,
    /// Length of `bad`, so that a healthy disk costs no lock.
    bad_count: AtomicUsize,
    /// Whether the system can tell reads that have to wait for the disk from others.
    tells_waiting: AtomicBool,
    waiting: Arc<Semaphore>,
    /// When each read that waits for the disk began, by number.
    waiting_since: Mutex<BTreeMap<u64, Instant>>,
    next_waiting: AtomicU64,
}

/// A read that waits for the disk. Counted until it is dropped.
#[derive(Debug)]
pub(crate) struct WaitingRead {
    disk: Arc<Disk>,
    number: u64,
    _turns: (OwnedSemaphorePermit, SemaphorePermit<'static>),
}

impl Drop for WaitingRead {
    fn drop(&mut self) {
        self.disk.lock_waiting().remove(&self.number);
    }
}

impl Disk {
    /// Makes a disk without any recorded failures.
    pub(crate) fn new(opener: Arc<dyn Opener>) -> Arc<Self> {
        let reserve = Reserve::none(Arc::clone(&opener));
        Self::with(opener, reserve)
    }

    /// Makes the disk of a shard that is served from a folder of this number of shards.
    pub(crate) fn of_shard(opener: Arc<dyn Opener>, file: &Path, shards: usize) -> Arc<Self> {
        let reserve = Reserve::beside(Arc::clone(&opener), file, shards);
        Self::with(opener, reserve)
    }

    /// Makes the same disk without any recorded failures.
    pub(crate) fn anew(&self) -> Arc<Self> {
        Self::with(Arc::clone(&self.opener), self.reserve.anew())
    }

    fn with(opener: Arc<dyn Opener>, reserve: Reserve) -> Arc<Self> {
        Arc::new(Self {
            opener,
            reserve,
            written: WrittenPages::default(),
            failed_reads: AtomicU64::new(0),
            bad: Mutex::default(),
            bad_count: AtomicUsize::new(0),
            tells_waiting: AtomicBool::new(false),
            waiting: Arc::new(Semaphore::new(WAITING_READS_MAX)),
            waiting_since: Mutex::default(),
            next_waiting: AtomicU64::new(0),
        })
    }

    /// Waits until there is a free place for a read that waits for the disk. Fails if the disk is stuck.
    pub(crate) async fn turn(self: &Arc<Self>) -> Result<WaitingRead, FileError> {
        let turns = async {
            let own = Arc::clone(&self.waiting).acquire_owned().await.ok()?;
            Some((own, ALL_WAITING_READS.acquire().await.ok()?))
        };
        if self.is_stuck() && self.waiting.available_permits() == 0 {
            return Err(FileError::Stuck);
        }
        let turns = tokio::time::timeout(STUCK_AFTER, turns).await;
        let turns = turns.ok().flatten().ok_or(FileError::Stuck)?;
        let number = self.next_waiting.fetch_add(1, Ordering::Relaxed);
        self.lock_waiting().insert(number, self.now());
        Ok(WaitingRead {
            disk: Arc::clone(self),
            number,
            _turns: turns,
        })
    }

    /// Runs work that may have to wait for the disk. If reads are known to wait, it runs on a separate
    /// blocking thread.
    pub(crate) async fn wait<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, FileError> {
        if !self.tells_waiting.load(Ordering::Relaxed) {
            return work();
        }
        // A caller that is cancelled at this point costs no thread.
        tokio::task::yield_now().await;
        let turn = self.turn().await?;
        let waiting = tokio::task::spawn_blocking(move || {
            let result = work();
            drop(turn);
            result
        });
        waiting.await.unwrap_or(Err(FileError::Stuck))
    }

    /// Records whether reads that have to wait can be told from others.
    pub(crate) fn note_tells_waiting(&self, tells: bool) {
        self.tells_waiting.store(tells, Ordering::Relaxed);
    }

    /// Returns whether a read has waited for the disk longer than [`STUCK_AFTER`].
    pub(crate) fn is_stuck(&self) -> bool {
        let first = self.lock_waiting().first_key_value().map(|(_, at)| *at);
        first.is_some_and(|at| self.now().saturating_duration_since(at) > STUCK_AFTER)
    }

    fn lock_waiting(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        let waiting = self.waiting_since.lock();
        waiting.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of failed reads since the process started, including reads of known bad ranges that
    /// were not tried.
    pub(crate) fn failed_reads(&self) -> u64 {
        self.failed_reads.load(Ordering::Relaxed)
    }

    /// Returns whether any range is remembered as unreadable.
    pub(crate) fn has_bad_ranges(&self) -> bool {
        self.bad_count.load(Ordering::Acquire) > 0
    }

    /// Returns the current time of the runner. The bounds on the disk are measured in this time.
    pub(crate) fn now(&self) -> Instant {
        self.opener.now()
    }

    /// Counts a failed read.
    pub(crate) fn count_failed_read(&self) {
        self.failed_reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns why a range cannot be read, if it is known to be bad. If a retry is due, returns `None` to this caller,
    /// which then retries.
    pub(crate) fn known_bad(&self, offset: u64, len: usize) -> Option<(io::ErrorKind, String)> {
        if !self.has_bad_ranges() {
            return None;
        }
        let end = offset + len as u64;
        let mut bad = self.lock();
        let range = bad.iter_mut().find(|range| range.overlaps(offset, end))?;
        let now = self.now();
        if range.retry_at <= now {
            range.retry_at = now + RETRY_AFTER;
            return None;
        }
        Some((range.kind, range.reason.clone()))
    }

    /// Remembers that a range could not be read. Returns whether it was not known before.
    pub(crate) fn note_bad(
        &self,
        offset: u64,
        len: usize,
        (kind, reason): (io::ErrorKind, &str),
        took: Duration,
    ) -> bool {
        let end = offset + len as u64;
        let retry_at = self.now() + RETRY_AFTER.max(took.saturating_mul(RETRY_AFTER_READS));
        let mut bad = self.lock();
        if let Some(range) = bad.iter_mut().find(|range| range.overlaps(offset, end)) {
            range.retry_at = retry_at;
            return false;
        }
        if bad.len() < BAD_RANGES_MAX {
            bad.push(BadRange {
                start: offset,
                end,
                kind,
                reason: reason.to_owned(),
                retry_at,
            });
            self.bad_count.store(bad.len(), Ordering::Release);
        }
        true
    }

    /// Forgets the bad ranges that overlap a successful read or write.
    pub(crate) fn note_good(&self, offset: u64, len: usize) {
        self.forget(|range| range.overlaps(offset, offset + len as u64));
    }

    /// Forgets the ranges beyond the end of the file.
    pub(crate) fn note_len(&self, len: u64) {
        self.forget(|range| range.end > len);
    }

    fn forget(&self, is_forgotten: impl Fn(&BadRange) -> bool) {
        if !self.has_bad_ranges() {
            return;
        }
        let mut bad = self.lock();
        bad.retain(|range| !is_forgotten(range));
        self.bad_count.store(bad.len(), Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<BadRange>> {
        self.bad.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BadRange {
    fn overlaps(&self, start: u64, end: u64) -> bool {
        self.start < end && start < self.end
    }
}

#[cfg(test)]
mod tests {
    use redb::{DatabaseError, StorageBackend};

    use super::*;

    #[derive(Debug)]
    struct Stopwatch(Mutex<Instant>);

    impl Opener for Stopwatch {
        fn open(&self, _: &Path) -> Result<Box<dyn StorageBackend>, DatabaseError> {
            unreachable!("no file is opened")
        }

        fn now(&self) -> Instant {
            *self.0.lock().unwrap()
        }
    }

    fn disk() -> (Arc<Disk>, Arc<Stopwatch>) {
        let watch = Arc::new(Stopwatch(Mutex::new(Instant::now())));
        let opener: Arc<dyn Opener> = Arc::<Stopwatch>::clone(&watch);
        (Disk::new(opener), watch)
    }

    const EIO: (io::ErrorKind, &str) = (io::ErrorKind::Other, "EIO");

    #[test]
    fn a_bad_range_is_retried_by_one_reader_when_its_time_has_come() {
        let (disk, watch) = disk();
        assert!(disk.known_bad(0, 4096).is_none());
        assert!(disk.note_bad(4096, 4096, EIO, Duration::from_secs(1)));
        assert!(disk.known_bad(0, 4096).is_none());
        assert_eq!(disk.known_bad(4096, 4096).unwrap().1, "EIO");
        *watch.0.lock().unwrap() += Duration::from_secs(19);
        assert!(disk.known_bad(4096, 4096).is_some());
        *watch.0.lock().unwrap() += Duration::from_secs(1);
        assert!(disk.known_bad(4096, 4096).is_none());
        assert!(disk.known_bad(4096, 4096).is_some());
        assert!(!disk.note_bad(4096, 4096, EIO, Duration::ZERO));
    }

    #[test]
    fn what_is_written_or_cut_off_is_forgotten() {
        let (disk, _) = disk();
        disk.note_bad(0, 100, EIO, Duration::ZERO);
        disk.note_bad(200, 100, EIO, Duration::ZERO);
        disk.note_good(100, 100);
        assert!(disk.known_bad(50, 1).is_some() && disk.known_bad(250, 1).is_some());
        disk.note_good(99, 1);
        assert!(disk.known_bad(50, 1).is_none());
        disk.note_len(299);
        assert!(!disk.has_bad_ranges());
    }

    #[test]
    fn the_memory_is_bounded() {
        let (disk, _) = disk();
        for number in 0..2 * BAD_RANGES_MAX as u64 {
            disk.note_bad(number * 10, 10, EIO, Duration::ZERO);
        }
        assert_eq!(disk.lock().len(), BAD_RANGES_MAX);
    }
}
