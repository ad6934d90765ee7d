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

    /// Returns a number from 0 to below 1, a multiple of 2⁻⁵³.
    pub(crate) const fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Returns a number with the exponential distribution of mean 1 (von Neumann 1951).
    ///
    /// Comparisons alone, no logarithm: the logarithm of the system library differs in its last
    /// bit from one machine to another, and equal seeds would not give equal sequences.
    pub(crate) fn exponential(&mut self) -> f64 {
        let mut whole = 0.0;
        loop {
            let first = self.unit();
            let (mut last, mut run_len) = (first, 1_u32);
            loop {
                let next = self.unit();
                if next >= last {
                    break;
                }
                (last, run_len) = (next, run_len + 1);
            }
            // A falling run that begins with x has an odd length with probability e⁻ˣ.
            if run_len % 2 == 1 {
                return whole + first;
            }
            whole += 1.0;
        }
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
    fn exponential_numbers_have_the_moments_of_their_distribution() {
        let mut random = Random::seeded(3);
        let drawn: Vec<f64> = (0..200_000).map(|_| random.exponential()).collect();
        let share_above = |bound: f64| {
            drawn.iter().filter(|&&number| number > bound).count() as f64 / drawn.len() as f64
        };
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        assert!((mean - 1.0).abs() < 0.01, "mean {mean}");
        for (bound, expected) in [(0.5, 0.606_531), (1.0, 0.367_879), (3.0, 0.049_787)] {
            let share = share_above(bound);
            assert!((share - expected).abs() < 0.005, "{share} above {bound}");
        }
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
