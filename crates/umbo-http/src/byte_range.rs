//! A part of a value: `Range` and `Content-Range` (RFC 9110, section 14), one range of bytes.
//!
//! Owns their grammar and how a range is laid over a value of known length. A field that is not one range of bytes
//! (another unit, several ranges, bounds that contradict each other) is no error: it is ignored, and the whole
//! value is the answer.

use http::HeaderValue;

/// One range as asked for, before the length of the value is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskedRange {
    /// From this byte to the last one, or to `last`, which is included.
    From {
        /// First byte, counted from 0.
        first: u64,
        /// Last byte, included. `None` is the last byte of the value, and so is a number beyond it.
        last: Option<u64>,
    },
    /// The last bytes, at most this many.
    Suffix(u64),
}

/// A part of a value: at least one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte, counted from 0.
    pub first: u64,
    /// Last byte, included.
    pub last: u64,
    /// Length of the whole value.
    pub whole_len: u64,
}

impl AskedRange {
    /// Reads `Range`, or returns `None` if it is not one range of bytes.
    pub fn parse(field: &HeaderValue) -> Option<Self> {
        let text = field.to_str().ok()?.trim();
        let (unit, range) = text.split_once('=')?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (first, last) = range.trim().split_once('-')?;
        if first.is_empty() {
            return position(last).map(Self::Suffix);
        }
        let first = position(first)?;
        let last = match last {
            "" => None,
            last => Some(position(last)?),
        };
        let is_range = last.is_none_or(|last| first <= last);
        is_range.then_some(Self::From { first, last })
    }

    /// Returns the part of a value of this length, or `None` if the value has no byte of the range.
    pub fn of(self, whole_len: u64) -> Option<ByteRange> {
        let end = whole_len.checked_sub(1)?;
        let (first, last) = match self {
            Self::From { first, last } => (first, last.map_or(end, |last| last.min(end))),
            Self::Suffix(0) => return None,
            Self::Suffix(len) => (whole_len.saturating_sub(len), end),
        };
        (first <= end).then_some(ByteRange {
            first,
            last,
            whole_len,
        })
    }
}

impl ByteRange {
    /// Returns the number of bytes, at least 1.
    pub const fn part_len(self) -> u64 {
        self.last - self.first + 1
    }

    /// Returns the `Content-Range` of an answer with the part.
    pub fn to_header(self) -> HeaderValue {
        let text = format!("bytes {}-{}/{}", self.first, self.last, self.whole_len);
        HeaderValue::try_from(text).expect("digits and signs are a header value")
    }
}

/// Returns the `Content-Range` of a refusal: how long the value is.
pub(crate) fn unsatisfied(whole_len: u64) -> HeaderValue {
    let text = format!("bytes */{whole_len}");
    HeaderValue::try_from(text).expect("digits and signs are a header value")
}

/// Reads a position; a number beyond `u64` is beyond any value too.
fn position(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IGNORED: &str = "it is ignored";
    const UNSATISFIED: &str = "no byte is of it";

    fn part(field: &str, len: u64) -> Result<(u64, u64), &'static str> {
        let asked = AskedRange::parse(&HeaderValue::from_str(field).unwrap()).ok_or(IGNORED)?;
        let part = asked.of(len).ok_or(UNSATISFIED)?;
        Ok((part.first, part.last))
    }

    #[test]
    fn one_range_is_read_and_anything_else_is_ignored() {
        for (field, expected) in [
            ("bytes=0-0", Some((0, 0))),
            ("bytes=0-4", Some((0, 4))),
            ("Bytes=2-", Some((2, 9))),
            ("bytes= 2-99", Some((2, 9))),
            ("bytes=9-9", Some((9, 9))),
            ("bytes=-3", Some((7, 9))),
            ("bytes=-99", Some((0, 9))),
            ("bytes=3-99999999999999999999999", Some((3, 9))),
            ("bytes=10-", None),
            ("bytes=99999999999999999999999-", None),
            ("bytes=-0", None),
        ] {
            assert_eq!(part(field, 10).ok(), expected, "{field}");
            assert_ne!(part(field, 10), Err(IGNORED), "{field}");
        }
        for ignored in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=1",
            "bytes=5-2",
            "bytes=0-1,3-4",
            "rows=0-1",
            "bytes=+1-2",
            "bytes=0x1-2",
            "bytes=1 - 2",
        ] {
            assert_eq!(part(ignored, 10), Err(IGNORED), "{ignored}");
        }
        for of_nothing in ["bytes=0-", "bytes=0-0", "bytes=-1"] {
            assert_eq!(part(of_nothing, 0), Err(UNSATISFIED), "{of_nothing}");
        }
    }

    proptest! {
        #[test]
        fn a_part_lies_within_its_value(field in "bytes=[0-9]{0,3}-[0-9]{0,3}", len in 0_u64..300) {
            if let Ok((first, last)) = part(&field, len) {
                prop_assert!(first <= last && last < len);
            }
        }

        #[test]
        fn any_field_is_read_or_ignored(field in "[ -~]{0,40}") {
            let _ = part(&field, 7);
        }
    }
}
