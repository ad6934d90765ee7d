//! The hot set: which keys are hot, pinned or blocked, as an immutable snapshot.
//!
//! Published by swapping a pointer, and read without a lock, by the hash that the read has anyway. The sketch knows
//! hashes only. The full key of a hot hash is the first key that is read under it after publication, and from then on
//! full keys are compared. So two keys with one hash are never taken for each other; the second of them is just not
//! hot.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use umbo_types::RequestUnits;

use crate::callers::Callers;
use crate::key::{KeyHasher, KeyRef, ReadKey};

/// One in so many reads of a key has its caller sampled.
const CALLER_SAMPLE: u64 = 8;

/// Why a key is in the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The key is read so often that its results are cached.
    Hot,
    /// An operator has pinned the key: its results are cached, however seldom it is read.
    Pinned,
    /// An operator has blocked the key: its reads are refused.
    Blocked,
}

/// A key of the set; the same object while it stays in the set.
#[derive(Debug)]
pub(crate) struct HotKey {
    pub(crate) hash: u64,
    key: OnceLock<ReadKey>,
    reads: AtomicU64,
    hits: AtomicU64,
    /// Estimated cost of the reads since it was last taken, in micro-RU.
    units: AtomicU64,
    callers: Mutex<Callers>,
}

impl HotKey {
    /// Makes the key of a hash; its first reader supplies the bytes.
    pub(crate) fn of_hash(hash: u64) -> Arc<Self> {
        Arc::new(Self {
            hash,
            key: OnceLock::new(),
            reads: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            units: AtomicU64::new(0),
            callers: Mutex::default(),
        })
    }

    /// Makes a key whose bytes are known.
    pub(crate) fn of(key: ReadKey) -> Arc<Self> {
        let hot = Self::of_hash(key.borrow().hash());
        // The key is new: no reader has supplied other bytes.
        drop(hot.key.set(key));
        hot
    }

    /// Returns the key if a reader has supplied it.
    pub(crate) fn key(&self) -> Option<&ReadKey> {
        self.key.get()
    }

    fn is(&self, key: &KeyRef<'_>) -> bool {
        let known = self.key.get_or_init(|| key.to_owned());
        known.borrow() == *key
    }

    /// Counts a read of the key, and now and then samples its caller.
    pub(crate) fn record_read(&self, caller: &str, price: RequestUnits) {
        let reads = self.reads.fetch_add(1, Ordering::Relaxed);
        self.units.fetch_add(price.as_micros(), Ordering::Relaxed);
        if reads.is_multiple_of(CALLER_SAMPLE)
            && let Ok(mut callers) = self.callers.try_lock()
        {
            callers.record(caller);
        }
    }

    /// Counts a read that was answered from the local cache.
    pub(crate) fn record_hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns reads and hits since the key came into the set.
    pub(crate) fn reads_and_hits(&self) -> (u64, u64) {
        let hits = self.hits.load(Ordering::Relaxed);
        // Read last: no hit is counted before its read.
        (self.reads.load(Ordering::Relaxed).max(hits), hits)
    }

    /// Returns the estimated cost of the reads since the last call, in micro-RU.
    pub(crate) fn take_units(&self) -> u64 {
        self.units.swap(0, Ordering::Relaxed)
    }

    /// Calls `visit` with the callers.
    pub(crate) fn with_callers<T>(&self, visit: impl FnOnce(&mut Callers) -> T) -> T {
        visit(&mut self.callers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A key with its standing.
#[derive(Debug, Clone)]
pub(crate) struct HotEntry {
    pub(crate) standing: Standing,
    pub(crate) key: Arc<HotKey>,
}

/// An immutable set of keys, by hash.
#[derive(Debug, Default)]
pub(crate) struct HotSet {
    entries: HashMap<u64, HotEntry, BuildHasherDefault<KeyHasher>>,
}

impl HotSet {
    /// Makes a set. Of entries with one hash the first counts.
    pub(crate) fn new(entries: impl IntoIterator<Item = HotEntry>) -> Self {
        let mut set = Self::default();
        for entry in entries {
            set.entries.entry(entry.key.hash).or_insert(entry);
        }
        set
    }

    /// Returns the entry of a key.
    #[inline]
    pub(crate) fn find(&self, key: &KeyRef<'_>) -> Option<&HotEntry> {
        self.by_hash(key.hash()).filter(|entry| entry.key.is(key))
    }

    /// Returns the entry of a hash.
    #[inline]
    pub(crate) fn by_hash(&self, hash: u64) -> Option<&HotEntry> {
        self.entries.get(&hash)
    }

    /// Returns the memory of the table, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.entries.capacity() * (size_of::<(u64, HotEntry)>() + 1)
    }

    /// Returns all entries, in no order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &HotEntry> {
        self.entries.values()
    }
}

/// Which hashes may be in the set: one bit for each, in front of the pointer.
///
/// Reading the pointer of a set that may be swapped costs two locked instructions, and nearly every read is of a key
/// that is not in the set. A needless bit costs these instructions, and nothing else.
#[derive(Debug)]
pub(crate) struct HotFilter {
    words: Box<[AtomicU64]>,
}

impl HotFilter {
    /// Words of 64 bits: with 100 hot keys, one other key in forty is looked up for nothing.
    const WORDS: usize = 64;

    pub(crate) fn new() -> Self {
        Self {
            words: (0..Self::WORDS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn place(hash: u64) -> (usize, u64) {
        let bit = hash >> 52;
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    /// Returns whether a hash may be in the set.
    #[inline]
    pub(crate) fn may_hold(&self, hash: u64) -> bool {
        let (word, bit) = Self::place(hash);
        self.words[word].load(Ordering::Relaxed) & bit != 0
    }

    /// Adds the hashes of a set. Call it before the set is published.
    pub(crate) fn admit(&self, set: &HotSet) {
        for entry in set.entries() {
            let (word, bit) = Self::place(entry.key.hash);
            self.words[word].fetch_or(bit, Ordering::Release);
        }
    }

    /// Removes all hashes that are not in a set. Call it once the set is published.
    pub(crate) fn restrict(&self, set: &HotSet) {
        let mut words = [0; Self::WORDS];
        for entry in set.entries() {
            let (word, bit) = Self::place(entry.key.hash);
            words[word] |= bit;
        }
        for (word, bits) in self.words.iter().zip(words) {
            word.store(bits, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KeyKind, KeySeed};
    use umbo_types::NamespaceId;

    fn key(name: &str) -> ReadKey {
        let seed = KeySeed::new(3);
        seed.key(NamespaceId(1), KeyKind::Row, name.as_bytes(), b"")
            .to_owned()
    }

    fn entry(standing: Standing, key: Arc<HotKey>) -> HotEntry {
        HotEntry { standing, key }
    }

    fn set_of(keys: &[ReadKey]) -> HotSet {
        let keys = keys.iter().map(|key| HotKey::of(key.clone()));
        HotSet::new(keys.map(|key| entry(Standing::Hot, key)))
    }

    #[test]
    fn a_hash_becomes_the_first_key_read_under_it() {
        let first = key("first");
        let hot = HotKey::of_hash(first.borrow().hash());
        let set = HotSet::new([entry(Standing::Hot, Arc::clone(&hot))]);
        assert!(hot.key().is_none());
        assert!(set.find(&key("other").borrow()).is_none());
        assert!(set.find(&first.borrow()).is_some());
        assert_eq!(hot.key(), Some(&first));
    }

    #[test]
    fn a_filter_lets_every_hash_of_its_set_through() {
        let filter = HotFilter::new();
        let keys = |from: u32| -> Vec<ReadKey> {
            (from..from + 100).map(|n| key(&n.to_string())).collect()
        };
        let lets = |keys: &[ReadKey]| {
            let held = keys.iter().map(|key| filter.may_hold(key.borrow().hash()));
            held.filter(|&may| may).count()
        };
        let (old, new) = (keys(0), keys(1_000));
        assert_eq!(lets(&old), 0);
        filter.admit(&set_of(&old));
        filter.restrict(&set_of(&old));
        filter.admit(&set_of(&new));
        assert_eq!((lets(&old), lets(&new)), (100, 100));
        filter.restrict(&set_of(&new));
        assert_eq!(lets(&new), 100);
        assert!(lets(&old) < 15);
    }

    #[test]
    fn two_keys_of_one_hash_are_not_taken_for_each_other() {
        let (one, other) = (key("one"), key("other"));
        // A hash that collides cannot be made to order: the entry claims another key's.
        let collided = HotKey::of_hash(one.borrow().hash());
        collided.key.set(other).unwrap();
        let set = HotSet::new([entry(Standing::Blocked, collided)]);
        assert!(set.find(&one.borrow()).is_none());
    }

    #[test]
    fn the_first_entry_of_a_key_counts() {
        let keys = [Standing::Blocked, Standing::Hot];
        let set = HotSet::new(keys.map(|standing| entry(standing, HotKey::of(key("a")))));
        let found = set.find(&key("a").borrow()).unwrap();
        assert_eq!(found.standing, Standing::Blocked);
        assert_eq!(set.entries().count(), 1);
    }

    #[test]
    fn reads_hits_and_cost_are_counted_and_callers_sampled() {
        let key = HotKey::of(key("a"));
        for read in 0..80 {
            key.record_read("crawler", RequestUnits::from_micros(2));
            if read % 2 == 0 {
                key.record_hit();
            }
        }
        assert_eq!(key.reads_and_hits(), (80, 40));
        assert_eq!((key.take_units(), key.take_units()), (160, 0));
        let shares = key.with_callers(|callers| callers.shares());
        assert_eq!(shares, [(umbo_types::CallerId::new("crawler"), 1.0)]);
    }
}
