//! The reads in flight, by key.
//!
//! Divided into stripes by hash, each with a lock that is held for a few comparisons. A read is entered before it asks
//! the store and removed when it is over. The channel on which followers wait is made with the first of them, so that a
//! read without followers costs two short locks. Removing a read without a result closes its channel: that tells the
//! followers that the leader has failed. The invariants: a key has at most one read that others join; others no longer
//! join a read that a write or its deadline has overtaken; a read is removed when it has completed or failed, and not
//! before.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64 as Gauge;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tokio::sync::broadcast;
use umbo_types::RequestUnits;

use super::fetched::Fetched;
use super::generation::Stamp;
use super::key::{KeyRef, ReadKey};
use super::sync::{Mutex, MutexGuard};

/// Bounds of the in-flight reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlightSettings {
    /// Time that a leader has for its read. Readers do not join a read that should have ended.
    pub timeout: Duration,
    /// Most readers of one flight, its leader included.
    pub readers_max: usize,
    /// Most reads in flight, about.
    pub flights_max: usize,
    /// Bytes of results that followers have still to pick up; above it no reader becomes a follower.
    pub held_bytes_max: u64,
    /// Stripes of the table.
    pub stripes: usize,
}

impl Default for FlightSettings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(5),
            readers_max: 10_000,
            flights_max: 65_536,
            held_bytes_max: 256 << 20,
            stripes: 64,
        }
    }
}

/// Counts of single-flight since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlightTotals {
    /// Reads of the store that others could join, refreshes included.
    pub leaders: u64,
    /// Reads that joined one in flight.
    pub followers: u64,
    /// Followers whose leader failed; each of them was told to read again. The report and the metric call them
    /// elections, because earlier versions elected one of them to lead.
    pub orphans: u64,
    /// Reads refused because a limit was reached.
    pub crowded: u64,
    /// In-flight reads that readers stopped joining because of a write or their deadline.
    pub overtaken: u64,
    /// Results not cached because a write came in between.
    pub stale: u64,
}

impl FlightTotals {
    fn add(&mut self, other: &Self) {
        self.leaders += other.leaders;
        self.followers += other.followers;
        self.orphans += other.orphans;
        self.crowded += other.crowded;
        self.overtaken += other.overtaken;
        self.stale += other.stale;
    }
}

/// The facts about a request that a read needs, apart from its key.
#[derive(Debug, Clone, Copy)]
pub struct ReadContext {
    /// Now.
    pub now: Instant,
    /// Estimated cost of the read if it asks the store.
    pub price: RequestUnits,
    /// Age of the oldest result that the client takes (`Cache-Control: max-age`); `None` for any age.
    pub age_max: Option<Duration>,
}

/// A result for followers.
#[derive(Debug)]
pub(crate) struct HeldResult<V> {
    pub(crate) fetched: Fetched<V>,
    /// Counts the bytes of the result until the last follower has it.
    gauge: Arc<Gauge>,
}

impl<V> Drop for HeldResult<V> {
    fn drop(&mut self) {
        self.gauge.fetch_sub(self.fetched.bytes as u64, Relaxed);
    }
}

/// Sends the followers of a read its result.
type Followers<V> = broadcast::Sender<Arc<HeldResult<V>>>;

/// A read of the store that others may join.
#[derive(Debug)]
pub(crate) struct InFlightRead<V> {
    id: u64,
    pub(crate) key: ReadKey,
    /// State of the writes when it began.
    pub(crate) stamp: Stamp,
    pub(crate) started: Instant,
    /// Whether the key was hot when it began.
    pub(crate) is_hot: bool,
    /// Whether a newer read has taken its place.
    is_overtaken: bool,
    /// The channel of the followers; `None` before the first.
    pub(crate) followers: Option<Followers<V>>,
}

impl<V> InFlightRead<V> {
    /// Returns the number of followers that still wait.
    pub(crate) fn followers_count(&self) -> usize {
        let followers = self.followers.as_ref();
        followers.map_or(0, Followers::receiver_count)
    }
}

/// Reads in flight whose hashes have some bits in common.
#[derive(Debug)]
pub(crate) struct FlightStripe<V> {
    reads: Vec<InFlightRead<V>>,
    next_id: u64,
    pub(crate) totals: FlightTotals,
}

impl<V> FlightStripe<V> {
    /// Returns the in-flight read of a key that others may join.
    pub(crate) fn find(&mut self, key: &KeyRef<'_>) -> Option<&mut InFlightRead<V>> {
        let mut reads = self.reads.iter_mut();
        reads.find(|read| !read.is_overtaken && read.key.borrow() == *key)
    }

    /// Removes a read that is over. To be dropped without the lock: its followers are woken if they have no result.
    pub(crate) fn remove(&mut self, id: u64) -> Option<InFlightRead<V>> {
        let at = self.reads.iter().position(|read| read.id == id)?;
        Some(self.reads.swap_remove(at))
    }
}

/// The part of a reader in the in-flight read of its key.
pub(crate) enum FlightRole<V> {
    /// The reader leads the read of this id.
    Leader(u64),
    /// The reader waits here for the result of a read that began at this instant.
    Follower(broadcast::Receiver<Arc<HeldResult<V>>>, Instant),
}

/// All reads in flight of a dispatcher.
#[derive(Debug)]
pub(crate) struct InFlightReads<V> {
    stripes: Box<[Mutex<FlightStripe<V>>]>,
    settings: FlightSettings,
    /// Bytes of results that followers have still to pick up.
    pub(crate) held_bytes: Arc<Gauge>,
}

impl<V: Clone> InFlightReads<V> {
    pub(crate) fn new(settings: FlightSettings) -> Self {
        let stripe = |_| {
            Mutex::new(FlightStripe {
                reads: Vec::new(),
                next_id: 0,
                totals: FlightTotals::default(),
            })
        };
        let stripes = settings.stripes.next_power_of_two();
        Self {
            stripes: (0..stripes).map(stripe).collect(),
            settings,
            held_bytes: Arc::default(),
        }
    }

    /// Locks the stripe of a hash. A panic leaves the stripe whole, because nothing calls foreign code while it
    /// changes.
    pub(crate) fn stripe(&self, hash: u64) -> MutexGuard<'_, FlightStripe<V>> {
        let at = (hash >> 40) as usize & (self.stripes.len() - 1);
        let stripe = self.stripes[at].lock();
        stripe.unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the in-flight read of a key, or enters one. Returns `None` if a limit is reached.
    pub(crate) fn join_or_lead(
        &self,
        stripe: &mut FlightStripe<V>,
        key: &KeyRef<'_>,
        stamp: Stamp,
        is_hot: bool,
        context: &ReadContext,
    ) -> Option<FlightRole<V>> {
        if let Some(read) = stripe.find(key) {
            if self.is_joinable(read, stamp, context) {
                let role = self.follow(read);
                match &role {
                    Some(_) => stripe.totals.followers += 1,
                    None => stripe.totals.crowded += 1,
                }
                return role;
            }
            // Followers keep the overtaken read; all other requests have a newer one.
            read.is_overtaken = true;
            stripe.totals.overtaken += 1;
        }
        if stripe.reads.len() >= (self.settings.flights_max / self.stripes.len()).max(1) {
            stripe.totals.crowded += 1;
            return None;
        }
        let id = stripe.next_id;
        stripe.next_id += 1;
        stripe.reads.push(InFlightRead {
            id,
            key: key.to_owned(),
            stamp,
            started: context.now,
            is_hot,
            is_overtaken: false,
            followers: None,
        });
        stripe.totals.leaders += 1;
        Some(FlightRole::Leader(id))
    }

    fn is_joinable(&self, read: &InFlightRead<V>, stamp: Stamp, context: &ReadContext) -> bool {
        let age = context.now.saturating_duration_since(read.started);
        read.stamp == stamp
            && age < self.settings.timeout
            && context.age_max.is_none_or(|age_max| age <= age_max)
    }

    /// Adds a follower to a read. Returns `None` if the followers or the bytes that they hold are at their limit.
    fn follow(&self, read: &mut InFlightRead<V>) -> Option<FlightRole<V>> {
        if self.held_bytes.load(Relaxed) > self.settings.held_bytes_max
            || read.followers_count() + 1 >= self.settings.readers_max
        {
            return None;
        }
        // One result, sent once.
        let followers = read.followers.get_or_insert_with(|| Followers::new(1));
        Some(FlightRole::Follower(followers.subscribe(), read.started))
    }

    /// Gives the followers of a read its result. Its bytes count as held until all of them have it.
    pub(crate) fn share(&self, followers: Option<Followers<V>>, fetched: &Fetched<V>) {
        if let Some(followers) = followers {
            self.held_bytes.fetch_add(fetched.bytes as u64, Relaxed);
            // Without followers that still wait, the result comes back and is dropped.
            let _ = followers.send(Arc::new(HeldResult {
                fetched: fetched.clone(),
                gauge: Arc::clone(&self.held_bytes),
            }));
        }
    }

    /// Returns the counts, and the number of reads in flight.
    pub(crate) fn totals(&self) -> (FlightTotals, usize) {
        let (mut totals, mut flights) = (FlightTotals::default(), 0);
        for stripe in &self.stripes {
            let stripe = stripe.lock().unwrap_or_else(PoisonError::into_inner);
            totals.add(&stripe.totals);
            flights += stripe.reads.len();
        }
        (totals, flights)
    }
}
