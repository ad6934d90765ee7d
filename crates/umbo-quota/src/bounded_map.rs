//! A concurrent map of bounded size that evicts only what may go.
//!
//! Keys are 128-bit keyed hashes of what they stand for: the seed is secret, so nobody can choose
//! two that meet. Sharded by key; each shard is a lock over an index and a slab, and makes room with
//! a clock hand (second chance) over what its owner says is evictable. Where nothing is, the map
//! says that it is full.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SHARDS: usize = 64;
/// Entries that one insertion looks at before it gives up.
const LOOKS_MAX: usize = 64;

/// A bounded map from hashes to shared values.
#[derive(Debug)]
pub(crate) struct BoundedMap<V> {
    shards: Box<[Mutex<Shard<V>>]>,
    shard_capacity: usize,
}

#[derive(Debug)]
struct Shard<V> {
    index: HashMap<u128, u32, BuildHasherDefault<Identity>>,
    slab: Vec<Entry<V>>,
    hand: usize,
}

#[derive(Debug)]
struct Entry<V> {
    key: u128,
    value: Arc<V>,
    was_used: bool,
}

impl<V> BoundedMap<V> {
    /// Makes an empty map of at most about `capacity` entries; memory is taken as it fills.
    pub(crate) fn new(capacity: usize) -> Self {
        let shard = || {
            Mutex::new(Shard {
                index: HashMap::default(),
                slab: Vec::new(),
                hand: 0,
            })
        };
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            shard_capacity: capacity.div_ceil(SHARDS).max(1),
        }
    }

    /// Returns a value.
    pub(crate) fn get(&self, key: u128) -> Option<Arc<V>> {
        let mut shard = self.shard(key);
        let at = *shard.index.get(&key)? as usize;
        let entry = &mut shard.slab[at];
        entry.was_used = true;
        Some(Arc::clone(&entry.value))
    }

    /// Adds a value, or returns the one that another thread has added. `may_go` says what may be
    /// evicted to make room, and `gone` gets what was. None where nothing can go.
    pub(crate) fn insert(
        &self,
        key: u128,
        value: &Arc<V>,
        may_go: impl Fn(&V) -> bool,
        gone: impl FnOnce(&V),
    ) -> Option<Arc<V>> {
        let mut guard = self.shard(key);
        let shard = &mut *guard;
        if let Some(&at) = shard.index.get(&key) {
            return Some(Arc::clone(&shard.slab[at as usize].value));
        }
        let entry = Entry {
            key,
            value: Arc::clone(value),
            was_used: false,
        };
        if shard.slab.len() < self.shard_capacity {
            shard.index.insert(key, shard.slab.len() as u32);
            shard.slab.push(entry);
        } else {
            let at = shard.evictable(may_go)?;
            let old = std::mem::replace(&mut shard.slab[at], entry);
            shard.index.remove(&old.key);
            shard.index.insert(key, at as u32);
            drop(guard);
            gone(&old.value);
        }
        Some(Arc::clone(value))
    }

    /// Puts a value in the place of the one that a key has.
    pub(crate) fn replace(&self, key: u128, value: &Arc<V>) {
        let mut shard = self.shard(key);
        if let Some(&at) = shard.index.get(&key) {
            shard.slab[at as usize].value = Arc::clone(value);
        }
    }

    /// Shows all values, shard by shard.
    pub(crate) fn for_each(&self, mut see: impl FnMut(&Arc<V>)) {
        for shard in &self.shards {
            let held: Vec<Arc<V>> = {
                let shard = lock(shard);
                shard
                    .slab
                    .iter()
                    .map(|entry| Arc::clone(&entry.value))
                    .collect()
            };
            held.iter().for_each(&mut see);
        }
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).slab.len()).sum()
    }

    fn shard(&self, key: u128) -> MutexGuard<'_, Shard<V>> {
        lock(&self.shards[(key >> 64) as usize % SHARDS])
    }
}

impl<V> Shard<V> {
    /// Moves the hand to an entry that may go: not used since the hand was here last, held by nobody.
    fn evictable(&mut self, may_go: impl Fn(&V) -> bool) -> Option<usize> {
        for _ in 0..LOOKS_MAX.min(2 * self.slab.len()) {
            let at = self.hand;
            self.hand = (self.hand + 1) % self.slab.len();
            let entry = &mut self.slab[at];
            let was_used = std::mem::take(&mut entry.was_used);
            if !was_used && Arc::strong_count(&entry.value) == 1 && may_go(&entry.value) {
                return Some(at);
            }
        }
        None
    }
}

/// A panic while a shard is locked leaves it whole: each change is one assignment.
fn lock<V>(shard: &Mutex<Shard<V>>) -> MutexGuard<'_, Shard<V>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keys are hashes already.
#[derive(Debug, Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u128(&mut self, key: u128) {
        self.0 = key as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Small keys are all of one shard.

    fn put(map: &BoundedMap<u32>, number: u128, may_go: bool) -> bool {
        let value = Arc::new(number as u32);
        map.insert(number, &value, |_| may_go, |_| {}).is_some()
    }

    #[test]
    fn what_may_not_go_stays_and_the_map_is_full() {
        let map = BoundedMap::new(2 * SHARDS);
        assert!(put(&map, 1, false) && put(&map, 2, false));
        assert!(!put(&map, 3, false));
        assert!(put(&map, 3, true));
        assert_eq!(map.len(), 2);
    }

    #[test]
    fn what_was_used_or_is_held_goes_last() {
        let map = BoundedMap::new(2 * SHARDS);
        assert!(put(&map, 1, true) && put(&map, 2, true));
        drop(map.get(1));
        assert!(put(&map, 3, true));
        assert!(map.get(1).is_some() && map.get(2).is_none());
        let held = (map.get(1), map.get(3));
        assert!(!put(&map, 4, true), "both are held");
        drop(held);
        assert!(put(&map, 4, true));
    }

    #[test]
    fn whoever_inserts_second_gets_the_first() {
        let map = BoundedMap::new(10);
        for number in [7, 8] {
            let value = map.insert(1, &Arc::new(number), |_| true, |_| {});
            assert_eq!(value.as_deref(), Some(&7));
        }
    }
}
