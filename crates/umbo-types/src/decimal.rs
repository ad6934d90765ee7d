//! Conversion of decimal text to an exact integer of millionths, and back.
//!
//! Owns the only syntax of amounts: digits, optionally followed by a point and more digits. Deliberately has
//! no sign, exponent, infinity or rounding: an amount that cannot be represented exactly is refused.

/// Millionths in one.
pub const MILLIONTHS: u64 = 1_000_000;
/// Most digits after the point.
pub const DECIMALS_MAX: usize = 6;

/// Why a text is not an amount. Each case contains the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecimalError {
    /// Not digits with an optional point between them; also `NaN`, `inf`, exponents and the empty text.
    #[error("'{0}' is not a number like 1000 or 0.5")]
    NotANumber(String),
    /// A minus before a number.
    #[error("'{0}' is negative")]
    Negative(String),
    /// More than six digits after the point.
    #[error("'{0}' has more than 6 digits after the point")]
    TooFine(String),
    /// More millionths than 64 bits can hold.
    #[error("'{0}' is too large")]
    TooLarge(String),
}

/// Parses a number as millionths: `1.5` is 1,500,000.
///
/// Zeros at the end are allowed (`1.50000000` is valid); any other seventh digit is refused.
pub fn parse_millionths(text: &str) -> Result<u64, DecimalError> {
    let (whole, decimals) = match text.split_once('.') {
        Some((whole, decimals)) if is_digits(decimals) => (whole, decimals),
        Some(_) => return Err(not_a_number(text)),
        None => (text, ""),
    };
    if !is_digits(whole) {
        return Err(not_a_number(text));
    }
    let decimals = decimals.trim_end_matches('0');
    if decimals.len() > DECIMALS_MAX {
        return Err(DecimalError::TooFine(text.to_owned()));
    }
    let zeros = std::iter::repeat_n(b'0', DECIMALS_MAX - decimals.len());
    value(whole.bytes().chain(decimals.bytes()).chain(zeros))
        .ok_or_else(|| DecimalError::TooLarge(text.to_owned()))
}

/// Parses a number without a point.
pub fn parse_whole(text: &str) -> Result<u64, DecimalError> {
    if !is_digits(text) {
        return Err(not_a_number(text));
    }
    value(text.bytes()).ok_or_else(|| DecimalError::TooLarge(text.to_owned()))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn value(mut digits: impl Iterator<Item = u8>) -> Option<u64> {
    digits.try_fold(0_u64, |value, digit| {
        value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

fn not_a_number(text: &str) -> DecimalError {
    let rest = text
        .strip_prefix('-')
        .map(|rest| rest.split_once('.').unwrap_or((rest, "0")));
    match rest {
        Some((whole, decimals)) if is_digits(whole) && is_digits(decimals) => {
            DecimalError::Negative(text.to_owned())
        }
        _ => DecimalError::NotANumber(text.to_owned()),
    }
}

/// Formats millionths so that [`parse_millionths`] returns the same; no zeros at the end, `0` for zero.
pub fn write_millionths(millionths: u64, out: &mut impl std::fmt::Write) -> std::fmt::Result {
    let (whole, part) = (millionths / MILLIONTHS, millionths % MILLIONTHS);
    if part == 0 {
        return write!(out, "{whole}");
    }
    let (mut part, mut width) = (part, DECIMALS_MAX);
    while part.is_multiple_of(10) {
        part /= 10;
        width -= 1;
    }
    write!(out, "{whole}.{part:0width$}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(millionths: u64) -> String {
        let mut text = String::new();
        write_millionths(millionths, &mut text).unwrap();
        text
    }

    #[test]
    fn numbers_are_held_exactly() {
        let cases = [
            ("0", 0),
            ("0.1", 100_000),
            ("0.000001", 1),
            ("6", 6_000_000),
            ("007", 7_000_000),
            ("1.062744", 1_062_744),
            ("1.500000000", 1_500_000),
            ("18446744073709.551615", u64::MAX),
        ];
        for (text, millionths) in cases {
            assert_eq!(parse_millionths(text), Ok(millionths), "{text}");
        }
    }

    #[test]
    fn whole_numbers_have_no_point() {
        assert_eq!(parse_whole("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse_whole("0"), Ok(0));
        for text in ["1.0", "", "+1", "1e3"] {
            let refused = Err(DecimalError::NotANumber(text.to_owned()));
            assert_eq!(parse_whole(text), refused, "{text}");
        }
        let large = "18446744073709551616".to_owned();
        assert_eq!(parse_whole(&large), Err(DecimalError::TooLarge(large)));
    }

    #[test]
    fn what_cannot_be_held_exactly_is_refused() {
        for text in [
            "", ".", "1.", ".5", "1.2.3", "1e3", "NaN", "inf", "+1", " 1", "1_000", "1,5", "٣",
            "--1", "-", "-x",
        ] {
            let refused = Err(DecimalError::NotANumber(text.to_owned()));
            assert_eq!(parse_millionths(text), refused, "{text}");
        }
        let cases = [
            ("-1", DecimalError::Negative("-1".into())),
            ("-0.5", DecimalError::Negative("-0.5".into())),
            ("-0.0000001", DecimalError::Negative("-0.0000001".into())),
            ("0.0000001", DecimalError::TooFine("0.0000001".into())),
            (
                "18446744073709.551616",
                DecimalError::TooLarge("18446744073709.551616".into()),
            ),
            (
                "99999999999999999999999",
                DecimalError::TooLarge("99999999999999999999999".into()),
            ),
        ];
        for (text, error) in cases {
            assert_eq!(parse_millionths(text), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(millionths in prop_oneof![0..3_000_000_u64, any::<u64>()]) {
            let text = written(millionths);
            prop_assert_eq!(parse_millionths(&text), Ok(millionths));
            prop_assert!(!text.contains('.') || !text.ends_with('0'), "{}", text);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-0-9.eE+N]{0,24}") {
            if let Ok(millionths) = parse_millionths(&text) {
                prop_assert_eq!(parse_millionths(&written(millionths)), Ok(millionths));
            }
        }
    }
}
