//! Values with their unit: a time span like `50ms`, a size like `2MiB`, a price in request units, and an
//! optional text.
//!
//! Written values parse back to themselves. A bare number is refused where its unit would be ambiguous; a
//! price is a bare number, because request units have only one unit.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use umbo_api::time_to_live;

/// A time span, like `50ms`, `10s` or `1m 30s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimeSpan(pub(crate) Duration);

/// A number of bytes, like `256KiB` or `1GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ByteCount(pub(crate) u64);

impl TimeSpan {
    /// Returns a span of so many seconds.
    pub(super) const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl FromStr for TimeSpan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        time_to_live::span(text)
            .map(Self)
            .map_err(|_| format!("'{text}' is no time span (expected like 50ms, 10s or 1m 30s)"))
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

impl FromStr for ByteCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let has_unit = text.ends_with(|last: char| last.is_ascii_alphabetic());
        let size = text.parse::<bytesize::ByteSize>().ok();
        size.filter(|_| has_unit)
            .map(|size| Self(size.as_u64()))
            .ok_or_else(|| format!("'{text}' is no size (expected like 256KiB, 2MiB or 1GiB)"))
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["B", "KiB", "MiB", "GiB", "TiB"];
        let power = (0..units.len())
            .rev()
            .find(|&power| self.0 > 0 && self.0.is_multiple_of(1 << (10 * power)))
            .unwrap_or(0);
        write!(f, "{}{}", self.0 >> (10 * power), units[power])
    }
}

/// Serializes a price in request units, exact to the micro-unit.
pub(super) mod price {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};
    use umbo_types::RequestUnits;

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "the signature that serde asks for"
    )]
    pub(in crate::settings) fn serialize<S: Serializer>(
        price: &RequestUnits,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(price.as_f64())
    }

    pub(in crate::settings) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<RequestUnits, D::Error> {
        // The shortest decimal that parses to this number equals the written one, up to fifteen digits, so that 0.05 is
        // exactly 50,000 micro-units and not the nearest binary fraction.
        let written = f64::deserialize(deserializer)?.to_string();
        written.parse().map_err(|_| {
            D::Error::custom(format!(
                "{written} is no price (expected a number of request units that is not negative, \
                 with at most 6 decimals)"
            ))
        })
    }
}

macro_rules! serde_as_text {
    ($($type:ty),+) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    )+};
}

serde_as_text!(TimeSpan, ByteCount);

/// Serializes an absent value as the empty text.
pub(super) mod empty_is_none {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::ref_option, reason = "the signature that serde asks for")]
    pub(in crate::settings) fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let text = value.as_ref().map(T::to_string);
        serializer.serialize_str(&text.unwrap_or_default())
    }

    pub(in crate::settings) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let parsed = (!text.is_empty()).then(|| text.parse().map_err(D::Error::custom));
        parsed.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_back_as_written() {
        for (text, bytes) in [
            ("0B", 0),
            ("1B", 1),
            ("1000B", 1_000),
            ("256KiB", 256 << 10),
            ("2MiB", 2 << 20),
            ("1GiB", 1 << 30),
            ("3TiB", 3 << 40),
        ] {
            assert_eq!(text.parse(), Ok(ByteCount(bytes)));
            assert_eq!(ByteCount(bytes).to_string(), text);
        }
        assert_eq!("2MB".parse(), Ok(ByteCount(2_000_000)));
        assert_eq!("1.5KiB".parse(), Ok(ByteCount(1_536)));
    }

    #[test]
    fn numbers_without_a_unit_are_refused() {
        for text in ["1024", "", "MiB", "-1MiB", "2 parsecs"] {
            assert!(text.parse::<ByteCount>().is_err(), "{text}");
        }
        for text in ["10", "", "ms", "-1s", "1 parsec"] {
            assert!(text.parse::<TimeSpan>().is_err(), "{text}");
        }
    }

    #[test]
    fn time_spans_read_back_as_written() {
        for text in ["0s", "50ms", "10s", "1m 30s", "75s"] {
            let span: TimeSpan = text.parse().unwrap();
            assert_eq!(span.to_string().parse(), Ok(span));
        }
        assert_eq!("75s".parse::<TimeSpan>().unwrap().to_string(), "1m 15s");
    }
}
