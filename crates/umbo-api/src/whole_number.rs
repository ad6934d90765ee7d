//! Whole numbers in request bodies. `60.0` is an integer by JSON Schema, and some encoders write integers in this form.

use std::fmt;

use serde::de::{Deserializer, Error, Unexpected, Visitor};

/// Above this number, a double cannot hold every whole number.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Returns a double as a whole number, or `None` if it is not whole, negative or too large to be exact.
pub(crate) fn of_double(number: f64) -> Option<u64> {
    let is_whole = (0.0..=EXACT_MAX).contains(&number) && number.fract() == 0.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked above"
    )]
    is_whole.then_some(number as u64)
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
pub(crate) const fn is_zero(number: &u64) -> bool {
    *number == 0
}

struct Whole;

impl<'de> Visitor<'de> for Whole {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number of 0 or more")
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        let whole = of_double(number);
        whole
            .map(Some)
            .ok_or_else(|| E::invalid_value(Unexpected::Float(number), &self))
    }
}

/// Reads a field that may be null or absent.
pub(crate) fn optional<'de, D: Deserializer<'de>, T: TryFrom<u64>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let number = deserializer.deserialize_option(Whole)?;
    number
        .map(|number| {
            let expected = &"a smaller number";
            T::try_from(number)
                .map_err(|_| D::Error::invalid_value(Unexpected::Unsigned(number), expected))
        })
        .transpose()
}

/// Reads a number like [`optional`], for fields that the document declares as signed 64-bit numbers.
pub(crate) fn optional_int64<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    let number: Option<i64> = optional(deserializer)?;
    Ok(number.map(i64::cast_unsigned))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    #[derive(Deserialize)]
    struct Body {
        #[serde(default, deserialize_with = "super::optional")]
        count: Option<u32>,
    }

    #[test]
    fn a_whole_number_may_be_written_with_a_point() {
        for (text, count) in [
            ("{}", None),
            ("{\"count\":null}", None),
            ("{\"count\":60}", Some(60)),
            ("{\"count\":60.0}", Some(60)),
            ("{\"count\":6e1}", Some(60)),
        ] {
            let body: Body = serde_json::from_str(text).unwrap();
            assert_eq!(body.count, count, "{text}");
        }
        for text in ["60.5", "-1", "-1.0", "4294967296", "1e300", "\"60\""] {
            let body = format!("{{\"count\":{text}}}");
            assert!(serde_json::from_str::<Body>(&body).is_err(), "{text}");
        }
    }
}
