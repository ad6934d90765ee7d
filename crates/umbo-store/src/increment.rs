//! Increments: the arithmetic that every engine does inside its commit.
//!
//! The value is the decimal text of a signed 64-bit number. An increment is a change of the contract, and not a
//! read with a conditional put above it, because many writers of one counter would make one another repeat, and
//! because a repetition must be recognised in the commit that counts.

use bytes::Bytes;
use umbo_types::{Timestamp, Value};

use crate::error::WriteError;

/// Media type of a row that an increment creates.
pub const NUMBER_TYPE: &str = "text/plain";
/// Longest decimal text of a number, in bytes.
const NUMBER_LEN_MAX: usize = 20;

/// The part of a visible row that an increment needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterRow {
    /// The number, or `None` if the value is not a number.
    pub number: Option<i64>,
    /// Media type, which stays.
    pub content_type: Bytes,
    /// Expiry, which stays unless the increment names another.
    pub expires_at: Option<Timestamp>,
}

impl CounterRow {
    /// Reads the counter of a row.
    pub fn of(value: &Value, expires_at: Option<Timestamp>) -> Self {
        Self {
            number: number_of(&value.bytes, &value.content_encoding),
            content_type: value.content_type.clone(),
            expires_at,
        }
    }
}

/// Returns the number of a value: decimal digits without leading zeros, after `-` if it is negative. Returns `None` if
/// the value is something else or has a content encoding.
pub fn number_of(value: &[u8], content_encoding: &[u8]) -> Option<i64> {
    if !content_encoding.is_empty() || value.len() > NUMBER_LEN_MAX {
        return None;
    }
    let text = std::str::from_utf8(value).ok()?;
    let number: i64 = text.parse().ok()?;
    // `parse` takes "+1", "007" and "-0" too. An increment by 0 would change their text.
    (number.to_string() == text).then_some(number)
}

/// Returns the new number with the value and expiry of the row that holds it. `current` is the visible row, and
/// `expires_at` the expiry that the increment sets. Without it, an existing row keeps its expiry and a new row gets
/// `default_expiry`.
pub fn increment(
    current: Option<&CounterRow>,
    by: i64,
    expires_at: Option<Timestamp>,
    default_expiry: Option<Timestamp>,
) -> Result<(i64, Value, Option<Timestamp>), WriteError> {
    let before = match current {
        None => 0,
        Some(counter) => counter.number.ok_or(WriteError::NotANumber)?,
    };
    let number = before
        .checked_add(by)
        .ok_or(WriteError::IncrementOverflow { current: before })?;
    let value = Value {
        bytes: number.to_string().into(),
        content_type: current.map_or(Bytes::from_static(NUMBER_TYPE.as_bytes()), |counter| {
            counter.content_type.clone()
        }),
        ..Value::default()
    };
    let kept = current.map_or(default_expiry, |counter| counter.expires_at);
    Ok((number, value, expires_at.or(kept)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_decimal_numbers_count() {
        for (text, number) in [
            ("0", Some(0)),
            ("-5", Some(-5)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("", None),
            ("+1", None),
            ("-0", None),
            ("007", None),
            (" 1", None),
            ("1\n", None),
            ("1.0", None),
            ("0x1", None),
            ("123456789012345678901", None),
        ] {
            assert_eq!(number_of(text.as_bytes(), b""), number, "{text:?}");
            assert_eq!(number_of(text.as_bytes(), b"gzip"), None);
        }
    }

    #[test]
    fn overflow_is_refused_at_both_ends() {
        for (before, by) in [(i64::MAX, 1), (i64::MIN, -1), (-2, i64::MIN)] {
            let counter = CounterRow {
                number: Some(before),
                content_type: Bytes::new(),
                expires_at: None,
            };
            let overflow = WriteError::IncrementOverflow { current: before };
            assert_eq!(increment(Some(&counter), by, None, None), Err(overflow));
        }
    }
}
