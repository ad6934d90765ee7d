//! A concurrent map of bounded size that evicts only what may go.
//!
//! Keys are 128-bit keyed hashes of what they stand for: the seed is secret, so nobody can choose
//! two that meet. Sharded by key; each shard is a lock over a table, and makes room with
//! a clock hand (second chance) over what its owner says is evictable. Where nothing is, the map
//! says that it is full.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Shards of a large map.
const SHARDS_MAX: usize = 64;
/// Entries of a shard, where the map is small: with fewer, two keys that meet would evict each other.
const SHARD_ENTRIES_MIN: usize = 16;
/// Entries that one insertion looks at before it gives up.
const LOOKS_MAX: usize = 64;

/// What a bounded map holds: a handle of what is shared.
pub(crate) trait Kept: Clone {
    /// Whether the value was used since the hand was here last. With the value and not with the map,
    /// so that a look-up touches no other memory.
    fn was_used(&self) -> &AtomicBool;

    /// Says whether anybody but the map holds the value.
    fn is_held(&self) -> bool;
}

/// A bounded map from hashes to shared values.
#[derive(Debug)]
pub(crate) struct BoundedMap<V> {
    shards: Box<[Mutex<Shard<V>>]>,
    shard_capacity: usize,
}

/// A key as two words: beside pointers it needs no padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    low: u64,
    high: u64,
}

impl From<u128> for Key {
    fn from(key: u128) -> Self {
        Self {
            low: key as u64,
            high: (key >> 64) as u64,
        }
    }
}

impl Hash for Key {
    /// The upper half has chosen the shard.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.low);
    }
}

#[derive(Debug)]
struct Shard<V> {
    values: HashMap<Key, V, BuildHasherDefault<Identity>>,
    /// The keys, in the order in which the hand looks at them.
    keys: Vec<Key>,
    hand: usize,
}

impl<V: Kept> BoundedMap<V> {
    /// Makes an empty map of at most about `capacity` entries; memory is taken as it fills.
    pub(crate) fn new(capacity: usize) -> Self {
        let shard = || {
            Mutex::new(Shard {
                values: HashMap::default(),
                keys: Vec::new(),
                hand: 0,
            })
        };
        let wanted = (capacity / SHARD_ENTRIES_MIN).clamp(1, SHARDS_MAX);
        let shards = 1 << wanted.ilog2();
        Self {
            shards: (0..shards).map(|_| shard()).collect(),
            shard_capacity: capacity.div_ceil(shards).max(1),
        }
    }

    /// Returns a value.
    pub(crate) fn get(&self, key: u128) -> Option<V> {
        self.get_with(key, V::clone)
    }

    /// Returns what `pick` takes of a value. What it loads before it takes a reference comes from
    /// memory side by side; taking one, or a lock, waits for all that was loaded before.
    #[inline]
    pub(crate) fn get_with<R>(&self, key: u128, pick: impl FnOnce(&V) -> R) -> Option<R> {
        let shard = self.shard(key);
        let value = shard.values.get(&key.into())?;
        if !value.was_used().load(Relaxed) {
            value.was_used().store(true, Relaxed);
        }
        Some(pick(value))
    }

    /// Adds a value, or returns the one that another thread has added. `may_go` says what may be
    /// evicted to make room, and `gone` gets what was. None where nothing can go.
    pub(crate) fn insert(
        &self,
        key: u128,
        value: &V,
        may_go: impl Fn(&V) -> bool,
        gone: impl FnOnce(&V),
    ) -> Option<V> {
        let mut guard = self.shard(key);
        let (shard, key) = (&mut *guard, Key::from(key));
        if let Some(value) = shard.values.get(&key) {
            return Some(value.clone());
        }
        if shard.keys.len() < self.shard_capacity {
            shard.keys.push(key);
            shard.values.insert(key, value.clone());
        } else {
            let at = shard.evictable(may_go)?;
            let old = std::mem::replace(&mut shard.keys[at], key);
            let old = shard.values.remove(&old);
            shard.values.insert(key, value.clone());
            drop(guard);
            if let Some(old) = old {
                gone(&old);
            }
        }
        Some(value.clone())
    }

    /// Puts a value in the place of the one that a key has.
    pub(crate) fn replace(&self, key: u128, value: V) {
        let mut shard = self.shard(key);
        if let Some(held) = shard.values.get_mut(&key.into()) {
            *held = value;
        }
    }

    /// Shows all values, shard by shard.
    pub(crate) fn for_each(&self, mut see: impl FnMut(&V)) {
        for shard in &self.shards {
            let held: Vec<V> = lock(shard).values.values().cloned().collect();
            held.iter().for_each(&mut see);
        }
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).keys.len()).sum()
    }

    fn shard(&self, key: u128) -> MutexGuard<'_, Shard<V>> {
        // Their number is a power of two: no division.
        lock(&self.shards[(key >> 64) as usize & (self.shards.len() - 1)])
    }
}

impl<V: Kept> Shard<V> {
    /// Moves the hand to an entry that may go: not used since the hand was here last, held by nobody.
    fn evictable(&mut self, may_go: impl Fn(&V) -> bool) -> Option<usize> {
        for _ in 0..LOOKS_MAX.min(2 * self.keys.len()) {
            let at = self.hand;
            self.hand = (self.hand + 1) % self.keys.len();
            let Some(value) = self.values.get(&self.keys[at]) else {
                continue;
            };
            let was_used = value.was_used().swap(false, Relaxed);
            if !was_used && !value.is_held() && may_go(value) {
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

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Debug, Default)]
    struct Value {
        number: u32,
        was_used: AtomicBool,
    }

    impl Kept for Arc<Value> {
        fn was_used(&self) -> &AtomicBool {
            &self.was_used
        }

        fn is_held(&self) -> bool {
            Self::strong_count(self) > 1
        }
    }

    fn value(number: u32) -> Arc<Value> {
        Arc::new(Value {
            number,
            ..Value::default()
        })
    }

    fn put(map: &BoundedMap<Arc<Value>>, number: u128, may_go: bool) -> bool {
        let value = value(number as u32);
        map.insert(number, &value, |_| may_go, |_| {}).is_some()
    }

    #[test]
    fn what_may_not_go_stays_and_the_map_is_full() {
        let map = BoundedMap::new(2);
        assert!(put(&map, 1, false) && put(&map, 2, false));
        assert!(!put(&map, 3, false));
        assert!(put(&map, 3, true));
        assert_eq!(map.len(), 2);
    }

    #[test]
    fn what_was_used_or_is_held_goes_last() {
        let map = BoundedMap::new(2);
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
    fn a_small_map_keeps_its_newest() {
        let map = BoundedMap::new(64);
        let spread = |number: u128| number << 64 | number;
        for number in 0..300 {
            assert!(put(&map, spread(number), true));
        }
        assert_eq!(map.len(), 64);
        assert!((292..300).all(|number| map.get(spread(number)).is_some()));
    }

    #[test]
    fn whoever_inserts_second_gets_the_first() {
        let map = BoundedMap::new(10);
        for number in [7, 8] {
            let held = map.insert(1, &value(number), |_| true, |_| {});
            assert_eq!(held.map(|held| held.number), Some(7));
        }
    }
}
