//! Values that are bound to statements; null is one of them.
#![expect(
    clippy::unnecessary_wraps,
    reason = "each is bound beside others that may be null"
)]

use scylla::value::CqlValue;

/// A value that is bound to a statement.
pub(crate) type BoundValue = Option<CqlValue>;

pub(crate) const fn int(number: u32) -> BoundValue {
    Some(CqlValue::Int(number.cast_signed()))
}

pub(crate) const fn small(number: u16) -> BoundValue {
    Some(CqlValue::SmallInt(number.cast_signed()))
}

pub(crate) const fn big(number: u64) -> BoundValue {
    Some(CqlValue::BigInt(number.cast_signed()))
}

pub(crate) fn blob(bytes: impl Into<Vec<u8>>) -> BoundValue {
    Some(CqlValue::Blob(bytes.into()))
}
