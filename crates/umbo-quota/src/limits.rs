//! Every hard limit of policies. Units are at the end of each name.
//!
//! They keep each amount below 2⁵⁶ atoms, so that sums and products of the buckets fit their integers. They also refuse
//! amounts that can only be mistakes.

use std::time::Duration;

use crate::unit::Unit;

/// Most policies in effect at a time, the built-in ones included.
pub const POLICIES_MAX: usize = 256;
/// Most overrides of one policy.
pub const OVERRIDES_MAX: usize = 256;
/// Longest name of a policy, in bytes.
pub const POLICY_NAME_LEN_MAX: usize = 64;
/// Longest pattern, in bytes.
pub const PATTERN_LEN_MAX: usize = 256;
/// Shortest refill.
pub const REFILL_MIN: Duration = Duration::from_millis(10);
/// Refill interval of a policy that does not set one.
pub const REFILL_DEFAULT: Duration = Duration::from_millis(50);
/// Longest refill.
pub const REFILL_MAX: Duration = Duration::from_secs(10);
/// Longest time until an empty bucket is full, in seconds. A burst of one unit at the lowest rate takes this long.
pub const FILL_SECONDS_MAX: u64 = 1_000_000;

/// Highest rate of every unit but bytes, in units a second.
const COUNT_RATE_MAX: u64 = 1_000_000_000;
/// Largest burst of every unit but bytes, in units.
const COUNT_BURST_MAX: u64 = 50_000_000_000;
/// Highest rate of bytes, in bytes a second.
const BYTE_RATE_MAX: u64 = 1_000_000_000_000;
/// Largest burst of bytes.
const BYTE_BURST_MAX: u64 = 1_000_000_000_000_000;

impl Unit {
    /// Returns the highest rate, in atoms a second.
    pub const fn rate_max(self) -> u64 {
        self.atoms_per_unit()
            * if self.is_bytes() {
                BYTE_RATE_MAX
            } else {
                COUNT_RATE_MAX
            }
    }

    /// Returns the largest burst, in atoms.
    pub const fn burst_max(self) -> u64 {
        self.atoms_per_unit()
            * if self.is_bytes() {
                BYTE_BURST_MAX
            } else {
                COUNT_BURST_MAX
            }
    }
}

const ATOMS_MAX: u64 = 1 << 56;
const _: () = assert!(Unit::Ru.burst_max() < ATOMS_MAX && Unit::Bytes.burst_max() < ATOMS_MAX);
const _: () = assert!(REFILL_MAX.as_secs() * Unit::Ru.rate_max() <= Unit::Ru.burst_max());
const _: () = assert!(REFILL_MAX.as_secs() * Unit::Bytes.rate_max() <= Unit::Bytes.burst_max());
const _: () = assert!(FILL_SECONDS_MAX >= Unit::Ru.atoms_per_unit());
