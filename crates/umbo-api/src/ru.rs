//! Request units in bodies: a JSON number, the exact decimal with up to six digits after the point.
//!
//! Owns only this syntax; the cost of requests is decided elsewhere. Values are kept as millionths, so that sums of
//! parsed values are exact. Numbers above 2⁵³ millionths (nine billion units) may be off by some millionths on the
//! wire, as in any JSON.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use utoipa::openapi::schema::{Object, Type};
use utoipa::{PartialSchema, ToSchema};

const MICROS: u64 = 1_000_000;

/// Request units, counted in millionths. The default is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ru(u64);

impl Ru {
    /// Makes request units from millionths.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Returns the millionths.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the units as a fraction.
    #[expect(clippy::cast_precision_loss, reason = "exact up to nine billion units")]
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / MICROS as f64
    }
}

impl Serialize for Ru {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(MICROS) {
            serializer.serialize_u64(self.0 / MICROS)
        } else {
            serializer.serialize_f64(self.as_f64())
        }
    }
}

impl<'de> Deserialize<'de> for Ru {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let units = f64::deserialize(deserializer)?;
        let is_amount = units.is_finite() && units >= 0.0;
        if !is_amount {
            return Err(de::Error::custom("request units are 0 or more"));
        }
        #[expect(
            clippy::cast_sign_loss,
            reason = "checked above; too large is the largest"
        )]
        Ok(Self((units * 1e6).round() as u64))
    }
}

impl PartialSchema for Ru {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        let mut number = Object::with_type(Type::Number);
        number.minimum = Some(0.into());
        number.description = Some("Request units, with up to six digits after the point.".into());
        number.into()
    }
}

impl ToSchema for Ru {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_text_is_the_exact_decimal() {
        for (micros, text) in [
            (0, "0"),
            (1_062_744, "1.062744"),
            (6_000_000, "6"),
            (50_000, "0.05"),
            (1_000_001, "1.000001"),
        ] {
            assert_eq!(serde_json::to_string(&Ru(micros)).unwrap(), text);
        }
        for wrong in ["-1", "\"1\"", "null"] {
            assert!(serde_json::from_str::<Ru>(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(micros in 0..=1_u64 << 50) {
            let text = serde_json::to_string(&Ru(micros)).unwrap();
            prop_assert_eq!(serde_json::from_str::<Ru>(&text).unwrap(), Ru(micros));
            prop_assert!(!text.contains('e'), "{}", text);
        }
    }
}
