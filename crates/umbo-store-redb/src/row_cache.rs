//! Rows of one shard that were read lately, in memory: to read a cached row visits no page of the file.
//!
//! The invariant: a cached row is the row of the shard's current snapshot. The committer removes the rows that a commit
//! has changed before it publishes the snapshot. A row does not enter the cache if the snapshot that it was read from
//! may have been replaced meanwhile. Rows with an expiry are not cached: the clock decides whether they are visible,
//! and the sweeper when they go.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use lru::LruCache;
use umbo_types::{Row, Value};
use xxhash_rust::xxh3::xxh3_64;

/// Locks of a cache. Few threads read at the same time.
const STRIPES: usize = 16;
/// A row may take this part of its stripe.
const ROW_PART: usize = 8;
/// Memory of a cached row in addition to its bytes: entry, allocations, counters of references.
const ROW_OVERHEAD: usize = 320;
/// One hit in this many moves its row to the front of its stripe, because a move costs more than the hit itself. Rows
/// that are read often are still moved often.
const HITS_PER_MOVE: u64 = 8;

/// The cache.
#[derive(Debug)]
pub(crate) struct RowCache {
    /// Odd while a snapshot is being replaced; grows by two each time.
    generation: AtomicU64,
    stripes: Box<[Mutex<CacheStripe>]>,
    /// Memory of a stripe, in bytes.
    stripe_bytes: usize,
}

#[derive(Debug)]
struct CacheStripe {
    /// By the hash of the key. Of two keys with the same hash the last one read is cached.
    rows: LruCache<u64, CachedRow>,
    bytes: usize,
    /// Number of looks that found their row, and of looks that did not.
    looks: CacheLooks,
}

/// Looks into a cache since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CacheLooks {
    /// Looks that found their row.
    pub(crate) hits: u64,
    /// Looks that did not find their row.
    pub(crate) misses: u64,
}

/// A row and its physical key, which are parts of one allocation.
#[derive(Debug)]
struct CachedRow {
    key: Bytes,
    row: Row,
}

impl CachedRow {
    fn new(key: &[u8], row: &Row) -> Self {
        let value = &row.value;
        let parts = [
            key,
            &value.bytes,
            &value.content_type,
            &value.content_encoding,
        ];
        let mut all = Bytes::from(parts.concat());
        let [key, bytes, content_type, content_encoding] =
            parts.map(|part| all.split_to(part.len()));
        Self {
            key,
            row: Row {
                value: Value {
                    bytes,
                    form: value.form,
                    content_type,
                    content_encoding,
                },
                ..*row
            },
        }
    }
}

/// The result of a look into the cache.
#[derive(Debug)]
pub(crate) enum Looked {
    /// The row.
    Hit(Row),
    /// The row is not cached.
    Miss(CacheTicket),
}

/// The permission to cache a row that is read after the look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheTicket {
    hash: u64,
    generation: u64,
}

/// Returns the hash of a physical key. Changed rows are removed by this hash.
pub(crate) fn hash_of(key: &[u8]) -> u64 {
    xxh3_64(key)
}

impl RowCache {
    /// Makes an empty cache that may take this many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        let stripe = || CacheStripe {
            rows: LruCache::unbounded(),
            bytes: 0,
            looks: CacheLooks::default(),
        };
        Self {
            generation: AtomicU64::new(0),
            stripes: (0..STRIPES).map(|_| Mutex::new(stripe())).collect(),
            stripe_bytes: bytes / STRIPES,
        }
    }

    /// Looks for a row. After a miss, the caller loads the snapshot and reads the row from it: the snapshot must not be
    /// loaded before this call.
    pub(crate) fn look(&self, key: &[u8]) -> Looked {
        let generation = self.generation.load(Ordering::Acquire);
        let hash = hash_of(key);
        let mut stripe = self.stripe(hash);
        let row = match stripe.rows.peek(&hash) {
            Some(cached) if cached.key == key => cached.row.clone(),
            _ => {
                stripe.looks.misses += 1;
                return Looked::Miss(CacheTicket { hash, generation });
            }
        };
        stripe.looks.hits += 1;
        if stripe.looks.hits.is_multiple_of(HITS_PER_MOVE) {
            stripe.rows.promote(&hash);
        }
        Looked::Hit(row)
    }

    /// Returns the looks so far.
    pub(crate) fn looks(&self) -> CacheLooks {
        let mut sum = CacheLooks::default();
        for stripe in &self.stripes {
            let stripe = stripe.lock().unwrap_or_else(PoisonError::into_inner);
            sum.hits += stripe.looks.hits;
            sum.misses += stripe.looks.misses;
        }
        sum
    }

    /// Caches a row, unless the snapshot that it was read from may have been replaced.
    pub(crate) fn keep(&self, ticket: CacheTicket, key: &[u8], row: &Row) {
        let bytes = bytes_of(key, row);
        if row.expires_at.is_some() || bytes > self.stripe_bytes / ROW_PART {
            return;
        }
        let cached = CachedRow::new(key, row);
        let mut stripe = self.stripe(ticket.hash);
        // Under the lock: the thread that replaces the snapshot takes it after it has changed the generation.
        let generation = self.generation.load(Ordering::Acquire);
        if generation != ticket.generation || !generation.is_multiple_of(2) {
            return;
        }
        stripe.remove(ticket.hash);
        stripe.rows.put(ticket.hash, cached);
        stripe.bytes += bytes;
        while stripe.bytes > self.stripe_bytes
            && let Some((_, evicted)) = stripe.rows.pop_lru()
        {
            stripe.bytes -= bytes_of(&evicted.key, &evicted.row);
        }
    }

    /// Replaces the snapshot. The new one differs in the rows with these hashes. One thread at a time.
    pub(crate) fn replace(&self, changed: &[u64], publish: impl FnOnce()) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        for &hash in changed {
            self.stripe(hash).remove(hash);
        }
        publish();
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Replaces the snapshot. The new one may differ in any row. One thread at a time.
    pub(crate) fn replace_all(&self, publish: impl FnOnce()) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        for stripe in &self.stripes {
            let mut stripe = stripe.lock().unwrap_or_else(PoisonError::into_inner);
            stripe.rows.clear();
            stripe.bytes = 0;
        }
        publish();
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    fn stripe(&self, hash: u64) -> MutexGuard<'_, CacheStripe> {
        let stripe = &self.stripes[hash as usize % STRIPES];
        stripe.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheStripe {
    fn remove(&mut self, hash: u64) {
        if let Some(removed) = self.rows.pop(&hash) {
            self.bytes -= bytes_of(&removed.key, &removed.row);
        }
    }
}

fn bytes_of(key: &[u8], row: &Row) -> usize {
    let value = &row.value;
    let parts = [&value.bytes, &value.content_type, &value.content_encoding];
    ROW_OVERHEAD + key.len() + parts.iter().map(|part| part.len()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use umbo_types::{Timestamp, Version};

    use super::*;

    fn row(text: &str) -> Row {
        Row {
            value: Value::new(Bytes::copy_from_slice(text.as_bytes()), "", "").unwrap(),
            version: Version(1),
            expires_at: None,
        }
    }

    fn miss(cache: &RowCache, key: &[u8]) -> CacheTicket {
        match cache.look(key) {
            Looked::Miss(ticket) => ticket,
            Looked::Hit(row) => panic!("{row:?}"),
        }
    }

    fn hit(cache: &RowCache, key: &[u8]) -> Row {
        match cache.look(key) {
            Looked::Hit(row) => row,
            Looked::Miss(_) => panic!("{key:?} is not cached"),
        }
    }

    fn keep(cache: &RowCache, key: &[u8], text: &str) {
        cache.keep(miss(cache, key), key, &row(text));
    }

    #[test]
    fn looks_are_counted() {
        let cache = RowCache::new(1 << 20);
        keep(&cache, b"a", "1");
        for _ in 0..20 {
            hit(&cache, b"a");
        }
        miss(&cache, b"b");
        let expected = CacheLooks {
            hits: 20,
            misses: 2,
        };
        assert_eq!(cache.looks(), expected);
    }

    #[test]
    fn a_row_that_was_read_is_cached_until_it_changes() {
        let cache = RowCache::new(1 << 20);
        keep(&cache, b"a", "1");
        keep(&cache, b"b", "2");
        assert_eq!(hit(&cache, b"a"), row("1"));
        cache.replace(&[hash_of(b"a")], || {
            miss(&cache, b"a");
            hit(&cache, b"b");
        });
        miss(&cache, b"a");
        hit(&cache, b"b");
        cache.replace_all(|| {
            miss(&cache, b"b");
        });
        miss(&cache, b"b");
    }

    #[test]
    fn a_row_of_a_snapshot_that_was_replaced_is_not_cached() {
        let cache = RowCache::new(1 << 20);
        let before = miss(&cache, b"a");
        cache.replace(&[], || {
            let amid = miss(&cache, b"a");
            cache.keep(amid, b"a", &row("amid"));
            cache.keep(before, b"a", &row("before"));
        });
        cache.keep(before, b"a", &row("before"));
        miss(&cache, b"a");
    }

    #[test]
    fn a_row_with_an_expiry_is_not_cached() {
        let cache = RowCache::new(1 << 20);
        let expiring = Row {
            expires_at: Some(Timestamp::from_millis(1)),
            ..row("1")
        };
        cache.keep(miss(&cache, b"a"), b"a", &expiring);
        miss(&cache, b"a");
    }

    #[test]
    fn the_memory_is_bounded() {
        let cache = RowCache::new(STRIPES * 8 * 400);
        for number in 0..10_000_u32 {
            keep(&cache, &number.to_be_bytes(), "some text");
        }
        let stripes = cache.stripes.iter().map(|stripe| stripe.lock().unwrap());
        for stripe in stripes {
            let bytes = stripe
                .rows
                .iter()
                .map(|(_, one)| bytes_of(&one.key, &one.row));
            assert_eq!(bytes.sum::<usize>(), stripe.bytes);
            assert!((2_800..=3_200).contains(&stripe.bytes), "{}", stripe.bytes);
        }
        // The one that was read last is there, and one that would take much of its stripe is not.
        hit(&cache, &9_999_u32.to_be_bytes());
        keep(&cache, b"large", &"x".repeat(200));
        miss(&cache, b"large");
    }

    #[test]
    fn readers_and_a_writer_agree() {
        use std::sync::atomic::AtomicBool;
        // A snapshot of one row, which only grows.
        let (cache, snapshot) = (RowCache::new(1 << 20), AtomicU64::new(0));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let version = match cache.look(b"a") {
                            Looked::Hit(row) => row.version.0,
                            Looked::Miss(ticket) => {
                                let version = snapshot.load(Ordering::Acquire);
                                let read = Row {
                                    version: Version(version),
                                    ..row("1")
                                };
                                cache.keep(ticket, b"a", &read);
                                version
                            }
                        };
                        assert!(version >= last, "{version} after {last}");
                        last = version;
                    }
                });
            }
            for version in 1..=20_000 {
                cache.replace(&[hash_of(b"a")], || {
                    snapshot.store(version, Ordering::Release);
                });
                // What was acknowledged is seen.
                if let Looked::Hit(row) = cache.look(b"a") {
                    assert_eq!(row.version.0, version);
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
