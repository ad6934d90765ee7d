//! What reads have cost, by row, by partition and limit, and by size class: from it comes what the next one like
//! them will cost.
//!
//! Two tables of words, each word a part of its key's hash and a price. A newcomer takes the word of whoever was there,
//! so that the memory is bounded and needs no order; two keys are taken for each other once in 65,536 times. Hot path:
//! relaxed loads and stores, no lock and no allocation. A price that two threads learn at once may be lost.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use umbo_types::{NamespaceId, Operation};

use crate::cost::CostHint;

/// Prices of rows and partitions that are kept: 8 bytes each, half a MiB a dispatcher. As many as the keys that make
/// nine tenths of usual traffic.
const PLACES: usize = 1 << 16;
/// Prices of size classes that are kept: 8 bytes each. Apart, so that many rows do not displace them.
const CLASSES: usize = 1 << 12;
/// Bits of a price in micro-RU; it is at most 281 million RU. The other bits of a word are of the key's hash.
const PRICE_BITS: u32 = 48;
/// A price of a place that is off by more than this part, a power of two, was that of other contents.
const CHANGED_PART: u32 = 4;
/// One new price counts this part of the average of a size class: a power of two.
const CLASS_SMOOTHING: u32 = 8;
/// Parts of an octave of lengths and limits that are told apart: a power of two. Sizes in a class differ by an eighth.
const CLASSES_OF_OCTAVE: u32 = 8;

/// Prices by the hashes of their keys.
#[derive(Debug)]
pub(crate) struct PriceMemory {
    places: Box<[AtomicU64]>,
    classes: Box<[AtomicU64]>,
}

/// The keys by which a request is remembered, from the narrowest; 0 is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PriceKeys {
    /// A partition and limits.
    bounded: u64,
    /// A row or partition.
    place: u64,
    /// A caller, an operation and the size of what the request says.
    class: u64,
}

impl PriceKeys {
    /// Returns the keys of a request of a caller, by the hash of its name. Writes have none: their length tells their
    /// price.
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
            return Self {
                place,
                ..Self::default()
            };
        }
        let (rows, bytes) = (hint.rows_max.unwrap_or(0), hint.bytes_max.unwrap_or(0));
        let len = hint.body_len.unwrap_or(0);
        let limits = mixed(class_of(rows), class_of(bytes) << 16 | class_of(len));
        Self {
            bounded: if place == 0 { 0 } else { mixed(place, limits) },
            place,
            class: mixed(mixed(caller, limits), space),
        }
    }
}

impl Default for PriceMemory {
    fn default() -> Self {
        let words = |count| std::iter::repeat_with(AtomicU64::default).take(count);
        Self {
            places: words(PLACES).collect(),
            classes: words(CLASSES).collect(),
        }
    }
}

impl PriceMemory {
    /// Returns what a request like this cost, in micro-RU, by the narrowest of its keys that is remembered.
    #[inline]
    pub(crate) fn recall(&self, keys: &PriceKeys) -> Option<u64> {
        let place = |key| price_at(&self.places, key);
        let bounded = place(keys.bounded).or_else(|| place(keys.place));
        bounded.or_else(|| price_at(&self.classes, keys.class))
    }

    /// Remembers what the next get of a row that was written will cost, in micro-RU; displaces no other one, so that
    /// many writes leave what is read.
    pub(crate) fn learn_of_write(&self, namespace: NamespaceId, place: u64, price: u64) {
        let key = mixed(place, space(namespace, Operation::Get));
        let is_empty = self.places[key as usize & (PLACES - 1)].load(Relaxed) == 0;
        if is_empty || price_at(&self.places, key).is_some() {
            remember(&self.places, key, price, |_| price);
        }
    }

    /// Remembers what a request cost, in micro-RU.
    #[inline]
    pub(crate) fn learn(&self, keys: &PriceKeys, price: u64) {
        for key in [keys.bounded, keys.place] {
            // What is there now is the best guess; small differences are of the store's time.
            remember(&self.places, key, price, |known| {
                if known.abs_diff(price) > known / u64::from(CHANGED_PART) {
                    price
                } else {
                    known.midpoint(price)
                }
            });
        }
        remember(&self.classes, keys.class, price, |known| {
            known - known / u64::from(CLASS_SMOOTHING) + price / u64::from(CLASS_SMOOTHING)
        });
    }
}

/// Returns a number for an operation in a namespace.
const fn space(namespace: NamespaceId, operation: Operation) -> u64 {
    (namespace.0 as u64) << 8 | operation as u64
}

#[inline]
fn price_at(words: &[AtomicU64], key: u64) -> Option<u64> {
    if key == 0 {
        return None;
    }
    let word = words[key as usize & (words.len() - 1)].load(Relaxed);
    let price = word & ((1 << PRICE_BITS) - 1);
    (word >> PRICE_BITS == key >> PRICE_BITS && price > 0).then_some(price)
}

#[inline]
fn remember(words: &[AtomicU64], key: u64, price: u64, with: impl FnOnce(u64) -> u64) {
    if key == 0 {
        return;
    }
    let price = price_at(words, key).map_or(price, with);
    let price = price.min((1 << PRICE_BITS) - 1);
    let word = key >> PRICE_BITS << PRICE_BITS | price;
    words[key as usize & (words.len() - 1)].store(word, Relaxed);
}

/// Returns the size class of a number: small numbers are each their own.
fn class_of(number: u64) -> u64 {
    let bits = CLASSES_OF_OCTAVE.ilog2();
    match number.checked_ilog2() {
        Some(octave) if octave > bits => {
            u64::from(octave) * u64::from(CLASSES_OF_OCTAVE) + (number >> (octave - bits))
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
        PriceKeys {
            place: mixed(place, 1),
            ..PriceKeys::default()
        }
    }

    #[test]
    fn a_row_is_told_at_what_it_cost_last_and_small_differences_are_evened_out() {
        let memory = PriceMemory::default();
        assert_eq!(memory.recall(&row(7)), None);
        memory.learn(&row(7), 1_000);
        assert_eq!(memory.recall(&row(7)), Some(1_000));
        memory.learn(&row(7), 1_100);
        assert_eq!(memory.recall(&row(7)), Some(1_050));
        memory.learn(&row(7), 9_000);
        assert_eq!(memory.recall(&row(7)), Some(9_000));
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
        assert_eq!(memory.recall(&get(1)), Some(5_000));
        for place in 2..=1_000_000 {
            memory.learn_of_write(namespace, place, 6_000);
        }
        assert_eq!(memory.recall(&get(1)), Some(5_000));
    }

    #[test]
    fn sizes_of_a_class_differ_by_at_most_an_eighth() {
        let mut first = 1_u64;
        for number in 1..100_000_u64 {
            if class_of(number) != class_of(first) {
                assert!(class_of(number) > class_of(first), "{number}");
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
        assert!(known.count() <= PLACES + 1_000_000 / 1_000);
    }
}
