//! Request units: the cost of a request, as an integer.
//!
//! One unit is a point read of a small row. Internally everything is counted in millionths, so that sums are
//! exact and nothing is rounded twice; only people and graphs see a fraction.

use std::fmt;
use std::str::FromStr;

use crate::decimal::{self, DecimalError, MILLIONTHS};

/// An amount of request units, counted in millionths (micro-RU).
///
/// From 0 to about 1.8 × 10¹³ units. Its text is the exact decimal: `1.062744`, `6`, `0`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestUnits(u64);

impl RequestUnits {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// The maximum.
    pub const MAX: Self = Self(u64::MAX);

    /// Makes an amount of micro-RU.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Returns the micro-RU.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the units as a fraction, for graphs and JSON; exact below 2³³ units or so.
    #[expect(clippy::cast_precision_loss)] // the caller asked for a fraction
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / MILLIONTHS as f64
    }

    /// Adds; at most [`Self::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Subtracts; at least zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for RequestUnits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        decimal::write_millionths(self.0, f)
    }
}

impl FromStr for RequestUnits {
    type Err = DecimalError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        decimal::parse_millionths(text).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_is_the_exact_decimal() {
        for (micros, text) in [
            (0, "0"),
            (1, "0.000001"),
            (50_000, "0.05"),
            (1_062_744, "1.062744"),
            (6_000_000, "6"),
            (10_000_000, "10"),
            (u64::MAX, "18446744073709.551615"),
        ] {
            assert_eq!(RequestUnits::from_micros(micros).to_string(), text);
            assert_eq!(text.parse(), Ok(RequestUnits::from_micros(micros)));
        }
    }

    #[test]
    fn sums_stop_at_both_ends() {
        let one = RequestUnits::from_micros(1);
        assert_eq!(RequestUnits::ZERO.saturating_sub(one), RequestUnits::ZERO);
        assert_eq!(RequestUnits::MAX.saturating_add(one), RequestUnits::MAX);
        assert_eq!(one.saturating_add(one).saturating_sub(one), one);
    }

    proptest! {
        #[test]
        fn text_reads_back(micros: u64) {
            let units = RequestUnits::from_micros(micros);
            prop_assert_eq!(units.to_string().parse(), Ok(units));
        }

        #[test]
        fn the_fraction_reads_back_to_the_micro(micros in 0..=1_u64 << 52) {
            let fraction = RequestUnits::from_micros(micros).as_f64();
            let text = format!("{fraction:.6}");
            prop_assert_eq!(text.parse(), Ok(RequestUnits::from_micros(micros)));
        }
    }
}
