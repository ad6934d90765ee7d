//! The numbers of the keys, and how long rates take to mean something.

/// Numbers of the popular keys are below.
pub(super) const KEYS: u64 = 1_000_000;
/// Ticks before anything is compared: decayed rates of less mean little.
pub(super) const SETTLING: u64 = 11;
/// Numbers of the keys that are under attack beside the popular ones, and of the flood.
pub(super) const ATTACKED: u64 = KEYS;
pub(super) const FLOOD: u64 = 2 * KEYS;
