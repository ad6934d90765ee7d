//! Deterministic randomness: `SplitMix64` (Steele, Lea, Flood 2014), seeded, the same everywhere.

/// A generator. Equal seeds give equal sequences on every machine.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// Begins a sequence.
    pub(crate) const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which is not 0. Its bias is below 2⁻³² for bounds below 2³².
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }

    /// Shuffles (Fisher and Yates, in Durstenfeld's form).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            let other = self.below(at as u64 + 1) as usize;
            items.swap(at, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_those_of_the_published_generator() {
        let mut random = Random::seeded(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(
            first,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..1_000).collect();
        Random::seeded(7).shuffle(&mut items);
        assert!(items.windows(2).any(|pair| pair[0] > pair[1]));
        items.sort_unstable();
        assert!(items.iter().copied().eq(0..1_000));
    }
}
