//! The sketch of one worker: which keys are read most, in constant space.
//!
//! Space-Saving (Metwally, Agrawal and El Abbadi 2005) with forward decay (Cormode, Shkapenyuk,
//! Srivastava and Xu 2009): the weight of a read grows with time instead of old counts shrinking,
//! and all counts are divided only once in a while. A key's count is never below its true weight,
//! and `count − error`, the *guaranteed* count, never above it.
//!
//! Departure from the paper: the counters are divided into sets of 16 by hash, and a key that has
//! no counter takes the smallest of its own set. So an update touches a few cache lines and costs
//! the same whatever the weights are; the price is that the error is bounded by the weight of the
//! set over 16 instead of the total over 1,024. Both are equal on average, and a key above 1 % of
//! all reads keeps its counter: there are fewer than a hundred of them, and 16 of those meet in one
//! of 64 sets with less than one seed in 10⁹.

/// Counters a set has.
pub(crate) const WAYS: usize = 16;

/// Counters whose keys compete for room.
#[derive(Debug, Clone)]
struct Set {
    /// Zero where a counter is free.
    hashes: [u64; WAYS],
    /// At least the true weight of the key's reads.
    counts: [u64; WAYS],
    /// The weight counted since the key got its counter: at most the true weight.
    guaranteed: [u64; WAYS],
    /// What was guaranteed when the interval began.
    marks: [u64; WAYS],
    /// Weight times micro-RU since the key got its counter.
    units: [f64; WAYS],
}

impl Set {
    const EMPTY: Self = Self {
        hashes: [0; WAYS],
        counts: [0; WAYS],
        guaranteed: [0; WAYS],
        marks: [0; WAYS],
        units: [0.0; WAYS],
    };

    #[inline]
    fn find(&self, hash: u64) -> Option<usize> {
        // No early exit: the loop has no branches and is made of vector instructions.
        let mut mask = 0_u32;
        for (way, &held) in self.hashes.iter().enumerate() {
            mask |= u32::from(held == hash) << way;
        }
        (mask != 0).then(|| mask.trailing_zeros() as usize)
    }

    #[inline]
    fn smallest(&self) -> usize {
        let mut smallest = 0;
        for way in 1..WAYS {
            if self.counts[way] < self.counts[smallest] {
                smallest = way;
            }
        }
        smallest
    }
}

/// What a sketch knows of a key. Weights; see [`Sketch::increment`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Counter {
    /// Hash of the key.
    pub(crate) hash: u64,
    /// At most the true weight.
    pub(crate) guaranteed: u64,
    /// At most the true weight since the interval began.
    pub(crate) recent: u64,
    /// At most the true sum of weight times micro-RU.
    pub(crate) units: f64,
}

/// Counters of the keys that one worker reads.
#[derive(Debug, Clone)]
pub(crate) struct Sketch {
    sets: Box<[Set]>,
    /// Weight of a read counted now.
    increment: u64,
    total: u64,
    total_mark: u64,
}

impl Sketch {
    /// Makes a sketch of at least `counters` counters, rounded up to a power of two of sets.
    pub(crate) fn new(counters: usize, increment: u64) -> Self {
        let sets = counters.div_ceil(WAYS).next_power_of_two().max(2);
        Self {
            sets: vec![Set::EMPTY; sets].into(),
            increment,
            total: 0,
            total_mark: 0,
        }
    }

    /// Returns the memory of the counters, in bytes.
    pub(crate) fn own_memory(&self) -> usize {
        size_of_val(&*self.sets)
    }

    /// Returns the memory a sketch of that many counters takes, in bytes.
    pub(crate) const fn memory(counters: usize) -> usize {
        counters.div_ceil(WAYS).next_power_of_two() * size_of::<Set>()
    }

    #[inline]
    fn set_of(&self, hash: u64) -> usize {
        // The upper bits; the lower ones choose places in other tables.
        (hash >> 32) as usize & (self.sets.len() - 1)
    }

    /// Counts one read of the key with this hash (not zero) that cost `units` micro-RU.
    #[inline]
    pub(crate) fn add(&mut self, hash: u64, units: u64) {
        let increment = self.increment;
        let set = self.set_of(hash);
        let set = &mut self.sets[set];
        let weighed = units_of(increment, units);
        if let Some(way) = set.find(hash) {
            set.counts[way] += increment;
            set.guaranteed[way] += increment;
            set.units[way] += weighed;
        } else {
            let way = set.smallest();
            set.hashes[way] = hash;
            // What the evicted key had counted may have been this one's.
            set.counts[way] += increment;
            set.guaranteed[way] = increment;
            set.marks[way] = 0;
            set.units[way] = weighed;
        }
        self.total += increment;
    }

    /// Returns the weight of a read counted now.
    pub(crate) fn increment(&self) -> u64 {
        self.increment
    }

    /// Returns the weight of all reads.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the weight of all reads since the interval began.
    pub(crate) fn recent_total(&self) -> u64 {
        self.total - self.total_mark
    }

    /// Returns the counter of a key.
    pub(crate) fn get(&self, hash: u64) -> Option<Counter> {
        let set = &self.sets[self.set_of(hash)];
        set.find(hash).map(|way| set.counter(way))
    }

    /// Returns the most that a key may weigh: its count, or where it has no counter the smallest of
    /// the set it belongs to.
    pub(crate) fn count_max(&self, hash: u64) -> u64 {
        let set = &self.sets[self.set_of(hash)];
        set.counts[set.find(hash).unwrap_or_else(|| set.smallest())]
    }

    /// Returns all keys that have a counter, in no order.
    pub(crate) fn counters(&self) -> impl Iterator<Item = Counter> + '_ {
        self.sets.iter().flat_map(|set| {
            let taken = (0..WAYS).filter(|&way| set.hashes[way] != 0);
            taken.map(|way| set.counter(way))
        })
    }

    /// Begins the next interval: divides all weights by `2^halvings` and gives reads from now on
    /// the weight `increment`.
    pub(crate) fn advance(&mut self, halvings: u32, increment: u64) {
        for set in &mut self.sets {
            if halvings > 0 {
                set.divide(halvings);
            }
            set.marks = set.guaranteed;
        }
        if halvings > 0 {
            self.total = self.total.checked_shr(halvings).unwrap_or(0);
        }
        self.total_mark = self.total;
        self.increment = increment;
    }
}

impl Set {
    fn counter(&self, way: usize) -> Counter {
        Counter {
            hash: self.hashes[way],
            guaranteed: self.guaranteed[way],
            recent: self.guaranteed[way] - self.marks[way],
            units: self.units[way],
        }
    }

    fn divide(&mut self, halvings: u32) {
        for way in 0..WAYS {
            // Rounded so that both bounds stay bounds.
            self.counts[way] = match self.counts[way].checked_shr(halvings) {
                Some(count) if count << halvings == self.counts[way] => count,
                Some(count) => count + 1,
                None => u64::from(self.counts[way] > 0),
            };
            self.guaranteed[way] = self.guaranteed[way].checked_shr(halvings).unwrap_or(0);
            self.units[way] /= 2_f64.powi(halvings.min(1_000).cast_signed());
        }
    }
}

#[expect(clippy::cast_precision_loss)] // a sum for people to look at
#[inline]
fn units_of(increment: u64, units: u64) -> f64 {
    increment as f64 * units as f64
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss)] // bounds are compared with some slack
mod tests;
