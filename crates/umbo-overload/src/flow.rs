//! Callers told apart by a hash, so that the state about them is bounded.
//!
//! The hash changes with every turn, so that callers of one flow do not stay together.

/// Flows that callers are told apart by: one for each value of a byte.
pub(crate) const FLOWS: usize = 1 << u8::BITS;
/// Odd, with bits all over: 2⁶⁴ divided by the golden ratio (Knuth 1973, multiplicative hashing).
pub(crate) const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Returns the flow of a caller in a turn.
#[inline]
pub(crate) const fn flow_of(caller: u64, turn: u64) -> u8 {
    let salted = caller ^ turn.wrapping_mul(SPREAD);
    (salted.wrapping_mul(SPREAD) >> (u64::BITS - u8::BITS)) as u8
}
