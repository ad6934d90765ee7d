//! The sketch of one thread: which keys are read most, in constant space.
//!
//! Space-Saving (Metwally, Agrawal and El Abbadi 2005). All counts decay at the end of each interval,
//! by multiplication, so that old reads come to count less. A key's count is never below its decayed
//! reads, and `count − error`, the *guaranteed* count, never above them.
//!
//! Departure from the paper: the counters are divided into sets of 16 by hash, and a key without a counter takes the
//! smallest counter of its set. So an update touches a few cache lines, and its cost does not depend on the counts. The
//! price is that the error is bounded by the reads of the set over 16 instead of all reads over 1,024. Both are equal
//! on average, and a key above 1 % of all reads keeps its counter: there are fewer than a hundred such keys, and 16 of
//! them meet in one of 64 sets with less than one seed in 10⁹.

/// Counters of a set.
pub(crate) const WAYS: usize = 16;

/// Counters whose keys compete for room.
#[derive(Debug, Clone)]
struct SketchSet {
    /// Zero for a free counter.
    hashes: [u64; WAYS],
    /// At least the decayed reads of the key.
    counts: [f64; WAYS],
    /// Part of the count that may be reads of other keys, which had the counter before.
    errors: [f64; WAYS],
    /// Reads since the interval began or the key got its counter.
    recent: [f64; WAYS],
}

impl SketchSet {
    const EMPTY: Self = Self {
        hashes: [0; WAYS],
        counts: [0.0; WAYS],
        errors: [0.0; WAYS],
        recent: [0.0; WAYS],
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

    fn counter(&self, way: usize) -> SketchCounter {
        SketchCounter {
            hash: self.hashes[way],
            guaranteed: (self.counts[way] - self.errors[way]).max(0.0),
            recent: self.recent[way],
        }
    }
}

/// The counter of a key, in reads.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct SketchCounter {
    /// Hash of the key.
    pub(crate) hash: u64,
    /// At most the decayed reads.
    pub(crate) guaranteed: f64,
    /// At most the reads since the interval began.
    pub(crate) recent: f64,
}

/// Counters of the keys that one thread reads.
#[derive(Debug, Clone)]
pub(crate) struct Sketch {
    sets: Box<[SketchSet]>,
    total: f64,
    recent_total: f64,
}

impl Sketch {
    /// Makes a sketch of at least `counters` counters, rounded up to a power of two of sets.
    pub(crate) fn new(counters: usize) -> Self {
        let sets = counters.div_ceil(WAYS).next_power_of_two().max(2);
        Self {
            sets: vec![SketchSet::EMPTY; sets].into(),
            total: 0.0,
            recent_total: 0.0,
        }
    }

    /// Returns the memory of the counters, in bytes.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.sets)
    }

    #[inline]
    fn set_of(&self, hash: u64) -> usize {
        // The upper bits; the lower ones choose places in other tables.
        (hash >> 32) as usize & (self.sets.len() - 1)
    }

    /// Counts one read of the key with this hash, which is not zero.
    #[inline]
    pub(crate) fn add(&mut self, hash: u64) {
        self.add_weight(hash, 1.0);
    }

    /// Counts a weight under this hash, which is not zero. Returns the hash that lost its counter to it, or zero.
    #[inline]
    pub(crate) fn add_weight(&mut self, hash: u64, weight: f64) -> u64 {
        let set = self.set_of(hash);
        let set = &mut self.sets[set];
        self.total += weight;
        self.recent_total += weight;
        if let Some(way) = set.find(hash) {
            set.counts[way] += weight;
            set.recent[way] += weight;
            return 0;
        }
        let way = set.smallest();
        // The new key may have had up to this many reads before.
        set.errors[way] = set.counts[way];
        set.counts[way] += weight;
        set.recent[way] = weight;
        std::mem::replace(&mut set.hashes[way], hash)
    }

    /// Returns the decayed number of all reads.
    pub(crate) fn total(&self) -> f64 {
        self.total
    }

    /// Returns the number of all reads since the interval began.
    pub(crate) fn recent_total(&self) -> f64 {
        self.recent_total
    }

    /// Returns the counter of a key.
    pub(crate) fn get(&self, hash: u64) -> Option<SketchCounter> {
        let set = &self.sets[self.set_of(hash)];
        set.find(hash).map(|way| set.counter(way))
    }

    /// Returns the most reads that a key may have: its count, or the smallest count of its set if it has no counter.
    pub(crate) fn count_max(&self, hash: u64) -> f64 {
        let set = &self.sets[self.set_of(hash)];
        set.counts[set.find(hash).unwrap_or_else(|| set.smallest())]
    }

    /// Returns all keys that have a counter, in no order.
    pub(crate) fn counters(&self) -> impl Iterator<Item = SketchCounter> + '_ {
        self.sets.iter().flat_map(|set| {
            let taken = (0..WAYS).filter(|&way| set.hashes[way] != 0);
            taken.map(|way| set.counter(way))
        })
    }

    /// Ends an interval: multiplies all counts by `share`.
    pub(crate) fn decay(&mut self, share: f64) {
        for set in &mut self.sets {
            for way in 0..WAYS {
                set.counts[way] *= share;
                set.errors[way] *= share;
            }
            set.recent = [0.0; WAYS];
        }
        self.total *= share;
        self.recent_total = 0.0;
    }
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss)] // counts here are far below 2⁵³
mod tests;
