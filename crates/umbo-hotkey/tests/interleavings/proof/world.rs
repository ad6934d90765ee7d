//! A pod in small: shared reads over a store of two rows and the range that holds both.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::AtomicU64 as Plain;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex as PlainMutex, MutexGuard as PlainGuard};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use shuttle::future::JoinHandle;
use umbo_types::{NamespaceId, RequestUnits};

use super::fetched::{AnswerSource, Fetched, Served};
use super::in_flight::{FlightSettings, ReadContext};
use super::key::{KeyKind, KeyRef, KeySeed};
use super::local_cache::CacheSettings;
use super::shared_reads::{SharedReads, Task};
use super::sync::{AtomicU64, Ordering};

/// The keys of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    One,
    Other,
    /// Both rows: its version is the sum of theirs.
    Both,
}

/// What a read of the store brings back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) place: Place,
    pub(crate) version: u64,
    /// Writes of the place that had at least begun to begin when its leader began.
    pub(crate) writes_beginning: u64,
}

/// What an answer has to come up to, from the moment at which it is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Floor {
    /// Acknowledged.
    version: u64,
    writes_begun: u64,
}

/// Which request failed at the store.
pub(crate) type Fault = usize;

/// What many runs have come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) runs: u64,
    pub(crate) answered: u64,
    pub(crate) from_cache: u64,
    pub(crate) direct: u64,
    pub(crate) followers: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    pub(crate) orphans: u64,
    pub(crate) overtaken: u64,
    pub(crate) stale: u64,
    pub(crate) leaders: u64,
    pub(crate) store_reads: u64,
}

impl Tally {
    /// Adds what others have come to.
    pub(crate) fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.answered += other.answered;
        self.from_cache += other.from_cache;
        self.direct += other.direct;
        self.followers += other.followers;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.orphans += other.orphans;
        self.overtaken += other.overtaken;
        self.stale += other.stale;
        self.leaders += other.leaders;
        self.store_reads += other.store_reads;
    }
}

pub(crate) struct World {
    pub(crate) reads: Arc<SharedReads<Seen>>,
    /// Versions in the store; simulated, so that others run between.
    rows: [AtomicU64; 2],
    /// Versions whose writers have been told.
    acknowledged: [Plain; 2],
    writes_beginning: [Plain; 2],
    writes_begun: [Plain; 2],
    clock_ms: Plain,
    origin: Instant,
    store_reads: Plain,
    /// Reads of the store at this moment, and the most there were, by place.
    at_once: [(Plain, Plain); 3],
    /// Reads of the store that nobody could join.
    pub(crate) direct: Plain,
    /// Leaders that have failed in any way.
    pub(crate) failures: Plain,
    tasks: Arc<PlainMutex<Vec<JoinHandle<()>>>>,
    tally: PlainMutex<Tally>,
}

const SEED: KeySeed = KeySeed::new(11);
const NAMESPACE: NamespaceId = NamespaceId(1);
const PARTITION: &[u8] = b"p";

impl Place {
    pub(crate) const ALL: [Self; 3] = [Self::One, Self::Other, Self::Both];

    pub(crate) fn key(self) -> KeyRef<'static> {
        match self {
            Self::One => SEED.key(NAMESPACE, KeyKind::Row, PARTITION, b"one"),
            Self::Other => SEED.key(NAMESPACE, KeyKind::Row, PARTITION, b"other"),
            Self::Both => SEED.key(NAMESPACE, KeyKind::Range, PARTITION, b"all"),
        }
    }

    fn rows(self) -> &'static [usize] {
        match self {
            Self::One => &[0],
            Self::Other => &[1],
            Self::Both => &[0, 1],
        }
    }
}

impl World {
    pub(crate) fn new(aborts: Vec<usize>) -> Arc<Self> {
        let tasks: Arc<PlainMutex<Vec<JoinHandle<()>>>> = Arc::default();
        let spawned = Arc::clone(&tasks);
        let is_abort = |&at: &usize| at != usize::MAX;
        let aborted = aborts.iter().copied().filter(is_abort).count();
        let aborts = PlainMutex::new(aborts.into_iter());
        let start = move |task: Task| {
            let polls_left = held(&aborts).next().unwrap_or(usize::MAX);
            let task = shuttle::future::spawn(Contained {
                task: Some(task),
                polls_left,
            });
            held(&spawned).push(task);
        };
        let flights = FlightSettings {
            timeout: Duration::from_secs(2),
            stripes: 1,
            ..FlightSettings::default()
        };
        let cache = CacheSettings::default();
        Arc::new(Self {
            // Few generations, so that keys also meet in one.
            reads: Arc::new(SharedReads::new(
                4,
                flights,
                cache,
                Box::new(start),
                Box::new(|| 1 << 63),
            )),
            rows: [AtomicU64::new(0), AtomicU64::new(0)],
            acknowledged: Default::default(),
            writes_beginning: Default::default(),
            writes_begun: Default::default(),
            clock_ms: Plain::new(0),
            origin: Instant::now(),
            store_reads: Plain::new(0),
            at_once: Default::default(),
            direct: Plain::new(0),
            failures: Plain::new(aborted as u64),
            tasks,
            tally: PlainMutex::default(),
        })
    }

    /// Returns what this run has come to.
    pub(crate) fn tally(&self) -> PlainGuard<'_, Tally> {
        held(&self.tally)
    }

    pub(crate) fn now(&self) -> Instant {
        self.origin + Duration::from_millis(self.clock_ms.load(Relaxed))
    }

    pub(crate) fn pass(&self, millis: u64) {
        self.clock_ms.fetch_add(millis, Relaxed);
    }

    pub(crate) fn context(&self) -> ReadContext {
        ReadContext {
            now: self.now(),
            price: RequestUnits::ZERO,
            age_max: None,
        }
    }

    /// Returns what every read of a place from now on has to come up to.
    pub(crate) fn floor(&self, place: Place) -> Floor {
        Floor {
            version: sum(place, &self.acknowledged),
            writes_begun: sum(place, &self.writes_begun),
        }
    }

    /// Reads the store. It answers at once, or waits before and, at two, after it looks.
    pub(crate) async fn read(self: Arc<Self>, place: Place, pauses: usize) -> Fetched<Seen> {
        self.store_reads.fetch_add(1, Relaxed);
        let _reading = Reading::begin(&self, place);
        let writes_beginning = sum(place, &self.writes_beginning);
        if pauses > 0 {
            shuttle::future::yield_now().await;
        }
        let mut version = 0;
        for &row in place.rows() {
            version += self.rows[row].load(Ordering::SeqCst);
        }
        if pauses > 1 {
            shuttle::future::yield_now().await;
        }
        Fetched {
            value: Seen {
                place,
                version,
                writes_beginning,
            },
            bytes: 100,
            is_found: true,
            expires_at: None,
        }
    }

    /// Writes the rows of a place, acknowledged only where `is_acknowledged`. Every count and every
    /// row is a point at which others run.
    pub(crate) fn write(&self, place: Place, is_acknowledged: bool) {
        for &row in place.rows() {
            self.writes_beginning[row].fetch_add(1, Relaxed);
        }
        let mut write = self.reads.begin_write();
        match place {
            Place::Both => write.partition(place.key().partition_hash()),
            row => write.row(&row.key()),
        }
        for &row in place.rows() {
            self.writes_begun[row].fetch_add(1, Relaxed);
        }
        let mut versions = [0; 2];
        for &row in place.rows() {
            versions[row] = self.rows[row].fetch_add(1, Ordering::SeqCst) + 1;
        }
        drop(write);
        if is_acknowledged {
            for &row in place.rows() {
                self.acknowledged[row].fetch_max(versions[row], Relaxed);
            }
        }
    }

    /// Checks an answer, and counts it.
    pub(crate) fn check(
        &self,
        place: Place,
        floor: Floor,
        asked_at: Instant,
        served: &Served<Seen>,
    ) {
        assert_eq!(served.value.place, place, "a value of another key");
        let version = served.value.version;
        assert!(
            version >= floor.version,
            "{place:?}: read {version}, from {:?}, after {floor:?}",
            served.source
        );
        assert!(
            served.value.writes_beginning >= floor.writes_begun,
            "{place:?}: shared with a read from before a write began, from {:?}",
            served.source
        );
        let mut tally = self.tally();
        tally.answered += 1;
        let age = asked_at.saturating_duration_since(served.read_at);
        match served.source {
            AnswerSource::Cache => {
                tally.from_cache += 1;
                assert!(age <= Duration::from_millis(3_300), "{age:?}");
            }
            AnswerSource::Follower => tally.followers += 1,
            AnswerSource::Leader => {}
        }
    }

    /// Waits for the tasks of leaders, and checks that nothing stays behind.
    pub(crate) async fn finish(&self) -> Tally {
        loop {
            let task = held(&self.tasks).pop();
            let Some(task) = task else { break };
            task.await.expect("contained");
        }
        assert_eq!(self.reads.totals().1, 0, "a flight stays behind");
        assert_eq!(self.reads.held_bytes(), 0, "an answer stays behind");
        let (totals, _) = self.reads.totals();
        let store_reads = self.store_reads.load(Relaxed);
        assert!(
            store_reads <= totals.leaders + self.direct.load(Relaxed),
            "a leader has asked the store more than once"
        );
        assert!(
            totals.orphans == 0 || self.failures.load(Relaxed) > 0,
            "a follower was left without a failure"
        );
        for (_, most) in &self.at_once {
            let most = most.load(Relaxed);
            // Direct reads do not see each other.
            let others = totals.overtaken + self.direct.load(Relaxed);
            assert!(most <= 1 + others, "{most} leaders of one key");
        }
        let mut tally = self.tally();
        tally.orphans = totals.orphans;
        tally.overtaken = totals.overtaken;
        tally.stale = totals.stale;
        tally.direct = self.direct.load(Relaxed);
        tally.leaders = totals.leaders;
        tally.store_reads = store_reads - tally.direct;
        *tally
    }
}

/// Locks what no other task can hold: nothing is simulated between lock and unlock.
fn held<T>(mutex: &PlainMutex<T>) -> PlainGuard<'_, T> {
    mutex.try_lock().expect("held for a moment only")
}

fn sum(place: Place, rows: &[Plain; 2]) -> u64 {
    place
        .rows()
        .iter()
        .map(|&row| rows[row].load(Relaxed))
        .sum()
}

/// A read of the store, as long as it lasts.
struct Reading<'a>(&'a Plain);

impl<'a> Reading<'a> {
    fn begin(world: &'a World, place: Place) -> Self {
        let (now, most) = &world.at_once[place as usize];
        most.fetch_max(now.fetch_add(1, Relaxed) + 1, Relaxed);
        Self(now)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A task as a runtime runs it: a panic ends it alone, and it may be ended from outside.
struct Contained {
    task: Option<Task>,
    polls_left: usize,
}

impl Future for Contained {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.polls_left == 0 {
            self.task = None;
        }
        self.polls_left = self.polls_left.saturating_sub(1);
        let Some(task) = &mut self.task else {
            return Poll::Ready(());
        };
        let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context)));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => Poll::Ready(()),
            Err(payload) => {
                super::program::expect_purpose(payload);
                self.task = None;
                Poll::Ready(())
            }
        }
    }
}
