//! Price multiplier: the factor of an overload on the price of a request.
//!
//! An integer in hundredths, so that a multiplied price is the same on every machine.

use std::fmt;

use crate::request_units::RequestUnits;

/// A factor on the price of a request, from 1 to 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PriceMultiplier(u16);

impl PriceMultiplier {
    /// The plain price.
    pub const NONE: Self = Self(100);
    /// The highest multiplier.
    pub const MAX: Self = Self(1_600);

    /// Takes hundredths; below [`Self::NONE`] or above [`Self::MAX`] the bound counts.
    #[must_use]
    pub const fn from_hundredths(hundredths: u16) -> Self {
        if hundredths < Self::NONE.0 {
            Self::NONE
        } else if hundredths > Self::MAX.0 {
            Self::MAX
        } else {
            Self(hundredths)
        }
    }

    /// Returns the hundredths.
    #[must_use]
    pub const fn as_hundredths(self) -> u16 {
        self.0
    }

    /// Returns the factor as a fraction, for graphs and JSON.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / f64::from(Self::NONE.0)
    }

    /// Returns whether the price stays as it is.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == Self::NONE.0
    }

    /// Returns the units above the plain price, rounded down.
    #[must_use]
    pub const fn penalty(self, plain: RequestUnits) -> RequestUnits {
        let above = (self.0 - Self::NONE.0) as u128;
        let penalty = plain.as_micros() as u128 * above / Self::NONE.0 as u128;
        RequestUnits::from_micros(if penalty > u64::MAX as u128 {
            u64::MAX
        } else {
            penalty as u64
        })
    }
}

impl Default for PriceMultiplier {
    fn default() -> Self {
        Self::NONE
    }
}

/// As in `×2`, `×2.5` or `×1.25`.
impl fmt::Display for PriceMultiplier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "×{}", self.as_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hundredths_are_bounded() {
        for (given, held) in [
            (0, 100),
            (100, 100),
            (250, 250),
            (1_600, 1_600),
            (9_999, 1_600),
        ] {
            assert_eq!(
                PriceMultiplier::from_hundredths(given).as_hundredths(),
                held
            );
        }
        assert!(PriceMultiplier::default().is_none());
    }

    #[test]
    fn the_penalty_is_what_exceeds_the_plain_price() {
        let penalty = |hundredths, micros| {
            let plain = RequestUnits::from_micros(micros);
            PriceMultiplier::from_hundredths(hundredths)
                .penalty(plain)
                .as_micros()
        };
        assert_eq!(penalty(100, 1_000_000), 0);
        assert_eq!(penalty(250, 1_000_001), 1_500_001);
        assert_eq!(penalty(1_600, 2), 30);
        assert_eq!(penalty(1_600, u64::MAX), u64::MAX);
    }

    #[test]
    fn the_text_is_the_factor() {
        let text = |hundredths| PriceMultiplier::from_hundredths(hundredths).to_string();
        assert_eq!([text(100), text(250), text(1_600)], ["×1", "×2.5", "×16"]);
    }
}
