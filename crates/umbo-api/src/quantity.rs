//! An amount in a body or file: a number or a text, kept as it was written.
//!
//! Deliberately does no arithmetic and has no unit: the code that knows the unit interprets the amount. Invariant: a
//! number is written as a number again, a text as a text.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::schema::{Object, OneOfBuilder, Type};
use utoipa::{PartialSchema, ToSchema};

/// Maximum number of digits of a fraction that every JSON parser with doubles preserves.
const DIGITS_MAX: usize = 15;

/// A number (`1000`, `0.5`) or a text (`"0.5"`, `"64KiB"`).
///
/// JSON and TOML pass a number with a point as a double, so a number with more than 15 digits may arrive as a
/// neighbouring double. A text arrives unchanged, so long numbers are written as texts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Quantity {
    text: String,
    is_number: bool,
}

impl Quantity {
    /// Keeps a decimal. It is written as a number if a JSON number holds it exactly, otherwise as a text.
    pub fn number(decimal: impl Into<String>) -> Self {
        let text = decimal.into();
        let is_number = Plain::of(&text).is_some();
        Self { text, is_number }
    }

    /// Keeps a text. It is written as a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_number: false,
        }
    }

    /// Returns the amount as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the amount as a fraction, or `None` if it is not a plain number.
    pub fn as_f64(&self) -> Option<f64> {
        self.text
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite())
    }
}

impl From<&str> for Quantity {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A number that JSON and TOML hold exactly.
enum Plain {
    Whole(i64),
    Fraction(f64),
}

impl Plain {
    /// Reads a decimal. Returns `None` if writing the number would give another text.
    fn of(text: &str) -> Option<Self> {
        if let Ok(whole) = text.parse::<i64>() {
            return (whole.to_string() == text).then_some(Self::Whole(whole));
        }
        // JSON readers may be off by one in the last digit of a longer number.
        let digits = text.bytes().filter(u8::is_ascii_digit).count();
        if digits > DIGITS_MAX {
            return None;
        }
        let fraction = text.parse::<f64>().ok()?;
        (fraction.is_finite() && fraction.to_string() == text).then_some(Self::Fraction(fraction))
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match Plain::of(&self.text).filter(|_| self.is_number) {
            Some(Plain::Whole(whole)) => serializer.serialize_i64(whole),
            Some(Plain::Fraction(fraction)) => serializer.serialize_f64(fraction),
            None => serializer.serialize_str(&self.text),
        }
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Visitor)
    }
}

struct Visitor;

impl serde::de::Visitor<'_> for Visitor {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or a text like \"64KiB\"")
    }

    fn visit_i64<E>(self, number: i64) -> Result<Quantity, E> {
        Ok(Quantity::number(number.to_string()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Quantity, E> {
        Ok(Quantity::number(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Quantity, E> {
        Ok(Quantity::number(number.to_string()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Quantity, E> {
        Ok(Quantity::text(text))
    }
}

impl PartialSchema for Quantity {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        OneOfBuilder::new()
            .item(Object::with_type(Type::Number))
            .item(Object::with_type(Type::String))
            .description(Some(
                "An amount: a number, or a text like \"0.5\" or, of bytes, \"64KiB\".",
            ))
            .into()
    }
}

impl ToSchema for Quantity {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(json: &str) -> Quantity {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn what_was_written_is_written_again() {
        for (json, text) in [
            ("1000", "1000"),
            ("0.1", "0.1"),
            ("1e-6", "0.000001"),
            ("999999999.999999", "999999999.999999"),
            ("50000000000", "50000000000"),
            ("-5", "-5"),
            ("\"0.10\"", "0.10"),
            ("\"64KiB\"", "64KiB"),
            ("\"1000\"", "1000"),
            ("\"\"", ""),
        ] {
            let quantity = read(json);
            assert_eq!(quantity.as_str(), text);
            assert_eq!(serde_json::to_string(&quantity).unwrap(), json);
        }
    }

    #[test]
    fn numbers_of_any_notation_are_plain_text() {
        for (json, text) in [
            ("1e3", "1000"),
            ("1.0", "1"),
            ("1e-7", "0.0000001"),
            ("18446744073709551615", "18446744073709551615"),
            ("1e300", &format!("1{}", "0".repeat(300))),
        ] {
            assert_eq!(read(json).as_str(), text);
        }
    }

    #[test]
    fn what_no_number_is_sure_to_hold_is_given_out_as_text() {
        for text in [
            "50000000000.000001",
            "9519632467.274181",
            "18446744073709551615",
            "NaN",
            "inf",
        ] {
            let json = serde_json::to_string(&Quantity::number(text)).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(read(&json).as_str(), text);
        }
    }

    #[test]
    fn neither_number_nor_text_is_refused() {
        for json in ["true", "null", "[1]", "{}"] {
            let error = serde_json::from_str::<Quantity>(json).unwrap_err();
            assert!(error.to_string().contains("a number or a text"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn millionths_survive_whatever_their_form(millionths in 0..=50_000_000_000_000_000_u64) {
            let (whole, part) = (millionths / 1_000_000, millionths % 1_000_000);
            let decimal = format!("{whole}.{part:06}");
            let decimal = decimal.trim_end_matches('0').trim_end_matches('.');
            let json = serde_json::to_string(&Quantity::number(decimal)).unwrap();
            prop_assert_eq!(json.contains('"'), decimal.contains('.') && decimal.len() > 16);
            prop_assert_eq!(read(&json).to_string(), decimal);
        }
    }
}
