//! A concurrent map of bounded size that evicts only entries that may go.
//!
//! Keys are 128-bit hashes under a secret seed, so that no client can choose two names with the same key. Each stripe
//! is a lock over an `lru` cache. A full stripe looks from the cold end for an entry that may go, as its owner says. If
//! no entry may go, the map is full. The order matters only then: while a stripe has room, a look-up moves nothing,
//! because access to three more entries is a third of its cost.

use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::LruCache;

/// Stripes of a large map.
const STRIPES_MAX: usize = 64;
/// Entries of a stripe in a small map: with fewer, two keys of the same stripe would evict each other.
const STRIPE_ENTRIES_MIN: usize = 16;
/// A stripe keeps its entries in the order of their use once this part of its room is filled, in percent: callers use
/// their entries again before the rest is filled.
const ORDERED_FROM_PERCENT: usize = 75;
/// Entries that one insertion looks at before it gives up.
const LOOKS_MAX: usize = 64;

/// A bounded map from hashes to shared values.
#[derive(Debug)]
pub(crate) struct StripedLru<V> {
    stripes: Box<[Mutex<Stripe<V>>]>,
    /// Most entries of a stripe.
    stripe_capacity: usize,
}

type Stripe<V> = LruCache<LruKey, V, BuildHasherDefault<StripeHasher>>;

/// A key as two words: next to pointers it needs no padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LruKey {
    low: u64,
    high: u64,
}

impl From<u128> for LruKey {
    fn from(key: u128) -> Self {
        Self {
            low: key as u64,
            high: (key >> 64) as u64,
        }
    }
}

impl Hash for LruKey {
    /// Takes the lower half; the upper half has chosen the stripe.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.low);
    }
}

impl<V: Clone> StripedLru<V> {
    /// Makes an empty map of at most about `capacity` entries; memory is taken as it fills.
    pub(crate) fn new(capacity: usize) -> Self {
        let wanted = (capacity / STRIPE_ENTRIES_MIN).clamp(1, STRIPES_MAX);
        let stripes = 1 << wanted.ilog2();
        let stripe = || {
            Mutex::new(LruCache::unbounded_with_hasher(
                BuildHasherDefault::default(),
            ))
        };
        Self {
            stripes: (0..stripes).map(|_| stripe()).collect(),
            stripe_capacity: capacity.div_ceil(stripes).max(1),
        }
    }

    /// Returns a value.
    pub(crate) fn get(&self, key: u128) -> Option<V> {
        self.get_with(key, V::clone)
    }

    /// Returns the result of `pick` for a value. `pick` loads memory before it takes a reference: its loads then
    /// overlap, and taking a reference or a lock waits for all earlier loads.
    #[inline]
    pub(crate) fn get_with<R>(&self, key: u128, pick: impl FnOnce(&V) -> R) -> Option<R> {
        let mut stripe = self.stripe(key);
        let is_ordered = stripe.len() * 100 >= self.stripe_capacity * ORDERED_FROM_PERCENT;
        let held = if is_ordered {
            stripe.get(&key.into())
        } else {
            stripe.peek(&key.into())
        };
        held.map(pick)
    }

    /// Adds a value and returns it, or returns the value that another thread has added. `may_go` says which entries may
    /// be evicted to make room, and `gone` gets the evicted value. Returns `None` if no entry may go.
    pub(crate) fn insert(
        &self,
        key: u128,
        value: &V,
        may_go: impl Fn(&V) -> bool,
        gone: impl FnOnce(&V),
    ) -> Option<V> {
        let mut stripe = self.stripe(key);
        if let Some(held) = stripe.get(&key.into()) {
            return Some(held.clone());
        }
        let mut old = None;
        if stripe.len() >= self.stripe_capacity {
            let mut coldest = stripe.iter().rev().take(LOOKS_MAX);
            let cold = coldest.find(|(_, value)| may_go(value));
            let cold = cold.map(|(key, _)| *key)?;
            old = stripe.pop(&cold);
        }
        stripe.put(key.into(), value.clone());
        drop(stripe);
        if let Some(old) = &old {
            gone(old);
        }
        Some(value.clone())
    }

    /// Replaces the value of a key; does nothing if the key has no value.
    pub(crate) fn replace(&self, key: u128, value: V) {
        if let Some(held) = self.stripe(key).get_mut(&key.into()) {
            *held = value;
        }
    }

    /// Shows all values, stripe by stripe.
    pub(crate) fn for_each(&self, mut see: impl FnMut(&V)) {
        for stripe in &self.stripes {
            let held: Vec<V> = lock(stripe)
                .iter()
                .map(|(_, value)| value.clone())
                .collect();
            held.iter().for_each(&mut see);
        }
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.stripes.iter().map(|stripe| lock(stripe).len()).sum()
    }

    fn stripe(&self, key: u128) -> MutexGuard<'_, Stripe<V>> {
        let at = (key >> 64) as usize & (self.stripes.len() - 1);
        lock(&self.stripes[at])
    }
}

/// A panic while a stripe is locked leaves it whole: no code of its owner runs between its changes.
fn lock<V>(stripe: &Mutex<Stripe<V>>) -> MutexGuard<'_, Stripe<V>> {
    stripe.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keys are hashes already.
#[derive(Debug, Default)]
pub(crate) struct StripeHasher(u64);

/// Builds the hasher of maps whose keys are hashes.
pub(crate) type ByHash = BuildHasherDefault<StripeHasher>;

impl Hasher for StripeHasher {
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

    fn write_u128(&mut self, word: u128) {
        self.0 = word as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(map: &StripedLru<u32>, number: u128, may_go: bool) -> bool {
        let value = number as u32;
        map.insert(number, &value, |_| may_go, |_| {}).is_some()
    }

    #[test]
    fn what_may_not_go_stays_and_the_map_is_full() {
        let map = StripedLru::new(2);
        assert!(put(&map, 1, false) && put(&map, 2, false));
        assert!(!put(&map, 3, false));
        assert!(put(&map, 3, true));
        assert_eq!(map.len(), 2);
    }

    #[test]
    fn the_coldest_that_may_go_makes_room() {
        let map = StripedLru::new(3);
        assert!(put(&map, 1, true) && put(&map, 2, true) && put(&map, 3, true));
        assert_eq!(map.get(1), Some(1));
        let mut gone = None;
        let added = map.insert(4, &4, |value| *value != 2, |value| gone = Some(*value));
        assert_eq!(
            (added, gone),
            (Some(4), Some(3)),
            "2 is colder and may not go"
        );
    }

    #[test]
    fn what_is_used_while_the_map_fills_is_not_the_coldest() {
        let map = StripedLru::new(8);
        assert!((0..6).all(|number| put(&map, number, true)));
        // From three quarters on.
        assert_eq!(map.get(0), Some(0));
        assert!((6..13).all(|number| put(&map, number, true)));
        assert!(map.get(0).is_some() && map.get(1).is_none());
    }

    #[test]
    fn a_small_map_keeps_its_newest() {
        let map = StripedLru::new(64);
        let spread = |number: u128| number << 64 | number;
        for number in 0..300 {
            assert!(put(&map, spread(number), true));
        }
        assert_eq!(map.len(), 64);
        assert!((292..300).all(|number| map.get(spread(number)).is_some()));
    }

    #[test]
    fn the_second_of_two_insertions_gets_the_value_of_the_first() {
        let map = StripedLru::new(10);
        for number in [7, 8] {
            assert_eq!(map.insert(1, &number, |_| true, |_| {}), Some(7));
        }
    }
}
