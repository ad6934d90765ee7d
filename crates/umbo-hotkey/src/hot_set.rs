//! The hot set: which keys are hot, pinned or blocked, as an immutable snapshot.
//!
//! Published by swapping a pointer and read without a lock: one probe of a small table by the hash
//! that the read has anyway. The sketch knows hashes only; the full key of a hot hash is the first
//! that is read under it after publication, and from then on full keys are compared. Two keys of
//! one hash can therefore not be taken for each other; the second of them is just not hot.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use umbo_types::CallerId;

use crate::callers::Callers;
use crate::key::{KeyRef, ReadKey};

/// One read of so many is noted with its caller.
const CALLER_SAMPLE: u64 = 8;

/// What holds of a key in the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is read so much that its answers are kept.
    Hot,
    /// An operator wants its answers kept, however seldom it is read.
    Pinned,
    /// An operator wants it refused.
    Blocked,
}

/// A key of the set; the same object for as long as it stays in the set.
#[derive(Debug)]
pub(crate) struct HotKey {
    pub(crate) hash: u64,
    key: OnceLock<ReadKey>,
    reads: AtomicU64,
    hits: AtomicU64,
    callers: Mutex<Callers>,
}

impl HotKey {
    /// Makes the key of a hash; which key it is, the first reader tells.
    pub(crate) fn of_hash(hash: u64) -> Arc<Self> {
        Arc::new(Self {
            hash,
            key: OnceLock::new(),
            reads: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            callers: Mutex::default(),
        })
    }

    /// Makes a key that is known.
    pub(crate) fn of(key: ReadKey) -> Arc<Self> {
        let hot = Self::of_hash(key.borrow().hash());
        // New: nobody has told another one.
        drop(hot.key.set(key));
        hot
    }

    /// Returns the key, where a reader has told it.
    pub(crate) fn key(&self) -> Option<&ReadKey> {
        self.key.get()
    }

    fn is(&self, key: &KeyRef<'_>) -> bool {
        let known = self.key.get_or_init(|| key.to_owned());
        known.borrow() == *key
    }

    /// Notes a read of the key, and now and then whose it was.
    pub(crate) fn note_read(&self, caller: &CallerId) {
        let reads = self.reads.fetch_add(1, Ordering::Relaxed);
        if reads.is_multiple_of(CALLER_SAMPLE)
            && let Ok(mut callers) = self.callers.try_lock()
        {
            callers.note(caller);
        }
    }

    /// Notes that a read was answered from the local cache.
    pub(crate) fn note_hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns reads and hits since the key came into the set.
    pub(crate) fn reads_and_hits(&self) -> (u64, u64) {
        let hits = self.hits.load(Ordering::Relaxed);
        // Read last: no hit is counted before its read.
        (self.reads.load(Ordering::Relaxed).max(hits), hits)
    }

    /// Shows the callers.
    pub(crate) fn with_callers<T>(&self, show: impl FnOnce(&mut Callers) -> T) -> T {
        show(&mut self.callers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A key with its standing.
#[derive(Debug, Clone)]
pub(crate) struct HotEntry {
    pub(crate) standing: Standing,
    pub(crate) key: Arc<HotKey>,
}

/// An immutable set of keys, by hash. Open addressing, at most a quarter full.
#[derive(Debug)]
pub(crate) struct HotSet {
    /// Zero marks an empty place.
    hashes: Box<[u64]>,
    /// Where the entry of each place is.
    places: Box<[u32]>,
    entries: Box<[HotEntry]>,
}

impl HotSet {
    /// Makes a set. Of two entries for one known key the first counts.
    pub(crate) fn new(entries: Vec<HotEntry>) -> Self {
        let len = (entries.len() * 4).next_power_of_two().max(64);
        let (mut hashes, mut places) = (vec![0; len], vec![0; len]);
        for (at, entry) in (0..).zip(&entries) {
            let mut place = entry.key.hash as usize & (len - 1);
            while hashes[place] != 0 {
                place = (place + 1) & (len - 1);
            }
            hashes[place] = entry.key.hash;
            places[place] = at;
        }
        Self {
            hashes: hashes.into(),
            places: places.into(),
            entries: entries.into(),
        }
    }

    /// Returns the entry of a key.
    #[inline]
    pub(crate) fn find(&self, key: &KeyRef<'_>) -> Option<&HotEntry> {
        let mask = self.hashes.len() - 1;
        let mut place = key.hash() as usize & mask;
        loop {
            match self.hashes[place] {
                0 => return None,
                hash if hash == key.hash() => {
                    let entry = &self.entries[self.places[place] as usize];
                    if entry.key.is(key) {
                        return Some(entry);
                    }
                }
                _ => {}
            }
            place = (place + 1) & mask;
        }
    }

    /// Returns the memory of the table, in bytes.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.hashes) + size_of_val(&*self.places) + size_of_val(&*self.entries)
    }

    /// Returns all entries.
    pub(crate) fn entries(&self) -> &[HotEntry] {
        &self.entries
    }
}

/// Which hashes are worth a look at the set: one bit for each, in front of the pointer.
///
/// Reading the pointer of a set that may be swapped costs two locked instructions, and nearly every
/// read is of a key that is not in it. A bit too many costs that look, and nothing else.
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

    /// Says whether a hash may be in the set.
    #[inline]
    pub(crate) fn may_hold(&self, hash: u64) -> bool {
        let (word, bit) = Self::place(hash);
        self.words[word].load(Ordering::Relaxed) & bit != 0
    }

    /// Lets the hashes of a set through, beside those before. To be called before it is published.
    pub(crate) fn admit(&self, set: &HotSet) {
        for entry in set.entries() {
            let (word, bit) = Self::place(entry.key.hash);
            self.words[word].fetch_or(bit, Ordering::Release);
        }
    }

    /// Lets nothing through but the hashes of a set. To be called once it is published.
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
    use crate::key::{KeySeed, Kind};
    use proptest::prelude::*;
    use umbo_types::NamespaceId;

    fn key(name: &str) -> ReadKey {
        let seed = KeySeed::new(3);
        seed.key(NamespaceId(1), Kind::Row, name.as_bytes(), b"")
            .to_owned()
    }

    fn entry(standing: Standing, key: Arc<HotKey>) -> HotEntry {
        HotEntry { standing, key }
    }

    proptest! {
        #[test]
        fn a_set_finds_its_keys_and_no_others(
            held in prop::collection::btree_set(0_u32..500, 0..200),
            asked in 0_u32..500,
        ) {
            let hot = held.iter().map(|n| HotKey::of(key(&n.to_string())));
            let set = HotSet::new(hot.map(|key| entry(Standing::Hot, key)).collect());
            let asked_key = key(&asked.to_string());
            let found = set.find(&asked_key.borrow());
            prop_assert_eq!(found.is_some(), held.contains(&asked));
            if let Some(found) = found {
                prop_assert_eq!(found.key.key().unwrap(), &asked_key);
            }
        }
    }

    #[test]
    fn a_hash_becomes_the_first_key_read_under_it() {
        let first = key("first");
        let set = HotSet::new(vec![entry(
            Standing::Hot,
            HotKey::of_hash(first.borrow().hash()),
        )]);
        assert!(set.entries()[0].key.key().is_none());
        assert!(set.find(&key("other").borrow()).is_none());
        assert!(set.find(&first.borrow()).is_some());
        assert_eq!(set.entries()[0].key.key(), Some(&first));
    }

    #[test]
    fn a_filter_lets_every_hash_of_its_set_through() {
        let filter = HotFilter::new();
        let keys = |from: u32| -> Vec<ReadKey> {
            (from..from + 100).map(|n| key(&n.to_string())).collect()
        };
        let set = |keys: &[ReadKey]| {
            let hot = keys.iter().map(|key| HotKey::of(key.clone()));
            HotSet::new(hot.map(|key| entry(Standing::Hot, key)).collect())
        };
        let lets = |keys: &[ReadKey]| {
            let held = keys.iter().map(|key| filter.may_hold(key.borrow().hash()));
            held.filter(|&may| may).count()
        };
        let (old, new) = (keys(0), keys(1_000));
        assert_eq!(lets(&old), 0);
        filter.admit(&set(&old));
        filter.restrict(&set(&old));
        filter.admit(&set(&new));
        assert_eq!((lets(&old), lets(&new)), (100, 100));
        filter.restrict(&set(&new));
        assert_eq!(lets(&new), 100);
        assert!(lets(&old) < 15);
    }

    #[test]
    fn two_keys_of_one_hash_are_not_taken_for_each_other() {
        let (one, other) = (key("one"), key("other"));
        // A hash that collides cannot be made to order: the entry claims another key's.
        let collided = HotKey::of_hash(one.borrow().hash());
        collided.key.set(other).unwrap();
        let set = HotSet::new(vec![entry(Standing::Blocked, collided)]);
        assert!(set.find(&one.borrow()).is_none());
    }

    #[test]
    fn the_first_entry_of_a_key_counts() {
        let keys = [Standing::Blocked, Standing::Hot];
        let set = HotSet::new(
            keys.map(|standing| entry(standing, HotKey::of(key("a"))))
                .into(),
        );
        let found = set.find(&key("a").borrow()).unwrap();
        assert_eq!(found.standing, Standing::Blocked);
    }

    #[test]
    fn reads_and_hits_are_counted_and_callers_sampled() {
        let key = HotKey::of(key("a"));
        for read in 0..80 {
            key.note_read(&CallerId::new("crawler"));
            if read % 2 == 0 {
                key.note_hit();
            }
        }
        assert_eq!(key.reads_and_hits(), (80, 40));
        let shares = key.with_callers(|callers| callers.shares());
        assert_eq!(shares, [(CallerId::new("crawler"), 1.0)]);
    }
}
