//! A time to live in requests, settings of rows and the command line: a number of seconds, or a duration with units
//! (`60s`, `5m`, `1h 30m`, `30d`).
//!
//! Owns the only parser of this form, and its bounds. A fraction of a second is rounded up to a whole second.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserializer, Error, Unexpected, Visitor};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, Object, OneOfBuilder, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::whole_number;

/// Longest time to live, in seconds: ten years.
pub const SECONDS_MAX: u64 = 315_360_000;
/// Description of a valid time to live, for error texts.
pub const EXPECTED: &str = "1 to 315360000 seconds, as a number or with units (60, 60s, 5m, 30d)";

/// Pattern of a time to live as text, for the API document. It accepts only texts that [`parse`] accepts, but not all
/// of them: durations of more than one unit, and the largest numbers, are missing.
pub const PATTERN: &str =
    "^([1-9][0-9]{0,7}|[1-9][0-9]{0,7}s|[1-9][0-9]{0,5}m|[1-9][0-9]{0,3}h|[1-9][0-9]{0,2}d)$";

/// Schema of a time to live in JSON.
#[derive(Debug)]
pub struct TimeToLive;

impl PartialSchema for TimeToLive {
    fn schema() -> RefOr<Schema> {
        let mut seconds = Object::with_type(Type::Integer);
        seconds.description = Some(format!("Seconds, 1 to {SECONDS_MAX}."));
        seconds.format = Some(SchemaFormat::KnownFormat(KnownFormat::Int64));
        seconds.minimum = Some(1.into());
        seconds.maximum = Some(SECONDS_MAX.into());
        let mut text = Object::with_type(Type::String);
        text.description = Some("A number of seconds, or a duration with units.".into());
        text.pattern = Some(PATTERN.into());
        text.examples = vec!["5m".into()];
        OneOfBuilder::new()
            .item(seconds)
            .item(text)
            .description(Some("A time to live in JSON."))
            .into()
    }
}

impl ToSchema for TimeToLive {}

/// Parses a time to live, in seconds. Returns `None` if it is not a number or duration, or out of bounds.
pub fn parse(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = if is_number {
        text.parse().ok()?
    } else {
        let time = span(text).ok()?;
        if time.as_secs() == 0 {
            return None;
        }
        time.as_secs()
            .checked_add(u64::from(time.subsec_nanos() > 0))?
    };
    (1..=SECONDS_MAX).contains(&seconds).then_some(seconds)
}

/// Parses a time span like `50ms`, `5m` or `1h 30m`. Refuses the unit `M`: it stands for months, but authors mostly
/// mean minutes.
pub fn span(text: &str) -> Result<Duration, String> {
    let mut units = text.split(|letter: char| !letter.is_alphabetic());
    if units.any(|unit| unit == "M") {
        return Err("M stands for months: write m for minutes, or months".to_owned());
    }
    humantime::parse_duration(text).map_err(|error| error.to_string())
}

struct SecondsVisitor;

impl Visitor<'_> for SecondsVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a time to live of {EXPECTED}")
    }

    fn visit_u64<E: Error>(self, seconds: u64) -> Result<u64, E> {
        if (1..=SECONDS_MAX).contains(&seconds) {
            return Ok(seconds);
        }
        Err(E::invalid_value(Unexpected::Unsigned(seconds), &self))
    }

    fn visit_f64<E: Error>(self, seconds: f64) -> Result<u64, E> {
        let whole = whole_number::of_double(seconds);
        let seconds_in_bounds = whole.filter(|whole| (1..=SECONDS_MAX).contains(whole));
        seconds_in_bounds.ok_or_else(|| E::invalid_value(Unexpected::Float(seconds), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

struct Nullable;

impl<'de> Visitor<'de> for Nullable {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SecondsVisitor.expecting(f)
    }

    fn visit_none<E: Error>(self) -> Result<Option<u64>, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Option<u64>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<u64>, D::Error> {
        deserializer.deserialize_any(SecondsVisitor).map(Some)
    }
}

/// Reads a field that may be null.
pub(crate) fn nullable<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    deserializer.deserialize_option(Nullable)
}

/// Reads a field that may be null, and marks it as present. Serde does not call this function for an absent field.
#[expect(
    clippy::option_option,
    reason = "absent, null and a value are three things (RFC 7396)"
)]
pub(crate) fn named<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<u64>>, D::Error> {
    nullable(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_seconds_and_durations_have_units() {
        for (text, seconds) in [
            ("1", 1),
            ("60", 60),
            ("60s", 60),
            ("5m", 300),
            ("1h 30m", 5_400),
            ("1500ms", 2),
            ("315360000", SECONDS_MAX),
        ] {
            assert_eq!(parse(text), Some(seconds), "{text}");
        }
        for text in [
            "",
            "0",
            "0s",
            "500ms",
            "-1",
            "+1",
            "1.5",
            "m",
            "315360001",
            "3651d",
            "5 parsecs",
            // Months to a parser, minutes to its writer.
            "5M",
            "1h 30M",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
