//! Random numbers from a seed, for values that must differ between dispatchers and be reproducible in a
//! simulation.

use std::sync::atomic::{AtomicU64, Ordering};

/// A sequence of numbers (`SplitMix64`, Steele et al. 2014).
#[derive(Debug)]
pub(crate) struct SeededRandom {
    state: AtomicU64,
}

impl SeededRandom {
    /// Begins with a seed, or with a random one of the operating system.
    pub(crate) fn new(seed: Option<u64>) -> Self {
        let random = || getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id()));
        Self {
            state: AtomicU64::new(seed.unwrap_or_else(random)),
        }
    }

    pub(crate) fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut mixed = self
            .state
            .fetch_add(STEP, Ordering::Relaxed)
            .wrapping_add(STEP);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number from 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        f64::from((self.next() >> 32) as u32) / f64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_all() {
        let (one, same, other) = (
            SeededRandom::new(Some(7)),
            SeededRandom::new(Some(7)),
            SeededRandom::new(Some(8)),
        );
        let numbers = |chance: &SeededRandom| [chance.next(), chance.next(), chance.next()];
        let first = numbers(&one);
        assert_eq!(first, numbers(&same));
        assert_ne!(first, numbers(&other));
        assert!((0.0..=1.0).contains(&one.share()));
    }
}
