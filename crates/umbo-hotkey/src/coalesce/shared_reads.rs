//! The state that all reads of a dispatcher share: generations, in-flight reads and the local cache.
//!
//! Owns the end of a read: it is removed from the in-flight reads, its followers get the result, and the result of a
//! hot key is cached. The lock of its stripe is held for that, and its stamp is checked.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::fetched::{Fetched, Payload};
use super::generation::{Generations, WriteGuard};
use super::in_flight::{FlightRole, FlightSettings, FlightTotals, InFlightReads, ReadContext};
use super::key::KeyRef;
use super::local_cache::{CacheSettings, Cached, LocalCache};

/// A read of the store, made by a leader.
pub type StoreRead<V, E> = Pin<Box<dyn Future<Output = Result<Fetched<V>, E>> + Send>>;
/// Work that outlives the request it came from.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;
/// Starts a task on the runtime of the caller.
pub type Spawner = Box<dyn Fn(Task) + Send + Sync>;
/// Returns random numbers.
pub type RandomSource = Box<dyn Fn() -> u64 + Send + Sync>;

/// Reads of a dispatcher that share.
pub(crate) struct SharedReads<V> {
    pub(super) generations: Arc<Generations>,
    pub(super) in_flight: InFlightReads<V>,
    cache: LocalCache<V>,
    pub(super) spawner: Spawner,
    random: RandomSource,
}

impl<V> fmt::Debug for SharedReads<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReads").finish_non_exhaustive()
    }
}

impl<V: Payload> SharedReads<V> {
    pub(crate) fn new(
        generations: usize,
        flights: FlightSettings,
        cache: CacheSettings,
        spawner: Spawner,
        random: RandomSource,
    ) -> Self {
        Self {
            generations: Arc::new(Generations::new(generations)),
            in_flight: InFlightReads::new(flights),
            cache: LocalCache::new(cache),
            spawner,
            random,
        }
    }

    /// Returns the cached result of a hot key.
    pub(crate) fn cached(&self, key: &KeyRef<'_>, context: &ReadContext) -> Option<Cached<V>> {
        let stamp = self.generations.stamp(key);
        self.cache.get(key, stamp, context.now, context.age_max)
    }

    /// Returns whether a read of the key is in flight that others may join.
    pub(crate) fn is_in_flight(&self, key: &KeyRef<'_>) -> bool {
        self.in_flight.stripe(key.hash()).find(key).is_some()
    }

    /// Joins the in-flight read of a key, or enters one. Returns `None` if a limit is reached.
    pub(super) fn join_or_lead(
        &self,
        key: &KeyRef<'_>,
        is_hot: bool,
        context: &ReadContext,
    ) -> Option<FlightRole<V>> {
        let in_flight = &self.in_flight;
        let mut stripe = in_flight.stripe(key.hash());
        let stamp = self.generations.stamp(key);
        in_flight.join_or_lead(&mut stripe, key, stamp, is_hot, context)
    }

    /// Ends an in-flight read with its result: removes it, caches the result of a hot key if nothing was written
    /// meanwhile, and gives it to the followers.
    pub(super) fn complete(&self, hash: u64, id: u64, fetched: &Fetched<V>) {
        let mut stripe = self.in_flight.stripe(hash);
        let Some(read) = stripe.remove(id) else {
            return;
        };
        if read.stamp != self.generations.stamp(&read.key.borrow()) {
            stripe.totals.stale += u64::from(read.is_hot || read.followers_count() > 0);
        } else if read.is_hot && self.cache.fits(fetched.bytes) {
            self.cache.insert(
                read.key,
                fetched.clone(),
                read.stamp,
                read.started,
                (self.random)(),
            );
        }
        drop(stripe);
        self.in_flight.share(read.followers, fetched);
    }

    /// Begins a write; its rows are added to the guard.
    pub(crate) fn begin_write(&self) -> WriteGuard {
        self.generations.begin()
    }

    /// Removes the cached result of a key.
    pub(crate) fn forget(&self, key: &KeyRef<'_>) {
        self.cache.remove(key);
    }

    /// Returns the counts, and the number of reads in flight.
    pub(crate) fn totals(&self) -> (FlightTotals, usize) {
        self.in_flight.totals()
    }

    /// Returns the entries of the local cache and their bytes.
    pub(crate) fn cache_size(&self) -> (u64, u64) {
        self.cache.size()
    }

    /// Returns the bytes of results that followers have still to pick up.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.in_flight.held_bytes.load(Ordering::Relaxed)
    }
}
