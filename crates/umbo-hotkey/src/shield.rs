//! The shield: keeps a stampede on one key away from its shard.
//!
//! Owns the steps of a read before the store: it is counted, looked up if its key is hot, and shared with simultaneous
//! reads of the same key. Deliberately reads no clock: time comes with each call. Nothing on the path waits for a lock
//! that is held for longer than a few comparisons.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use umbo_types::{Key, NamespaceId, PartitionKey, RequestUnits};

use crate::callers::Callers;
use crate::coalesce::fetched::{FlightError, Payload, Served};
use crate::coalesce::generation::WriteGuard;
use crate::coalesce::in_flight::{FlightSettings, ReadContext};
use crate::coalesce::local_cache::CacheSettings;
use crate::coalesce::shared_reads::{RandomSource, SharedReads, Spawner, StoreRead};
use crate::detector::{Detector, HotRule};
use crate::hot_set::{HotEntry, HotFilter, HotKey, HotSet, Standing};
use crate::key::{KeyRef, KeySeed, ReadKey};
use crate::read_counts::ReadCounts;
use crate::report::{HotKeyReport, Report};

/// Keys that may be pinned, and keys that may be blocked.
pub const LISTED_KEYS_MAX: usize = 256;
/// Ticks after which samples of callers count half.
const CALLERS_HALF_LIFE: u64 = 20;

/// Settings of a shield.
#[derive(Debug, Clone, Copy)]
pub struct ShieldSettings {
    /// Threads that serve requests; each has a separate sketch.
    pub threads: usize,
    /// When a key is hot.
    pub rule: HotRule,
    /// Bounds of the local cache.
    pub cache: CacheSettings,
    /// Bounds of the in-flight reads.
    pub flights: FlightSettings,
    /// Counters that tell reads of writes; 8 bytes each. More counters make fewer needless reads.
    pub generations: usize,
    /// A random number, new in each process.
    pub seed: KeySeed,
}

impl ShieldSettings {
    /// Returns the defaults for that many threads and this seed.
    pub fn new(threads: usize, seed: KeySeed) -> Self {
        Self {
            threads,
            rule: HotRule::default(),
            cache: CacheSettings::default(),
            flights: FlightSettings::default(),
            generations: 16_384,
            seed,
        }
    }
}

/// The result of a lookup in the hot set and the local cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup<V> {
    /// An operator has blocked the key.
    Blocked,
    /// The key is not hot.
    Cold,
    /// The key is hot, and the local cache has no result that fits.
    Miss,
    /// The local cache has the result.
    Hit {
        /// The result.
        served: Served<V>,
        /// Whether this reader, and no other, is to refresh it with [`Shield::refresh`].
        is_refresh_due: bool,
    },
}

/// The rows that a write touches.
#[derive(Debug, Clone, Copy)]
pub enum WriteScope<'a> {
    /// One row.
    Row(NamespaceId, &'a Key),
    /// Any number of rows of a partition: a range, or an atomic group.
    Partition(NamespaceId, &'a PartitionKey),
}

/// A list of an operator has too many keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("at most {LISTED_KEYS_MAX} keys may be pinned, and as many blocked; this list has {0}")]
pub struct TooManyListed(pub usize);

/// State that is locked while the hot set changes; never on the path.
#[derive(Debug)]
struct HotSetControl {
    detector: Detector,
    /// Keys that an operator has listed, blocked ones first.
    listed: Vec<HotEntry>,
    ticks: u64,
}

/// Keeps a stampede on one key away from its shard. One a dispatcher.
///
/// `V` is a result, cheap to clone.
pub struct Shield<V> {
    seed: KeySeed,
    timeout: Duration,
    counts: ReadCounts,
    filter: HotFilter,
    hot: ArcSwap<HotSet>,
    reads: Arc<SharedReads<V>>,
    control: Mutex<HotSetControl>,
}

impl<V> fmt::Debug for Shield<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shield").finish_non_exhaustive()
    }
}

impl<V: Payload> Shield<V> {
    /// Makes a shield. `spawner` starts the tasks of leaders on the runtime; `random` spreads times to
    /// live.
    pub fn new(
        settings: ShieldSettings,
        spawner: Spawner,
        random: RandomSource,
        now: Instant,
    ) -> Self {
        let ShieldSettings {
            threads,
            rule,
            cache,
            flights,
            generations,
            seed,
        } = settings;
        let reads = SharedReads::new(generations, flights, cache, spawner, random);
        Self {
            seed,
            timeout: flights.timeout,
            counts: ReadCounts::new(threads),
            filter: HotFilter::new(),
            hot: ArcSwap::default(),
            reads: Arc::new(reads),
            control: Mutex::new(HotSetControl {
                detector: Detector::new(rule, now),
                listed: Vec::new(),
                ticks: 0,
            }),
        }
    }

    /// Returns the seed of the keys of this shield.
    pub fn seed(&self) -> KeySeed {
        self.seed
    }

    /// Returns the time that a leader has for its read.
    pub fn leader_timeout(&self) -> Duration {
        self.timeout
    }

    /// Counts one read. To be called for every get, range and key of a multi-get, blocked ones
    /// included, and not for the rows of a scan.
    #[inline]
    pub fn count(&self, key: &KeyRef<'_>) {
        self.counts.count(key.hash());
    }

    /// Returns the standing of a key, or `None` if the key is neither hot nor listed.
    #[inline]
    pub fn standing(&self, key: &KeyRef<'_>) -> Option<Standing> {
        if !self.filter.may_hold(key.hash()) {
            return None;
        }
        self.hot.load().find(key).map(|entry| entry.standing)
    }

    /// Returns whether an operator has blocked a key; if so, records the caller.
    pub fn is_blocked(&self, key: &KeyRef<'_>, caller: &str) -> bool {
        if !self.filter.may_hold(key.hash()) {
            return false;
        }
        let hot = self.hot.load();
        let entry = hot.find(key);
        let blocked = entry.filter(|entry| entry.standing == Standing::Blocked);
        blocked
            .inspect(|entry| entry.key.record_read(caller, RequestUnits::ZERO))
            .is_some()
    }

    /// Looks a read up: one probe of the hot set, and for a hot key one of the local cache.
    #[inline]
    pub fn lookup(&self, key: &KeyRef<'_>, context: &ReadContext, caller: &str) -> Lookup<V> {
        if self.filter.may_hold(key.hash()) {
            self.lookup_hot(key, context, caller)
        } else {
            Lookup::Cold
        }
    }

    fn lookup_hot(&self, key: &KeyRef<'_>, context: &ReadContext, caller: &str) -> Lookup<V> {
        let hot = self.hot.load();
        let Some(entry) = hot.find(key) else {
            return Lookup::Cold;
        };
        entry.key.record_read(caller, context.price);
        if entry.standing == Standing::Blocked {
            return Lookup::Blocked;
        }
        let Some(cached) = self.reads.cached(key, context) else {
            return Lookup::Miss;
        };
        entry.key.record_hit();
        self.counts.hit(cached.served.is_found);
        Lookup::Hit {
            served: cached.served,
            is_refresh_due: cached.is_refresh_due,
        }
    }

    /// Reads with others: follows the in-flight read of the key, or leads one.
    ///
    /// `fetch` makes the read of the store; it is called at most once, and only to lead. The read bounds itself by
    /// [`Self::leader_timeout`], not by the request's own deadline, because others wait for it; it is not ended when
    /// the request is. The caller bounds its wait by its own deadline; dropping the future gives up the wait and
    /// nothing else. A follower whose leader has failed gets [`FlightError::LeaderFailed`], and is to read again, with
    /// others or alone.
    pub fn read<E: 'static>(
        &self,
        key: &KeyRef<'_>,
        context: &ReadContext,
        fetch: impl FnOnce() -> StoreRead<V, E>,
    ) -> impl Future<Output = Result<Served<V>, FlightError<E>>> {
        let is_hot = self.is_cached(key);
        self.reads.read(key, is_hot, context, fetch)
    }

    /// Returns whether a read of the key is in flight that others may join.
    pub fn is_in_flight(&self, key: &KeyRef<'_>) -> bool {
        self.reads.is_in_flight(key)
    }

    /// Reads in a separate task to replace a cached result, unless the key is being read already.
    pub fn refresh<E: 'static>(
        &self,
        key: &KeyRef<'_>,
        context: &ReadContext,
        fetch: impl FnOnce() -> StoreRead<V, E>,
    ) {
        self.reads.refresh(key, context, fetch);
    }

    /// Begins a write of these rows: reads from now on do not join older ones, and no result read
    /// before now is served again. The guard is to be dropped when the store has answered, before
    /// the writer is told; until then results are read and not cached for later.
    pub fn begin_write<'a>(&self, scopes: impl IntoIterator<Item = WriteScope<'a>>) -> WriteGuard {
        let mut write = self.reads.begin_write();
        for scope in scopes {
            match scope {
                WriteScope::Row(namespace, key) => {
                    let key = self.seed.row(namespace, key);
                    write.row(&key);
                    if self.standing(&key).is_some() {
                        self.reads.forget(&key);
                    }
                }
                WriteScope::Partition(namespace, partition) => {
                    let partition = partition.as_bytes();
                    write.partition(self.seed.partition(namespace, partition));
                }
            }
        }
        write
    }

    /// Brings detection and hot set up to date. To be called every 100 ms by one task.
    pub fn tick(&self, now: Instant) {
        let mut control = self.control();
        let hot = self.hot.load_full();
        let Some(cooled) = control.detector.run(&self.counts, &hot, now) else {
            return;
        };
        control.ticks += 1;
        if control.ticks.is_multiple_of(CALLERS_HALF_LIFE) {
            for entry in hot.entries() {
                entry.key.with_callers(Callers::halve);
            }
        }
        self.publish(&control);
        drop(control);
        for key in cooled.iter().filter_map(|cooled| cooled.key()) {
            if !self.is_cached(&key.borrow()) {
                self.reads.forget(&key.borrow());
            }
        }
    }

    /// Replaces the lists of an operator, at once. A key on both lists is blocked.
    pub fn list(&self, pinned: Vec<ReadKey>, blocked: Vec<ReadKey>) -> Result<(), TooManyListed> {
        for list in [&pinned, &blocked] {
            if list.len() > LISTED_KEYS_MAX {
                return Err(TooManyListed(list.len()));
            }
        }
        let mut control = self.control();
        let hot = self.hot.load_full();
        let entry = |standing| {
            let hot = &hot;
            move |key: ReadKey| {
                let held = hot.find(&key.borrow()).map(|entry| Arc::clone(&entry.key));
                let key = held.unwrap_or_else(|| HotKey::of(key));
                HotEntry { standing, key }
            }
        };
        let blocked = blocked.into_iter().map(entry(Standing::Blocked));
        let pinned = pinned.into_iter().map(entry(Standing::Pinned));
        control.listed = blocked.chain(pinned).collect();
        self.publish(&control);
        Ok(())
    }

    /// Returns the state for operators.
    pub fn report(&self, now: Instant) -> Report {
        let control = self.control();
        let hot = self.hot.load();
        let entries = hot.entries();
        let mut keys: Vec<HotKeyReport> = entries
            .filter_map(|entry| report_of(entry, &control.detector, now))
            .collect();
        keys.sort_by(|one, other| other.heat.rate_now.total_cmp(&one.heat.rate_now));
        let key_bytes = keys.iter().map(|key| key.key.memory()).sum::<usize>();
        let (reads_rate, threshold_rate) = control.detector.rates();
        let detector_bytes = control.detector.memory();
        drop(control);
        let totals = self.counts.totals();
        let (cache_entries, cache_bytes) = self.reads.cache_size();
        let (flight_totals, flights) = self.reads.totals();
        Report {
            keys,
            reads_rate,
            threshold_rate,
            reads: totals.reads,
            hits: totals.hits,
            negative_hits: totals.negative_hits,
            uncounted: totals.uncounted,
            flight_totals,
            flights,
            cache_entries,
            cache_bytes,
            held_bytes: self.reads.held_bytes(),
            detection_bytes: self.counts.memory() + detector_bytes + hot.memory() + key_bytes,
        }
    }

    /// Returns whether results of the key are cached.
    fn is_cached(&self, key: &KeyRef<'_>) -> bool {
        matches!(self.standing(key), Some(Standing::Hot | Standing::Pinned))
    }

    /// Publishes the hot set: blocked before pinned before hot, because the first entry of a key
    /// counts.
    fn publish(&self, control: &HotSetControl) {
        let hot = control.detector.hot().iter().map(|tracked| HotEntry {
            standing: Standing::Hot,
            key: Arc::clone(&tracked.key),
        });
        let set = Arc::new(HotSet::new(control.listed.iter().cloned().chain(hot)));
        self.filter.admit(&set);
        self.hot.store(Arc::clone(&set));
        self.filter.restrict(&set);
    }

    fn control(&self) -> MutexGuard<'_, HotSetControl> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Describes an entry, or returns `None` if no reader has supplied its key.
fn report_of(entry: &HotEntry, detector: &Detector, now: Instant) -> Option<HotKeyReport> {
    let key = entry.key.key()?.clone();
    let hash = entry.key.hash;
    let tracked = detector.hot().iter().find(|t| t.key.hash == hash);
    let (reads, hits) = entry.key.reads_and_hits();
    Some(HotKeyReport {
        key,
        standing: entry.standing,
        is_hot: tracked.is_some(),
        heat: tracked.map(|tracked| tracked.heat).unwrap_or_default(),
        hot_for: tracked.map_or(Duration::ZERO, |tracked| {
            now.saturating_duration_since(tracked.since)
        }),
        reads,
        hits,
        callers: entry.key.with_callers(|callers| callers.shares()),
    })
}
