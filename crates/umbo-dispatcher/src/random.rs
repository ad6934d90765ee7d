//! Random numbers for jitter: one generator a thread, seeded once, never for secrets.
//!
//! Hot path: a few instructions and no system call. `SplitMix64` (Steele, Lea and Flood 2014).

use std::cell::Cell;

/// Golden ratio in 64 bits, the step of the sequence.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

thread_local! {
    // Without randomness of the system threads still differ by the addresses of their stacks.
    static STATE: Cell<u64> = Cell::new(
        getrandom::u64().unwrap_or_else(|_| mixed(std::ptr::from_ref(&STEP).addr() as u64)),
    );
}

/// Returns the next number of this thread.
pub(crate) fn next() -> u64 {
    STATE.with(|state| {
        let advanced = state.get().wrapping_add(STEP);
        state.set(advanced);
        mixed(advanced)
    })
}

/// Spreads a number over all bits; different numbers stay different.
pub(crate) const fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_do_not_repeat_and_fill_their_bits() {
        let numbers: Vec<u64> = (0..1_000).map(|_| next()).collect();
        let mut distinct = numbers.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), numbers.len());
        for bit in 0..64 {
            let ones = numbers.iter().filter(|n| *n >> bit & 1 == 1).count();
            assert!((350..650).contains(&ones), "bit {bit}: {ones} of 1000");
        }
    }
}
