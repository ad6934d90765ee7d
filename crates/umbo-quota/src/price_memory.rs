//! Prices of earlier reads, by row, by partition and limit, and by size class. They estimate the next similar read.
//!
//! A table of words, each a part of its key's hash and a price. A new key replaces the word of an older one, so the
//! memory is bounded and keeps no order. Two keys are mistaken for each other once in 65,536 times. Hot path: relaxed
//! loads and stores, no lock and no allocation. A price that two threads learn at once may be lost.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use umbo_types::{NamespaceId, Operation};

use crate::cost::CostHint;

/// Prices that are kept: 8 bytes each, half a MiB a dispatcher; enough for the frequent keys of a skewed workload. A
/// power of two.
const PRICES: usize = 1 << 16;
/// Bits of a price in micro-RU; it is at most 281 million RU. The other bits of a word are of the key's hash.
const PRICE_BITS: u32 = 48;
/// The row or partition has changed if its price differs by more than this part of the last one.
const CHANGED_PART: u64 = 4;
/// Binary digits of a length or limit that its size class keeps: numbers of a class differ by at most an eighth.
const CLASS_DIGITS: u32 = 3;

/// Prices by the hashes of their keys.
#[derive(Debug)]
pub(crate) struct PriceMemory(Box<[AtomicU64]>);

/// The keys of the price of a request, from the narrowest; 0 stands for no key. They are a partition with limits, a row
/// or partition, and a caller with an operation and the size class of the request's bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PriceKeys([u64; 3]);

impl PriceKeys {
    /// Returns the keys of a request. `caller` is the hash of the caller's name. A write has no keys: its length gives
    /// its price.
    #[inline]
    pub(crate) fn of(
        caller: u64,
        namespace: NamespaceId,
        operation: Operation,
        hint: &CostHint,
    ) -> Self {
        if operation.is_write() {
            return Self::default();
        }
        let space = space(namespace, operation);
        let place = if hint.place == 0 {
            0
        } else {
            mixed(hint.place, space)
        };
        if operation == Operation::Get {
            return Self([0, place, 0]);
        }
        let [rows, bytes, len] = [hint.rows_max, hint.bytes_max, hint.body_len].map(class_of);
        let limits = mixed(rows, bytes << 16 | len);
        let bounded = if place == 0 { 0 } else { mixed(place, limits) };
        Self([bounded, place, mixed(mixed(caller, limits), space)])
    }
}

impl Default for PriceMemory {
    fn default() -> Self {
        let words = std::iter::repeat_with(AtomicU64::default);
        Self(words.take(PRICES).collect())
    }
}

impl PriceMemory {
    /// Returns the price of an earlier similar request in micro-RU, by the narrowest key that is remembered. The flag
    /// says whether it had the same bounds in the same partition.
    #[inline]
    pub(crate) fn recall(&self, keys: &PriceKeys) -> Option<(u64, bool)> {
        let mut keys = keys.0.iter().enumerate();
        keys.find_map(|(at, &key)| Some((self.price_of(key)?, at == 0)))
    }

    /// Remembers the price of a request, in micro-RU. A changed price replaces the last one. Small differences come
    /// from the store's time and are averaged.
    #[inline]
    pub(crate) fn learn(&self, keys: &PriceKeys, price: u64) {
        for &key in keys.0.iter().filter(|&&key| key != 0) {
            let near = |known: &u64| known.abs_diff(price) <= known / CHANGED_PART;
            let known = self.price_of(key).filter(near);
            self.store(key, known.map_or(price, |known| known.midpoint(price)));
        }
    }

    /// Remembers the price of the next get of a row that was written, in micro-RU. It replaces no price of another key,
    /// so that many writes leave the prices of reads.
    pub(crate) fn learn_of_write(&self, namespace: NamespaceId, place: u64, price: u64) {
        let key = mixed(place, space(namespace, Operation::Get));
        if self.word(key).load(Relaxed) == 0 || self.price_of(key).is_some() {
            self.store(key, price);
        }
    }

    #[inline]
    fn word(&self, key: u64) -> &AtomicU64 {
        &self.0[key as usize & (PRICES - 1)]
    }

    #[inline]
    fn price_of(&self, key: u64) -> Option<u64> {
        let word = self.word(key).load(Relaxed);
        let price = word & ((1 << PRICE_BITS) - 1);
        (key != 0 && word >> PRICE_BITS == key >> PRICE_BITS && price > 0).then_some(price)
    }

    #[inline]
    fn store(&self, key: u64, price: u64) {
        let price = price.min((1 << PRICE_BITS) - 1);
        let word = key >> PRICE_BITS << PRICE_BITS | price;
        self.word(key).store(word, Relaxed);
    }
}

/// Returns a number for an operation in a namespace.
const fn space(namespace: NamespaceId, operation: Operation) -> u64 {
    (namespace.0 as u64) << 8 | operation as u64
}

/// Returns the size class of a number: small numbers are each a class, and `None` is 0.
fn class_of(number: Option<u64>) -> u64 {
    let number = number.unwrap_or(0);
    match number.checked_ilog2() {
        Some(octave) if octave > CLASS_DIGITS => {
            (u64::from(octave) << CLASS_DIGITS) + (number >> (octave - CLASS_DIGITS))
        }
        _ => number,
    }
}

/// Mixes two hashes to one (the finalizer of `SplitMix64`, Steele et al. 2014); never 0.
#[inline]
fn mixed(one: u64, other: u64) -> u64 {
    let mut hash = one ^ other.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (hash ^ (hash >> 31)) | 1 << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(place: u64) -> PriceKeys {
        PriceKeys([0, mixed(place, 1), 0])
    }

    #[test]
    fn a_row_is_told_at_what_it_cost_last_and_small_differences_are_evened_out() {
        let memory = PriceMemory::default();
        assert_eq!(memory.recall(&row(7)), None);
        memory.learn(&row(7), 1_000);
        assert_eq!(memory.recall(&row(7)), Some((1_000, false)));
        memory.learn(&row(7), 1_100);
        assert_eq!(memory.recall(&row(7)), Some((1_050, false)));
        memory.learn(&row(7), 9_000);
        assert_eq!(memory.recall(&row(7)), Some((9_000, false)));
        assert_eq!(memory.recall(&row(8)), None);
    }

    #[test]
    fn a_write_tells_what_a_read_will_cost_and_displaces_no_other_row() {
        let (memory, namespace) = (PriceMemory::default(), NamespaceId(1));
        let get = |place| {
            let hint = CostHint {
                place,
                ..CostHint::default()
            };
            PriceKeys::of(7, namespace, Operation::Get, &hint)
        };
        memory.learn(&get(1), 900);
        memory.learn_of_write(namespace, 1, 5_000);
        assert_eq!(memory.recall(&get(1)), Some((5_000, false)));
        for place in 2..=1_000_000 {
            memory.learn_of_write(namespace, place, 6_000);
        }
        assert_eq!(memory.recall(&get(1)), Some((5_000, false)));
    }

    #[test]
    fn sizes_of_a_class_differ_by_at_most_an_eighth() {
        let mut first = 1_u64;
        for number in 1..100_000_u64 {
            if class_of(Some(number)) != class_of(Some(first)) {
                assert!(class_of(Some(number)) > class_of(Some(first)), "{number}");
                first = number;
            }
            assert!(number - first <= first / 8, "{first} to {number}");
        }
    }

    #[test]
    fn the_memory_forgets_and_does_not_grow() {
        let memory = PriceMemory::default();
        for place in 1..=1_000_000 {
            memory.learn(&row(place), 5);
        }
        let known = (1..=1_000_000).filter(|&place| memory.recall(&row(place)).is_some());
        assert!(known.count() <= PRICES + 1_000_000 / 1_000);
    }
}
