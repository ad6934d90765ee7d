//! The units of policies, and amounts of them as exact integers.
//!
//! Buckets count in *atoms*: micro-RU for request units, millionths for requests, reads and writes,
//! bytes for bytes. An amount that is not a whole number of atoms is refused, never rounded.

use std::fmt;
use std::str::FromStr;

use umbo_types::DecimalError;
use umbo_types::decimal::{self, MILLIONTHS};

use crate::known_name::{self, UnknownName};

/// Suffixes of sizes, and the bytes they stand for.
const SIZES: [(&str, u64); 5] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// The unit that a policy counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unit {
    /// Request units.
    Ru,
    /// Requests of any operation.
    Requests,
    /// Reads: 1 for a get, range or scan, and 1 for each key of a multi-get.
    Reads,
    /// Rows written or removed.
    Writes,
    /// Bytes read from the store.
    ReadBytes,
    /// Bytes written to the store.
    WriteBytes,
    /// Bytes read and written.
    Bytes,
}

impl Unit {
    /// All units, in the order of their declaration.
    pub const ALL: [Self; 7] = [
        Self::Ru,
        Self::Requests,
        Self::Reads,
        Self::Writes,
        Self::ReadBytes,
        Self::WriteBytes,
        Self::Bytes,
    ];

    /// Returns the name used in policies.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ru => "ru",
            Self::Requests => "requests",
            Self::Reads => "reads",
            Self::Writes => "writes",
            Self::ReadBytes => "read-bytes",
            Self::WriteBytes => "write-bytes",
            Self::Bytes => "bytes",
        }
    }

    /// Returns whether the unit counts bytes, which have no fractions.
    pub const fn is_bytes(self) -> bool {
        matches!(self, Self::ReadBytes | Self::WriteBytes | Self::Bytes)
    }

    /// Returns the atoms in one unit.
    pub const fn atoms_per_unit(self) -> u64 {
        if self.is_bytes() { 1 } else { MILLIONTHS }
    }

    /// Returns an amount of atoms in units, for people and graphs.
    #[expect(clippy::cast_precision_loss, reason = "a figure for people and graphs")]
    pub fn as_f64(self, atoms: u64) -> f64 {
        atoms as f64 / self.atoms_per_unit() as f64
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Unit {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        known_name::find("unit", text, Self::ALL, Self::as_str)
    }
}

/// Why a text is not an amount of a unit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// The text is not a number that can be held exactly.
    #[error("{0}")]
    Decimal(#[from] DecimalError),
    /// The suffix is not a size.
    #[error("'{0}' does not end in a size unit: B, KiB, MiB, GiB or TiB")]
    UnknownSize(String),
    /// The amount is a size, but the unit does not count bytes.
    #[error("'{text}' is a size, but {unit} are not bytes")]
    SizeOfCount {
        /// As written.
        text: String,
        /// The unit of the amount.
        unit: Unit,
    },
    /// A part of a byte.
    #[error("'{0}' is not a whole number of bytes")]
    PartOfByte(String),
}

/// Reads an amount as atoms: `1000`, `0.5`, and of bytes also `64KiB`, `2MiB` or `1.5GiB`.
///
/// Zero is valid. At most 2⁶⁴ − 1 atoms; narrower bounds are checked elsewhere.
pub fn parse_amount(unit: Unit, text: &str) -> Result<u64, AmountError> {
    if !unit.is_bytes() {
        let is_size = SIZES.iter().any(|(suffix, _)| {
            let number = text.strip_suffix(suffix);
            number.is_some_and(|number| decimal::parse_millionths(number).is_ok())
        });
        if is_size {
            let text = text.to_owned();
            return Err(AmountError::SizeOfCount { text, unit });
        }
        return Ok(decimal::parse_millionths(text)?);
    }
    let is_suffix = |letter: char| letter.is_ascii_alphabetic();
    let number = text.trim_end_matches(is_suffix);
    let suffix = &text[number.len()..];
    if number.is_empty() {
        return Err(DecimalError::NotANumber(text.to_owned()).into());
    }
    let size = SIZES
        .iter()
        .find(|(name, _)| *name == suffix)
        .map(|(_, size)| *size);
    let Some(size) = size.or_else(|| suffix.is_empty().then_some(1)) else {
        // An invalid number is reported before a wrong suffix.
        decimal::parse_millionths(number)?;
        return Err(AmountError::UnknownSize(text.to_owned()));
    };
    let bytes = if number.contains('.') {
        let millionths = u128::from(decimal::parse_millionths(number)?) * u128::from(size);
        if millionths % u128::from(MILLIONTHS) != 0 {
            return Err(AmountError::PartOfByte(text.to_owned()));
        }
        u64::try_from(millionths / u128::from(MILLIONTHS)).ok()
    } else {
        decimal::parse_whole(number)?.checked_mul(size)
    };
    bytes.ok_or_else(|| DecimalError::TooLarge(text.to_owned()).into())
}

/// Writes an amount as the exact decimal that [`parse_amount`] reads as the same atoms.
pub fn format_amount(unit: Unit, atoms: u64) -> String {
    if unit.is_bytes() {
        return atoms.to_string();
    }
    let mut text = String::new();
    decimal::write_millionths(atoms, &mut text).expect("a text takes whatever is written to it");
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn amounts_are_exact() {
        let cases = [
            (Unit::Ru, "1000", 1_000_000_000),
            (Unit::Requests, "0.1", 100_000),
            (Unit::Reads, "0.000001", 1),
            (Unit::Writes, "0", 0),
            (Unit::Bytes, "1000", 1_000),
            (Unit::Bytes, "18446744073709551615", u64::MAX),
            (Unit::Bytes, "1.000", 1),
            (Unit::Bytes, "7B", 7),
            (Unit::ReadBytes, "64KiB", 65_536),
            (Unit::WriteBytes, "2MiB", 2_097_152),
            (Unit::Bytes, "1.5GiB", 1_610_612_736),
            (Unit::Bytes, "0.5KiB", 512),
            (Unit::Bytes, "1TiB", 1 << 40),
        ];
        for (unit, text, atoms) in cases {
            assert_eq!(parse_amount(unit, text), Ok(atoms), "{unit} {text}");
        }
    }

    #[test]
    fn what_is_no_amount_is_refused_by_what_is_wrong_with_it() {
        let cases = [
            (Unit::Ru, "-1", "'-1' is negative"),
            (Unit::Ru, "NaN", "'NaN' is not a number like 1000 or 0.5"),
            (Unit::Ru, "inf", "'inf' is not a number like 1000 or 0.5"),
            (Unit::Ru, "1e3", "'1e3' is not a number like 1000 or 0.5"),
            (
                Unit::Ru,
                "0.1234567",
                "'0.1234567' has more than 6 digits after the point",
            ),
            (
                Unit::Ru,
                "99999999999999999999",
                "'99999999999999999999' is too large",
            ),
            (
                Unit::Requests,
                "64KiB",
                "'64KiB' is a size, but requests are not bytes",
            ),
            (
                Unit::Requests,
                "5KB",
                "'5KB' is not a number like 1000 or 0.5",
            ),
            (Unit::Ru, "KiB", "'KiB' is not a number like 1000 or 0.5"),
            (Unit::Bytes, "", "'' is not a number like 1000 or 0.5"),
            (Unit::Bytes, "KiB", "'KiB' is not a number like 1000 or 0.5"),
            (Unit::Bytes, "-5", "'-5' is negative"),
            (Unit::Bytes, "NaN", "'NaN' is not a number like 1000 or 0.5"),
            (Unit::Bytes, "0.5", "'0.5' is not a whole number of bytes"),
            (
                Unit::Bytes,
                "64kb",
                "'64kb' does not end in a size unit: B, KiB, MiB, GiB or TiB",
            ),
            (Unit::Bytes, "1e3", "'1e3' is not a number like 1000 or 0.5"),
            (Unit::Bytes, "16777216TiB", "'16777216TiB' is too large"),
            (
                Unit::Bytes,
                "18446744073709551616",
                "'18446744073709551616' is too large",
            ),
            (Unit::Bytes, "16777216.0TiB", "'16777216.0TiB' is too large"),
        ];
        for (unit, text, message) in cases {
            let error = parse_amount(unit, text).unwrap_err();
            assert_eq!(error.to_string(), message, "{unit} {text}");
        }
    }

    #[test]
    fn names_read_back() {
        for unit in Unit::ALL {
            assert_eq!(unit.as_str().parse(), Ok(unit));
        }
        assert_eq!("byte".parse::<Unit>().unwrap_err().nearest, Some("bytes"));
    }

    fn any_unit() -> impl Strategy<Value = Unit> {
        prop::sample::select(Unit::ALL.to_vec())
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(unit in any_unit(), atoms in prop_oneof![0..5_000_000_u64, any::<u64>()]) {
            prop_assert_eq!(parse_amount(unit, &format_amount(unit, atoms)), Ok(atoms));
        }

        #[test]
        fn any_text_is_read_exactly_or_refused(unit in any_unit(), text in "[-+0-9.]{0,12}[eKMGTiBb]{0,3}") {
            if let Ok(atoms) = parse_amount(unit, &text) {
                prop_assert_eq!(parse_amount(unit, &format_amount(unit, atoms)), Ok(atoms));
            }
        }

        /// The slow twin: digits as a fraction of two 128-bit integers.
        #[test]
        fn sizes_are_exact(number in 0..1_000_000_u64, decimals in 0..1_000_u64, size in 0..SIZES.len()) {
            let (suffix, bytes) = SIZES[size];
            let exact = (u128::from(number) * 1_000 + u128::from(decimals)) * u128::from(bytes);
            let read = parse_amount(Unit::Bytes, &format!("{number}.{decimals:03}{suffix}"));
            let is_whole = exact % 1_000 == 0;
            prop_assert_eq!(read.is_ok(), is_whole && exact / 1_000 <= u128::from(u64::MAX));
            if let Ok(atoms) = read {
                prop_assert_eq!(u128::from(atoms), exact / 1_000);
            }
        }
    }
}
