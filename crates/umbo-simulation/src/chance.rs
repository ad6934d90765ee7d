//! Random numbers from a seed: `SplitMix64` (Steele, Lea and Flood 2014), so that a seed means the same with
//! every version of every library.
//!
//! Each part of a simulation has its own stream, so that an additional draw in one does not change the
//! others.

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub struct Chance {
    state: u64,
}

impl Chance {
    /// Begins the stream of a seed for one part of the simulation.
    pub fn new(seed: u64, part: &str) -> Self {
        let part = xxhash_rust::xxh3::xxh3_64(part.as_bytes());
        let mut chance = Self { state: seed ^ part };
        chance.state = chance.draw();
        chance
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`; 0 if the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.draw() % bound }
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// Returns an index of something with `len` parts.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns true with this probability, in thousandths.
    pub fn per_mille(&mut self, times: u64) -> bool {
        self.below(1_000) < times
    }

    /// Returns one of the items with probabilities in proportion to the weights. The sum of the weights must
    /// not be 0.
    pub fn weighted<T: Copy>(&mut self, items: &[(u64, T)]) -> T {
        let sum = items.iter().map(|(weight, _)| weight).sum();
        let mut left = self.below(sum);
        for &(weight, item) in items {
            if left < weight {
                return item;
            }
            left -= weight;
        }
        items[items.len() - 1].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_its_parts_others() {
        let first = |seed, part| Chance::new(seed, part).draw();
        assert_eq!(first(7, "disk"), first(7, "disk"));
        assert_ne!(first(7, "disk"), first(7, "clients"));
        assert_ne!(first(7, "disk"), first(8, "disk"));
        let mut chance = Chance::new(1, "weights");
        let drawn: Vec<_> = (0..99)
            .map(|_| chance.weighted(&[(1, 'a'), (0, 'b'), (9, 'c')]))
            .collect();
        assert!(drawn.contains(&'a') && drawn.contains(&'c') && !drawn.contains(&'b'));
    }
}
