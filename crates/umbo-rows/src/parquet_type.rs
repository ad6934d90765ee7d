//! Types of Parquet columns, and the cells that their values become.

use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type as PhysicalType};
use parquet::data_type::{ByteArray, FixedLenByteArray, Int96};
use parquet::schema::types::Type;

use crate::error::RowsError;
use crate::table::Cell;

/// Types of keys.
const KEYS: &str =
    "text, binary, a whole number, a decimal, a UUID, a date, a time or a time stamp";
/// Types of other columns.
const VALUES: &str = "text, binary, a number, a boolean, a UUID, a date, a time, a time stamp, or a list, map or group of them";
const DAY_SECONDS: i64 = 86_400;
/// Most digits of a decimal, which 16 bytes can hold; other engines have no more.
const DECIMAL_DIGITS_MAX: i32 = 38;
/// The first day of 1970 in the Julian count, as INT96 counts days.
const JULIAN_EPOCH_DAY: i64 = 2_440_588;

/// How values of a column become cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    /// Text, as it is.
    Text,
    /// Bytes, as they are.
    Binary,
    /// 16 bytes as `8-4-4-4-12` hexadecimal digits.
    Uuid,
    /// A number or boolean as JSON has it.
    Plain,
    /// A whole number without a sign.
    Unsigned,
    /// A whole number with a point before its last digits.
    Decimal {
        /// Digits after the point.
        scale: usize,
    },
    /// Days since the epoch, as `YYYY-MM-DD`.
    Date,
    /// Parts of a second since midnight, as `hh:mm:ss.fff`.
    Time {
        /// Digits of a part, which is a power of ten.
        digits: usize,
    },
    /// Parts of a second since the epoch, as `YYYY-MM-DDThh:mm:ss.fffZ`; local time has no `Z`.
    Timestamp {
        /// Digits of a part, which is a power of ten.
        digits: usize,
        /// Whether it is an instant rather than a local time.
        is_utc: bool,
    },
}

impl ColumnKind {
    /// Makes the error of a column whose type is not read.
    pub(crate) fn refusal(field: &Type, is_key: bool) -> RowsError {
        RowsError::UnsupportedType {
            column: field.name().to_owned(),
            found: name(field),
            role: if is_key { "a key" } else { "a value" },
            expected: if is_key { KEYS } else { VALUES },
        }
    }

    /// Returns how the values of a leaf become cells, or refuses its type by name.
    pub(crate) fn of_leaf(field: &Type, is_key: bool) -> Result<Self, RowsError> {
        let refuse = || Self::refusal(field, is_key);
        let info = field.get_basic_info();
        let physical = field.get_physical_type();
        let is_decimal = matches!(info.logical_type_ref(), Some(LogicalType::Decimal(_)))
            || info.converted_type() == ConvertedType::DECIMAL;
        let is_null = matches!(info.logical_type_ref(), Some(LogicalType::Unknown));
        let kind = match usize::try_from(field.get_scale()) {
            Ok(scale) if is_decimal && field.get_precision() <= DECIMAL_DIGITS_MAX => {
                Some(Self::Decimal { scale })
            }
            _ if is_decimal => None,
            // A column of nulls only; its type does not matter.
            _ if is_null => Some(Self::Plain),
            _ => Self::of_primitive(physical, info.logical_type_ref(), info.converted_type()),
        };
        let is_float = matches!(
            physical,
            PhysicalType::FLOAT | PhysicalType::DOUBLE | PhysicalType::BOOLEAN
        );
        kind.filter(|_| !(is_key && (is_float || is_null)))
            .ok_or_else(refuse)
    }

    fn of_primitive(
        physical: PhysicalType,
        logical: Option<&LogicalType>,
        converted: ConvertedType,
    ) -> Option<Self> {
        Some(match (physical, logical, converted) {
            (PhysicalType::INT32 | PhysicalType::INT64, Some(logical), _) => {
                return Self::of_logical_integer(physical, logical);
            }
            (PhysicalType::INT32 | PhysicalType::INT64, None, converted) => {
                return Self::of_converted_integer(physical, converted);
            }
            (PhysicalType::BOOLEAN | PhysicalType::FLOAT | PhysicalType::DOUBLE, None, _) => {
                Self::Plain
            }
            (
                PhysicalType::BYTE_ARRAY,
                Some(LogicalType::String | LogicalType::Enum | LogicalType::Json),
                _,
            )
            | (
                PhysicalType::BYTE_ARRAY,
                None,
                ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON,
            ) => Self::Text,
            (PhysicalType::INT96, _, _) => Self::timestamp(TimeUnit::NANOS, true),
            (PhysicalType::BYTE_ARRAY, Some(LogicalType::Bson), _)
            | (PhysicalType::BYTE_ARRAY, None, ConvertedType::NONE | ConvertedType::BSON)
            | (PhysicalType::FIXED_LEN_BYTE_ARRAY, None, ConvertedType::NONE) => Self::Binary,
            (PhysicalType::FIXED_LEN_BYTE_ARRAY, Some(LogicalType::Uuid), _) => Self::Uuid,
            _ => return None,
        })
    }

    fn of_logical_integer(physical: PhysicalType, logical: &LogicalType) -> Option<Self> {
        Some(match (physical, logical) {
            (_, LogicalType::Time(of)) => Self::time(of.unit),
            (_, LogicalType::Integer(int)) if int.is_signed => Self::Plain,
            (_, LogicalType::Integer(_)) => Self::Unsigned,
            (PhysicalType::INT32, LogicalType::Date) => Self::Date,
            (PhysicalType::INT64, LogicalType::Timestamp(time)) => {
                Self::timestamp(time.unit, time.is_adjusted_to_u_t_c)
            }
            _ => return None,
        })
    }

    /// Returns the kind of a column of a file that names only types of earlier versions of the format.
    fn of_converted_integer(physical: PhysicalType, converted: ConvertedType) -> Option<Self> {
        Some(match (physical, converted) {
            (PhysicalType::INT32, ConvertedType::TIME_MILLIS) => Self::time(TimeUnit::MILLIS),
            (PhysicalType::INT32, ConvertedType::DATE) => Self::Date,
            (PhysicalType::INT64, ConvertedType::TIME_MICROS) => Self::time(TimeUnit::MICROS),
            (PhysicalType::INT64, ConvertedType::TIMESTAMP_MILLIS) => {
                Self::timestamp(TimeUnit::MILLIS, true)
            }
            (PhysicalType::INT64, ConvertedType::TIMESTAMP_MICROS) => {
                Self::timestamp(TimeUnit::MICROS, true)
            }
            (
                _,
                ConvertedType::UINT_8
                | ConvertedType::UINT_16
                | ConvertedType::UINT_32
                | ConvertedType::UINT_64,
            ) => Self::Unsigned,
            (
                _,
                ConvertedType::NONE
                | ConvertedType::INT_8
                | ConvertedType::INT_16
                | ConvertedType::INT_32
                | ConvertedType::INT_64,
            ) => Self::Plain,
            _ => return None,
        })
    }

    const fn time(unit: TimeUnit) -> Self {
        let digits = digits(unit);
        Self::Time { digits }
    }

    const fn timestamp(unit: TimeUnit, is_utc: bool) -> Self {
        let digits = digits(unit);
        Self::Timestamp { digits, is_utc }
    }
}

/// Returns the digits of a part of a second.
const fn digits(unit: TimeUnit) -> usize {
    match unit {
        TimeUnit::MILLIS => 3,
        TimeUnit::MICROS => 6,
        TimeUnit::NANOS => 9,
    }
}

/// Divides a number of parts with this many digits into whole seconds and parts.
const fn seconds(parts: i64, digits: usize) -> (i64, i64) {
    let per_second = 10_i64.pow(digits as u32);
    (parts.div_euclid(per_second), parts.rem_euclid(per_second))
}

/// Returns the name of a type, for people.
fn name(field: &Type) -> String {
    let info = field.get_basic_info();
    if let Some(logical) = info.logical_type_ref() {
        return format!("{logical:?}");
    }
    if info.converted_type() != ConvertedType::NONE {
        return info.converted_type().to_string();
    }
    if field.is_primitive() {
        let physical = field.get_physical_type().to_string();
        let is_repeated =
            info.has_repetition() && info.repetition() == parquet::basic::Repetition::REPEATED;
        return if is_repeated {
            format!("repeated {physical}")
        } else {
            physical
        };
    }
    "group of columns".to_owned()
}

/// A value that becomes a cell.
pub(crate) trait ToCell {
    /// Makes the cell.
    fn to_cell(self, kind: ColumnKind) -> Cell;
}

impl ToCell for bool {
    fn to_cell(self, _: ColumnKind) -> Cell {
        Cell::Plain(self.to_string())
    }
}

impl ToCell for i32 {
    fn to_cell(self, kind: ColumnKind) -> Cell {
        match kind {
            ColumnKind::Unsigned => Cell::Plain(self.cast_unsigned().to_string()),
            _ => i64::from(self).to_cell(kind),
        }
    }
}

impl ToCell for i64 {
    fn to_cell(self, kind: ColumnKind) -> Cell {
        match kind {
            ColumnKind::Unsigned => Cell::Plain(self.cast_unsigned().to_string()),
            ColumnKind::Date => Cell::Text(date(self).into()),
            ColumnKind::Decimal { scale } => decimal(self.into(), scale),
            ColumnKind::Time { digits } => {
                let (seconds, part) = seconds(self, digits);
                Cell::Text(time_of_day(seconds, part, digits).into())
            }
            ColumnKind::Timestamp { digits, is_utc } => {
                let (seconds, part) = seconds(self, digits);
                time_stamp(seconds, part, digits, is_utc)
            }
            _ => Cell::Plain(self.to_string()),
        }
    }
}

impl ToCell for f32 {
    fn to_cell(self, _: ColumnKind) -> Cell {
        Cell::Plain(self.to_string())
    }
}

impl ToCell for f64 {
    fn to_cell(self, _: ColumnKind) -> Cell {
        Cell::Plain(self.to_string())
    }
}

impl ToCell for ByteArray {
    fn to_cell(self, kind: ColumnKind) -> Cell {
        let bytes = bytes::Bytes::copy_from_slice(self.data());
        match kind {
            ColumnKind::Text => Cell::Text(bytes),
            ColumnKind::Uuid if bytes.len() == 16 => {
                let digits = bytes
                    .iter()
                    .enumerate()
                    .fold(String::new(), |text, (at, byte)| {
                        let dash = if matches!(at, 4 | 6 | 8 | 10) {
                            "-"
                        } else {
                            ""
                        };
                        format!("{text}{dash}{byte:02x}")
                    });
                Cell::Text(digits.into())
            }
            ColumnKind::Decimal { scale } if bytes.len() <= 16 => {
                let sign = bytes
                    .first()
                    .map_or(0, |byte| i128::from(byte.cast_signed() >> 7));
                let number = bytes
                    .iter()
                    .fold(sign, |number, &byte| (number << 8) | i128::from(byte));
                decimal(number, scale)
            }
            _ => Cell::Binary(bytes),
        }
    }
}

impl ToCell for FixedLenByteArray {
    fn to_cell(self, kind: ColumnKind) -> Cell {
        ByteArray::from(self).to_cell(kind)
    }
}

impl ToCell for Int96 {
    fn to_cell(self, _: ColumnKind) -> Cell {
        let [low, high, day] = *self.data() else {
            return Cell::Null;
        };
        let nanos = (i64::from(high) << 32) | i64::from(low);
        let seconds = (i64::from(day) - JULIAN_EPOCH_DAY) * DAY_SECONDS;
        let (second, part) = self::seconds(nanos, 9);
        time_stamp(seconds + second, part, 9, true)
    }
}

fn decimal(number: i128, scale: usize) -> Cell {
    let (sign, digits) = (if number < 0 { "-" } else { "" }, number.unsigned_abs());
    let digits = format!("{digits:0width$}", width = scale + 1);
    let (whole, part) = digits.split_at(digits.len() - scale);
    let point = if part.is_empty() { "" } else { "." };
    Cell::Plain(format!("{sign}{whole}{point}{part}"))
}

/// Makes the cell of a number of seconds since 1970 and a part of one with this many digits.
fn time_stamp(seconds: i64, part: i64, digits: usize, is_utc: bool) -> Cell {
    let (day, second) = (
        seconds.div_euclid(DAY_SECONDS),
        seconds.rem_euclid(DAY_SECONDS),
    );
    let (date, time) = (date(day), time_of_day(second, part, digits));
    let zone = if is_utc { "Z" } else { "" };
    Cell::Text(format!("{date}T{time}{zone}").into())
}

/// Returns a number of seconds since midnight and a part of one with this many digits as `hh:mm:ss.fff`.
fn time_of_day(second: i64, part: i64, digits: usize) -> String {
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{hour:02}:{minute:02}:{second:02}.{part:0digits$}")
}

/// Returns a day as `YYYY-MM-DD`, by the algorithm `civil_from_days` of Howard Hinnant ("chrono-Compatible Low-Level
/// Date Algorithms", 2013).
fn date(day: i64) -> String {
    let day = day + 719_468;
    let (era, day_of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_instants_are_dates() {
        for (day, text) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (11_016, "2000-02-29"),
            (20_780, "2026-11-23"),
        ] {
            assert_eq!(date(day), text);
        }
        let kind = ColumnKind::Timestamp {
            digits: 6,
            is_utc: true,
        };
        let text = Cell::Text("1969-12-31T23:59:59.999999Z".into());
        assert_eq!((-1_i64).to_cell(kind), text);
        assert!(matches!(i64::MIN.to_cell(kind), Cell::Text(_)));
        let text = Cell::Text("23:59:59.999".into());
        assert_eq!(86_399_999_i64.to_cell(ColumnKind::Time { digits: 3 }), text);
    }

    #[test]
    fn a_uuid_is_text() {
        let id = FixedLenByteArray::from((0..16).collect::<Vec<u8>>());
        let text = "00010203-0405-0607-0809-0a0b0c0d0e0f";
        assert_eq!(id.to_cell(ColumnKind::Uuid), Cell::Text(text.into()));
    }
}
