//! The local cache: results of hot keys, for about three seconds, bounded by bytes.
//!
//! Every entry carries the stamp of its read. It is served only while the stamp is current and the entry is fresh: an
//! entry that a write has overtaken is dead before it is removed from the map. Time is a parameter; the map bounds
//! bytes and nothing else. Errors are never cached.

use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moka::policy::EvictionPolicy;
use moka::sync::Cache;

use super::fetched::{AnswerSource, Fetched, Payload, Served};
use super::generation::Stamp;
use super::key::{KeyHasher, KeyRef, ReadKey};
use super::sync::{AtomicU64, Ordering};

/// Memory of an entry beyond key and value, about.
const ENTRY_OVERHEAD_BYTES: usize = 256;
/// Jitter lengthens the time to live, so that a hot key is read once in each and no more often. It adds up to a tenth
/// if nothing was found, else up to a twentieth. A found result ends a twentieth later, and in between one reader
/// refreshes it.
const JITTER_PARTS: u32 = 20;

/// Bounds of the local cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheSettings {
    /// Bytes of all entries together, keys included; 0 turns the cache off.
    pub bytes_max: u64,
    /// Bytes of the largest result that is cached.
    pub entry_bytes_max: usize,
    /// Age at which one reader refreshes the result; jitter adds up to 5 %. The result is served for 5 % longer, and in
    /// no case beyond 110 %.
    pub ttl: Duration,
    /// How long a result that found nothing is served; jitter adds up to 10 %. It is not refreshed.
    pub negative_ttl: Duration,
    /// How long a refresh may take before another reader is asked for one.
    pub refresh_timeout: Duration,
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            bytes_max: 64 << 20,
            entry_bytes_max: 256 << 10,
            ttl: Duration::from_secs(3),
            negative_ttl: Duration::from_secs(1),
            refresh_timeout: Duration::from_millis(50),
        }
    }
}

#[derive(Debug)]
struct CachedAnswer<V> {
    fetched: Fetched<V>,
    stamp: Stamp,
    read_at: Instant,
    fresh_until: Instant,
    /// Age in microseconds, counted from `read_at`, at which the next reader refreshes the result.
    refresh_due_us: AtomicU64,
}

/// A result of the local cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cached<V> {
    pub(crate) served: Served<V>,
    /// Whether this reader, and no other, is to refresh the result.
    pub(crate) is_refresh_due: bool,
}

/// Results of hot keys.
pub(crate) struct LocalCache<V> {
    entries: Cache<ReadKey, Arc<CachedAnswer<V>>, BuildHasherDefault<KeyHasher>>,
    settings: CacheSettings,
}

impl<V: Payload> LocalCache<V> {
    pub(crate) fn new(settings: CacheSettings) -> Self {
        let weigh = |key: &ReadKey, entry: &Arc<CachedAnswer<V>>| {
            let bytes = entry.fetched.bytes + key.memory() + ENTRY_OVERHEAD_BYTES;
            u32::try_from(bytes).unwrap_or(u32::MAX)
        };
        let entries = Cache::builder()
            .max_capacity(settings.bytes_max)
            .weigher(weigh)
            // All keys here are hot: only the time of the last read decides.
            .eviction_policy(EvictionPolicy::lru())
            .build_with_hasher(BuildHasherDefault::default());
        Self { entries, settings }
    }

    /// Returns the result of a key, no older than `age_max`. `stamp` is the current stamp of the key.
    pub(crate) fn get(
        &self,
        key: &KeyRef<'_>,
        stamp: Stamp,
        now: Instant,
        age_max: Option<Duration>,
    ) -> Option<Cached<V>> {
        let entry = self.entries.get(key)?;
        let age = now.saturating_duration_since(entry.read_at);
        let is_usable = entry.stamp == stamp
            && now < entry.fresh_until
            && age_max.is_none_or(|age_max| age <= age_max);
        if !is_usable {
            return None;
        }
        let mut served = Served::new(entry.fetched.clone(), AnswerSource::Cache, entry.read_at);
        served.fresh_until = Some(entry.fresh_until);
        Some(Cached {
            served,
            is_refresh_due: self.is_refresh_due(&entry, age),
        })
    }

    /// Returns true to one caller once the entry is due, and to another one after `refresh_timeout`.
    fn is_refresh_due(&self, entry: &CachedAnswer<V>, age: Duration) -> bool {
        let age_us = micros(age);
        let due_us = entry.refresh_due_us.load(Ordering::Relaxed);
        let next_us = age_us.saturating_add(micros(self.settings.refresh_timeout));
        age_us >= due_us
            && entry
                .refresh_due_us
                .compare_exchange(due_us, next_us, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Returns whether a result of so many bytes may be cached.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        bytes <= self.settings.entry_bytes_max && self.settings.bytes_max > 0
    }

    /// Caches a result whose read began at `read_at`. Call it while the stamp is current, under the lock of its stripe.
    pub(crate) fn insert(
        &self,
        key: ReadKey,
        fetched: Fetched<V>,
        stamp: Stamp,
        read_at: Instant,
        random: u64,
    ) {
        let (refresh_due, fresh_until) = self.lifetime(&fetched, read_at, random);
        let entry = CachedAnswer {
            refresh_due_us: AtomicU64::new(micros(refresh_due)),
            fetched,
            stamp,
            read_at,
            fresh_until,
        };
        self.entries.insert(key, Arc::new(entry));
        // Insertions are rare: the bound is kept at once instead of soon.
        self.entries.run_pending_tasks();
    }

    /// Returns the age at which a result is refreshed, and the instant at which it is no longer served.
    fn lifetime(&self, fetched: &Fetched<V>, read_at: Instant, random: u64) -> (Duration, Instant) {
        // The upper half of a random number, as a share of a whole.
        let part_of = |whole: Duration| {
            let nanos = (whole.as_nanos() * u128::from(random >> 32)) >> 32;
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
        };
        let (refresh_due, ttl) = if fetched.is_found {
            let spread = self.settings.ttl / JITTER_PARTS;
            let due = self.settings.ttl + part_of(spread);
            (due, due + spread)
        } else {
            let spread = self.settings.negative_ttl / JITTER_PARTS * 2;
            (Duration::MAX, self.settings.negative_ttl + part_of(spread))
        };
        let fresh_until = read_at + ttl;
        let ends_at = fetched
            .expires_at
            .map_or(fresh_until, |at| fresh_until.min(at));
        (refresh_due, ends_at)
    }

    /// Removes a result.
    pub(crate) fn remove(&self, key: &KeyRef<'_>) {
        self.entries.invalidate(key);
    }

    /// Returns the number of entries and their bytes.
    pub(crate) fn size(&self) -> (u64, u64) {
        self.entries.run_pending_tasks();
        (self.entries.entry_count(), self.entries.weighted_size())
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
