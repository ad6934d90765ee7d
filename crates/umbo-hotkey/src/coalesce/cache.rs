//! The local cache: answers of hot keys, for about three seconds, bounded by bytes.
//!
//! Every entry carries the stamp of its read and is served only while the stamp is current and the
//! entry is fresh, whatever the map holds: an entry that a write has overtaken is dead before it is
//! removed. Time is the caller's; the map bounds bytes and nothing else. Errors are never kept.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use moka::policy::EvictionPolicy;
use moka::sync::Cache;

use super::fill::{Fill, Payload, Polarity, Served, Source};
use super::generation::Stamp;
use super::key::{KeyRef, ReadKey};
use super::sync::{AtomicU64, Ordering};

/// Memory of an entry beyond key and value, about.
const ENTRY_OVERHEAD_BYTES: usize = 256;
/// Times to live are spread upwards, so that a hot key is read once in each, and no more often: that
/// of a negative result by a tenth, any other one by half a tenth. It ends half a tenth later, and in
/// between one reader refreshes it.
const JITTER_PARTS: u32 = 20;

/// Bounds of the local cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheSettings {
    /// Bytes of all entries together, keys included; 0 turns the cache off.
    pub bytes_max: u64,
    /// Bytes of the largest answer that is kept.
    pub entry_bytes_max: usize,
    /// Age from which one reader is told to refresh the answer, or up to 5 % more by chance; it is
    /// served for 5 % longer, and in no case beyond 110 %.
    pub ttl: Duration,
    /// How long a negative result is served, or up to 10 % longer by chance; it is not refreshed.
    pub negative_ttl: Duration,
    /// How long the one who was told to refresh has for it before another one is told.
    pub refresh_patience: Duration,
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            bytes_max: 64 << 20,
            entry_bytes_max: 256 << 10,
            ttl: Duration::from_secs(3),
            negative_ttl: Duration::from_secs(1),
            refresh_patience: Duration::from_millis(50),
        }
    }
}

/// Passes on the hash that a key has already.
#[derive(Debug, Default, Clone, Copy)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, bytes: &[u8]) {
        // Only keys are hashed here, and they write one number.
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }
}

#[derive(Debug)]
struct Entry<V> {
    fill: Fill<V>,
    stamp: Stamp,
    read_at: Instant,
    fresh_until: Instant,
    /// Microseconds after `read_at` from which the next reader is told to refresh.
    refresh_due_us: AtomicU64,
}

/// An answer of the local cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cached<V> {
    pub(crate) served: Served<V>,
    /// Whether this reader, and no other, is to refresh the answer.
    pub(crate) is_refresh_due: bool,
}

/// Answers of hot keys.
pub(crate) struct LocalCache<V> {
    entries: Cache<ReadKey, Arc<Entry<V>>, BuildHasherDefault<KeyHasher>>,
    settings: CacheSettings,
}

impl<V: Payload> LocalCache<V> {
    pub(crate) fn new(settings: CacheSettings) -> Self {
        let weigh = |key: &ReadKey, entry: &Arc<Entry<V>>| {
            let bytes = entry.fill.bytes + key.memory() + ENTRY_OVERHEAD_BYTES;
            u32::try_from(bytes).unwrap_or(u32::MAX)
        };
        let entries = Cache::builder()
            .max_capacity(settings.bytes_max)
            .weigher(weigh)
            // What is here is hot: the question is only which was read last.
            .eviction_policy(EvictionPolicy::lru())
            .build_with_hasher(BuildHasherDefault::default());
        Self { entries, settings }
    }

    /// Returns the answer for a key whose stamp is now `stamp`, no older than `age_max`.
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
        let mut served = Served::of(entry.fill.clone(), Source::Cache, entry.read_at);
        served.fresh_until = Some(entry.fresh_until);
        Some(Cached {
            served,
            is_refresh_due: self.is_refresh_due(&entry, age),
        })
    }

    /// Says to one of all callers that the entry is due.
    fn is_refresh_due(&self, entry: &Entry<V>, age: Duration) -> bool {
        let age_us = micros(age);
        let due_us = entry.refresh_due_us.load(Ordering::Relaxed);
        let next_us = age_us.saturating_add(micros(self.settings.refresh_patience));
        age_us >= due_us
            && entry
                .refresh_due_us
                .compare_exchange(due_us, next_us, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Says whether an answer of so many bytes may be kept.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        bytes <= self.settings.entry_bytes_max && self.settings.bytes_max > 0
    }

    /// Keeps an answer that was asked for at `read_at`. To be called where the stamp is current,
    /// under the lock of its stripe.
    pub(crate) fn insert(
        &self,
        key: ReadKey,
        fill: Fill<V>,
        stamp: Stamp,
        read_at: Instant,
        random: u64,
    ) {
        let (refresh_due, fresh_until) = self.lifetime(&fill, read_at, random);
        let entry = Entry {
            refresh_due_us: AtomicU64::new(micros(refresh_due)),
            fill,
            stamp,
            read_at,
            fresh_until,
        };
        self.entries.insert(key, Arc::new(entry));
        // Fills are rare: the bound is kept at once instead of soon.
        self.entries.run_pending_tasks();
    }

    /// Returns the age from which an answer is refreshed, and the instant from which it is not served.
    fn lifetime(&self, fill: &Fill<V>, read_at: Instant, random: u64) -> (Duration, Instant) {
        // The upper half of a random number, as a share of a whole.
        let part_of = |whole: Duration| {
            let nanos = (whole.as_nanos() * u128::from(random >> 32)) >> 32;
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
        };
        let (refresh_due, ttl) = match fill.polarity {
            Polarity::Present => {
                let spread = self.settings.ttl / JITTER_PARTS;
                let due = self.settings.ttl + part_of(spread);
                (due, due + spread)
            }
            Polarity::Absent => {
                let spread = self.settings.negative_ttl / JITTER_PARTS * 2;
                let ttl = self.settings.negative_ttl + part_of(spread);
                (Duration::MAX, ttl)
            }
        };
        let fresh_until = read_at + ttl;
        let ends_at = fill
            .expires_at
            .map_or(fresh_until, |at| fresh_until.min(at));
        (refresh_due, ends_at)
    }

    /// Lets an answer go.
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
