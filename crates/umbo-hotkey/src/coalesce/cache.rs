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
/// Parts of which the time to live is spread by one either way.
const JITTER_PARTS: u32 = 10;

/// Bounds of the local cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheSettings {
    /// Bytes of all entries together, keys included; 0 turns the cache off.
    pub bytes_max: u64,
    /// Bytes of the largest answer that is kept.
    pub entry_bytes_max: usize,
    /// How long an answer is served at most, but for ±10 % by chance.
    pub ttl: Duration,
    /// Age from which one reader is told to refresh the answer.
    pub refresh_after: Duration,
    /// How long a negative result is served, but for ±10 % by chance.
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
            refresh_after: Duration::from_secs(2),
            negative_ttl: Duration::from_secs(1),
            refresh_patience: Duration::from_millis(250),
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
        if entry.fill.polarity == Polarity::Absent {
            return false;
        }
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
        let fresh_until = self.fresh_until(&fill, read_at, random);
        let entry = Entry {
            refresh_due_us: AtomicU64::new(micros(self.settings.refresh_after)),
            fill,
            stamp,
            read_at,
            fresh_until,
        };
        self.entries.insert(key, Arc::new(entry));
        // Fills are rare: the bound is kept at once instead of soon.
        self.entries.run_pending_tasks();
    }

    fn fresh_until(&self, fill: &Fill<V>, read_at: Instant, random: u64) -> Instant {
        let ttl = match fill.polarity {
            Polarity::Present => self.settings.ttl,
            Polarity::Absent => self.settings.negative_ttl,
        };
        let spread = ttl / JITTER_PARTS;
        // The upper half of a random number, as a share of twice the spread.
        let share = (random >> 32) as u32;
        let within = ((spread * 2).as_nanos() * u128::from(share)) >> 32;
        let within = Duration::from_nanos(u64::try_from(within).unwrap_or(0));
        let fresh_until = read_at + ttl.saturating_sub(spread) + within;
        fill.expires_at
            .map_or(fresh_until, |at| fresh_until.min(at))
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
