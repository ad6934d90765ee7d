//! The sixth verb, *shield*: what stands between a read and its shard.
//!
//! Owns the way of a read through the layer: counted, looked up where its key is hot, shared with
//! others that want the same, and else a read of the store like any other. Deliberately reads no
//! clock and takes no random numbers: both come with each call. Nothing on the path waits for a
//! lock that is held for longer than a few comparisons.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use umbo_types::{CallerId, Criticality, Key, NamespaceId, PartitionKey, RequestUnits};

use crate::callers::Callers;
use crate::coalesce::board::FlightSettings;
use crate::coalesce::cache::CacheSettings;
use crate::coalesce::fill::{Fill, Payload, Polarity, Served, ShareError};
use crate::coalesce::flight::Lead;
use crate::coalesce::generation::{Stamp, WriteGuard};
use crate::coalesce::reads::{Reading, SharedReads, Solo, Spawner, Terms};
use crate::decay::Decay;
use crate::detector::{Detector, HotRule};
use crate::hot_set::{HotEntry, HotFilter, HotKey, HotSet, Standing};
use crate::key::{KeyRef, KeySeed, ReadKey};
use crate::report::{HotKeyReport, Report};
use crate::workers::Workers;

/// Keys that may be pinned, and keys that may be blocked.
pub const LISTED_KEYS_MAX: usize = 256;

/// What a shield is made of.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Threads that serve requests; each has a sketch of its own.
    pub workers: usize,
    /// When a key is hot.
    pub rule: HotRule,
    /// Bounds of the local cache.
    pub cache: CacheSettings,
    /// Bounds of the flights.
    pub flights: FlightSettings,
    /// Counters by which reads learn of writes; 8 bytes each. More of them, fewer needless refills.
    pub generations: usize,
    /// A random number, new in each process.
    pub seed: KeySeed,
}

impl Settings {
    /// Returns the defaults for that many threads and this seed.
    pub fn new(workers: usize, seed: KeySeed) -> Self {
        Self {
            workers,
            rule: HotRule::default(),
            cache: CacheSettings::default(),
            flights: FlightSettings::default(),
            generations: 16_384,
            seed,
        }
    }
}

/// What a look at the hot set and the local cache has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look<V> {
    /// An operator wants the key refused.
    Blocked,
    /// The key is not hot.
    Cold,
    /// The key is hot, and no answer is kept that would do.
    Miss,
    /// The answer.
    Hit {
        /// The answer.
        served: Served<V>,
        /// Whether this reader, and no other, is to refresh it with [`Shield::refresh`].
        is_refresh_due: bool,
    },
}

/// What a write touches.
#[derive(Debug, Clone, Copy)]
pub enum Touched<'a> {
    /// One row.
    Row(NamespaceId, &'a Key),
    /// Any number of rows of a partition: a range, or an atomic group.
    Partition(NamespaceId, &'a PartitionKey),
}

/// Says that an operator has listed too many keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("at most {LISTED_KEYS_MAX} keys may be pinned and as many blocked, these are {0}")]
pub struct TooManyListed(pub usize);

/// Keys that an operator has listed.
#[derive(Debug, Default)]
struct Listed {
    pinned: Vec<Arc<HotKey>>,
    blocked: Vec<Arc<HotKey>>,
}

/// What is held while the hot set is changed; never on the path.
#[derive(Debug)]
struct Control {
    detector: Detector,
    listed: Listed,
}

/// Keeps a stampede on one key away from its shard. One a pod.
///
/// `V` is an answer, cheap to clone; `E` is why the store failed.
pub struct Shield<V, E> {
    seed: KeySeed,
    timeout: Duration,
    workers: Workers,
    filter: HotFilter,
    hot: ArcSwap<HotSet>,
    reads: Arc<SharedReads<V, E>>,
    control: Mutex<Control>,
}

impl<V, E> fmt::Debug for Shield<V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shield").finish_non_exhaustive()
    }
}

impl<V: Payload, E: Payload> Shield<V, E> {
    /// Makes a shield. `spawner` starts the tasks of leaders on the runtime.
    pub fn new(settings: Settings, spawner: Spawner, now: Instant) -> Self {
        let Settings {
            workers,
            rule,
            cache,
            flights,
            generations,
            seed,
        } = settings;
        Self {
            seed,
            timeout: flights.timeout,
            workers: Workers::new(workers, Decay::first()),
            filter: HotFilter::new(),
            hot: ArcSwap::from_pointee(HotSet::new(Vec::new())),
            reads: Arc::new(SharedReads::new(generations, flights, cache, spawner)),
            control: Mutex::new(Control {
                detector: Detector::new(rule, now),
                listed: Listed::default(),
            }),
        }
    }

    /// Returns what names keys here.
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
    pub fn count(&self, key: &KeyRef<'_>, units: RequestUnits) {
        self.workers.count(key.hash(), units.as_micros());
    }

    /// Says what holds of a key; none for one that is neither hot nor listed.
    #[inline]
    pub fn standing(&self, key: &KeyRef<'_>) -> Option<Standing> {
        if !self.filter.may_hold(key.hash()) {
            return None;
        }
        self.hot.load().find(key).map(|entry| entry.standing)
    }

    /// Says whether an operator wants a key refused, and notes who has asked for it if so.
    pub fn refuses(&self, key: &KeyRef<'_>, caller: &CallerId) -> bool {
        if !self.filter.may_hold(key.hash()) {
            return false;
        }
        let hot = self.hot.load();
        let entry = hot.find(key);
        let blocked = entry.filter(|entry| entry.standing == Standing::Blocked);
        blocked
            .inspect(|entry| entry.key.note_read(caller))
            .is_some()
    }

    /// Looks a read up: one probe of the hot set, and for a hot key one of the local cache.
    pub fn look(&self, key: &KeyRef<'_>, terms: &Terms, caller: &CallerId) -> Look<V> {
        if !self.filter.may_hold(key.hash()) {
            return Look::Cold;
        }
        let hot = self.hot.load();
        let Some(entry) = hot.find(key) else {
            return Look::Cold;
        };
        entry.key.note_read(caller);
        if entry.standing == Standing::Blocked {
            return Look::Blocked;
        }
        let Some(cached) = self.reads.look(key, terms) else {
            return Look::Miss;
        };
        entry.key.note_hit();
        self.workers.hit(cached.served.polarity == Polarity::Absent);
        Look::Hit {
            served: cached.served,
            is_refresh_due: cached.is_refresh_due,
        }
    }

    /// Reads with others: follows the read of the key that is under way, or leads one.
    ///
    /// `read` makes the read of the store; it is called at most once, and only to lead: at once, or
    /// after the first leader has failed. It bounds itself by [`Self::leader_timeout`], not by the
    /// request's own deadline, because others wait for it; it is not ended when the request is.
    /// Dropping the future gives up the waiting and nothing else.
    pub async fn share<F>(
        &self,
        key: &KeyRef<'_>,
        terms: &Terms,
        read: F,
    ) -> Result<Served<V>, ShareError<E>>
    where
        F: FnOnce(Lead) -> Reading<V, E>,
    {
        let is_hot = self.keeps(key);
        self.reads.share(key, is_hot, terms, read).await
    }

    /// Says whether a read of a key may find one of somebody else's, under way or just over: where it
    /// does not, it is on its own.
    pub fn has_company(&self, key: &KeyRef<'_>) -> bool {
        self.reads.has_company(key)
    }

    /// Says whether a read of a key that is not hot has to be made, where the store answers at once:
    /// there is nothing to wait for, and so no flight. What is read is to be landed.
    pub fn solo(&self, key: &KeyRef<'_>, terms: &Terms) -> Solo<V> {
        self.reads.solo(key, terms)
    }

    /// Keeps what a read that was over at once has brought, for a moment, for the next readers.
    /// `terms.now` is when the read began.
    pub fn land(&self, key: &KeyRef<'_>, stamp: Stamp, fill: &Fill<V>, terms: &Terms) {
        self.reads.land_solo(key, stamp, fill, terms);
    }

    /// Returns the highest criticality of all who wait for this leader's read at this moment. It may
    /// rise while the leader waits for its slot.
    pub fn criticality(&self, lead: &Lead) -> Criticality {
        self.reads.criticality(lead)
    }

    /// Reads in a task of its own to replace a kept answer, unless the key is being read already.
    pub fn refresh<F>(&self, key: &KeyRef<'_>, terms: &Terms, read: F)
    where
        F: FnOnce(Lead) -> Reading<V, E>,
    {
        self.reads.refresh(key, terms, read);
    }

    /// Looks up and, where that does not answer, shares. What a point get wants.
    pub async fn read<F>(
        &self,
        key: &KeyRef<'_>,
        terms: &Terms,
        caller: &CallerId,
        read: F,
    ) -> Result<Served<V>, ShareError<E>>
    where
        F: FnOnce(Lead) -> Reading<V, E>,
    {
        let is_hot = match self.look(key, terms, caller) {
            Look::Hit {
                served,
                is_refresh_due,
            } => {
                if is_refresh_due {
                    self.refresh(key, terms, read);
                }
                return Ok(served);
            }
            Look::Miss => true,
            // A block is the business of whoever admits.
            Look::Cold | Look::Blocked => false,
        };
        self.reads.share(key, is_hot, terms, read).await
    }

    /// Returns the state that a read which begins now depends on, for [`Self::keep`].
    pub fn stamp(&self, key: &KeyRef<'_>) -> Stamp {
        self.reads.stamp(key)
    }

    /// Keeps the answer of a read that was not shared, a multi-get's, where the key is hot and
    /// nothing was written since `stamp` was taken, before the read. Says whether it was kept.
    /// `terms.now` is when the read began.
    pub fn keep(&self, key: &KeyRef<'_>, stamp: Stamp, fill: &Fill<V>, terms: &Terms) -> bool {
        self.keeps(key) && self.reads.keep(key, stamp, fill, terms)
    }

    /// Begins a write of these rows: reads from now on do not join older ones, and no answer read
    /// before now is served again. The guard is to be dropped when the store has answered, before
    /// the writer is told; until then answers are read and not kept for later.
    pub fn begin_write<'a>(&self, touched: impl IntoIterator<Item = Touched<'a>>) -> WriteGuard {
        let mut write = self.reads.begin_write();
        for touched in touched {
            match touched {
                Touched::Row(namespace, key) => {
                    let key = self.seed.row(namespace, key);
                    write.row(&key);
                    if self.standing(&key).is_some() {
                        self.reads.forget(&key);
                    }
                }
                Touched::Partition(namespace, partition) => {
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
        let Some(change) = control.detector.run(&self.workers, now) else {
            return;
        };
        if change.is_half_life {
            let Listed { pinned, blocked } = &control.listed;
            for key in pinned.iter().chain(blocked) {
                key.with_callers(Callers::halve);
            }
        }
        self.publish(&control);
        drop(control);
        for cooled in change.cooled {
            if let Some(key) = cooled.key()
                && !self.keeps(&key.borrow())
            {
                self.reads.forget(&key.borrow());
            }
        }
        self.reads.sweep(now);
    }

    /// Replaces the lists of an operator, at once. A key on both lists is blocked.
    pub fn list(&self, pinned: Vec<ReadKey>, blocked: Vec<ReadKey>) -> Result<(), TooManyListed> {
        for list in [&pinned, &blocked] {
            if list.len() > LISTED_KEYS_MAX {
                return Err(TooManyListed(list.len()));
            }
        }
        let mut control = self.control();
        let keep = |keys: Vec<ReadKey>, old: &[Arc<HotKey>]| {
            let keys = keys.into_iter().map(|key| {
                let held = old.iter().find(|held| held.key() == Some(&key));
                held.cloned().unwrap_or_else(|| HotKey::of(key))
            });
            keys.collect()
        };
        control.listed = Listed {
            pinned: keep(pinned, &control.listed.pinned),
            blocked: keep(blocked, &control.listed.blocked),
        };
        self.publish(&control);
        Ok(())
    }

    /// Returns the state for operators.
    pub fn report(&self, now: Instant) -> Report {
        let control = self.control();
        let hot = self.hot.load();
        let entries = hot.entries().iter();
        let mut keys: Vec<HotKeyReport> = entries
            .filter_map(|entry| report_of(entry, &control.detector, now))
            .collect();
        keys.sort_by(|one, other| other.heat.rate_now.total_cmp(&one.heat.rate_now));
        let listed = keys.iter().map(|key| key.key.memory()).sum::<usize>();
        let (reads_rate, threshold_rate) = control.detector.rates();
        let detector_bytes = control.detector.memory();
        drop(control);
        let totals = self.workers.totals();
        let (cache_entries, cache_bytes) = self.reads.cache_size();
        Report {
            keys,
            reads_rate,
            threshold_rate,
            hits: totals.hits,
            negative_hits: totals.negative_hits,
            uncounted: totals.uncounted,
            board: self.reads.totals(),
            cache_entries,
            cache_bytes,
            afterglow_bytes: self.reads.glow_bytes(),
            landed_bytes: self.reads.landed_bytes(),
            flights: self.reads.flights(),
            detection_bytes: self.workers.memory() + detector_bytes + hot.memory() + listed,
        }
    }

    /// Says whether answers of the key are kept.
    fn keeps(&self, key: &KeyRef<'_>) -> bool {
        matches!(self.standing(key), Some(Standing::Hot | Standing::Pinned))
    }

    /// Publishes the hot set: blocked before pinned before hot, because the first entry counts.
    fn publish(&self, control: &Control) {
        let entry = |standing| {
            move |key: &Arc<HotKey>| HotEntry {
                standing,
                key: Arc::clone(key),
            }
        };
        let listed = &control.listed;
        let blocked = listed.blocked.iter().map(entry(Standing::Blocked));
        let pinned = listed.pinned.iter().map(entry(Standing::Pinned));
        let hot = control.detector.hot().iter().map(|tracked| &tracked.key);
        let entries = blocked.chain(pinned).chain(hot.map(entry(Standing::Hot)));
        let set = Arc::new(HotSet::new(entries.collect()));
        self.filter.admit(&set);
        self.hot.store(Arc::clone(&set));
        self.filter.restrict(&set);
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Describes an entry; none where nobody has told its key.
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
