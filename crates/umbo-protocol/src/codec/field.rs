//! Fields: how a type is written and read, and lists of fields and kinds that are stated once for both directions.
//!
//! The rows of gets and of pages are written by hand, next to these: `rows`.

use std::sync::Arc;

use bytes::Bytes;
use umbo_types::{Key, NamespaceId, PartitionKey, ShardId, Timestamp, Version, limits};

use crate::error::DecodeError;
use crate::version::ProtocolVersion;
use crate::wire::{
    Reader, bad, put_bytes, put_fixed, put_nested, put_optional, put_optional_varint, put_varint,
};

/// A value on the wire.
pub(crate) trait Field: Sized {
    /// Fewest bytes that it takes.
    const LEN_MIN: usize = 1;
    /// Most of them in a list.
    const COUNT_MAX: usize = usize::MAX;

    /// Appends the value.
    fn put(&self, out: &mut Vec<u8>);

    /// Reads a value, which errors call `name`.
    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError>;

    /// Appends the value as an optional field.
    fn put_tagged(&self, out: &mut Vec<u8>, tag: u8) {
        out.push(tag);
        put_nested(out, |out| self.put(out));
    }

    /// Reads the value of an optional field.
    fn read_tagged(mut field: Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
        Self::read(&mut field, name)
    }
}

/// A message with optional fields.
pub(crate) trait OptionalFields {
    /// Appends the optional fields that say something.
    fn put_optional_fields(&self, out: &mut Vec<u8>);

    /// Takes over an optional field. Fails if this version does not know the field and must not ignore it.
    fn set_optional(&mut self, tag: u8, field: Reader<'_>) -> Result<(), DecodeError>;

    /// Reads all optional fields of a message.
    fn read_optional_fields(&mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        while let Some((tag, field)) = reader.optional()? {
            self.set_optional(tag, field)?;
        }
        Ok(())
    }
}

macro_rules! numbers {
    ($($number:ty),+) => {$(
        impl Field for $number {
            fn put(&self, out: &mut Vec<u8>) {
                put_varint(out, (*self).into());
            }

            fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
                let number = reader.varint()?;
                number.try_into().map_err(|_| bad(name, &number))
            }

            fn put_tagged(&self, out: &mut Vec<u8>, tag: u8) {
                put_optional_varint(out, tag, (*self).into());
            }
        }
    )+};
}

macro_rules! ids {
    ($($id:ident),+) => {$(
        impl Field for $id {
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }

            fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
                Ok(Self(Field::read(reader, name)?))
            }

            fn put_tagged(&self, out: &mut Vec<u8>, tag: u8) {
                self.0.put_tagged(out, tag);
            }
        }
    )+};
}

numbers!(u64, u32, u16);
ids!(NamespaceId, ProtocolVersion, ShardId, Timestamp);

/// Lists the fields of a type in the order of the wire. `as` names another form: a number of eight bytes (`fixed`), a
/// number above 0 (`positive`), a message with the value or nothing (`option`). The fields after `;` are not on the wire.
macro_rules! fields {
    ($type:ident { $($field:ident $(as $form:ident)?),+ $(; $($rest:tt)+)? }) => {
        impl $crate::codec::field::Field for $type {
            const LEN_MIN: usize = [$(stringify!($field)),+].len();

            fn put(&self, out: &mut Vec<u8>) {
                $($crate::codec::field::fields!(@put out, self.$field $(, $form)?);)+
            }

            fn read(
                reader: &mut $crate::wire::Reader<'_>,
                _: &'static str,
            ) -> Result<Self, $crate::error::DecodeError> {
                Ok(Self {
                    $($field: $crate::codec::field::fields!(@read reader, $field $(, $form)?),)+
                    $($($rest)+)?
                })
            }
        }
    };
    (@put $out:ident, $value:expr) => { $crate::codec::field::Field::put(&$value, $out) };
    (@put $out:ident, $value:expr, fixed) => { $crate::wire::put_fixed($out, $value) };
    (@put $out:ident, $value:expr, positive) => { $crate::codec::field::fields!(@put $out, $value) };
    (@put $out:ident, $value:expr, option) => { $crate::codec::field::put_option($out, $value.as_ref()) };
    (@read $reader:ident, $field:ident) => {
        $crate::codec::field::Field::read($reader, stringify!($field))?
    };
    (@read $reader:ident, $field:ident, fixed) => { $reader.fixed()? };
    (@read $reader:ident, $field:ident, positive) => {
        $crate::codec::field::read_positive($reader, stringify!($field))?
    };
    (@read $reader:ident, $field:ident, option) => {
        $crate::codec::field::option($reader, stringify!($field))?
    };
}
pub(crate) use fields;

/// Lists the optional fields of a message with their tags, in the order of the wire. The fields are
/// options (`option`), always sent (`always`), or left out if they are 0.
macro_rules! optional_fields {
    ($type:ident { $($tag:expr => $field:ident $(as $option:ident)?),+ $(,)? }) => {
        impl $crate::codec::field::OptionalFields for $type {
            fn put_optional_fields(&self, out: &mut Vec<u8>) {
                $($crate::codec::field::put_maybe(
                    out,
                    $tag,
                    $crate::codec::field::optional_fields!(@get self.$field $(, $option)?),
                );)+
            }

            fn set_optional(
                &mut self,
                tag: u8,
                field: $crate::wire::Reader<'_>,
            ) -> Result<(), $crate::error::DecodeError> {
                $(if tag == $tag {
                    let value = $crate::codec::field::Field::read_tagged(field, stringify!($field))?;
                    self.$field = $crate::codec::field::optional_fields!(@set value $(, $option)?);
                    return Ok(());
                })+
                field.ignored(tag)
            }
        }
    };
    (@get $value:expr) => { ($value > 0).then_some(&$value) };
    (@get $value:expr, always) => { Some(&$value) };
    (@get $value:expr, option) => { $value.as_ref() };
    (@set $value:ident) => { $value };
    (@set $value:ident, always) => { $value };
    (@set $value:ident, option) => { Some($value) };
}
pub(crate) use optional_fields;

/// Lists the kinds of a message with their fields. The fields of the kinds `by hand` are written and read elsewhere.
macro_rules! kinds {
    (
        $type:ident { $($kind:literal => $variant:ident $(($($field:ident),+))?),+ $(,)? }
        by hand { $($other_kind:literal => $other:ident),+ }
    ) => {
        impl $type {
            /// Returns the number of the kind.
            pub(super) const fn kind(&self) -> u8 {
                match self {
                    $(Self::$variant { .. } => $kind,)+
                    $(Self::$other { .. } => $other_kind,)+
                }
            }

            /// Appends the fields of the kind.
            pub(super) fn put_fields(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant $(($($field),+))? => {
                        $($($crate::codec::field::Field::put($field, out);)+)?
                    })+
                    $(Self::$other { .. } => {})+
                }
            }

            /// Reads the fields of a kind.
            pub(super) fn read_fields(
                kind: u8,
                reader: &mut $crate::wire::Reader<'_>,
            ) -> Result<Self, $crate::error::DecodeError> {
                Ok(match kind {
                    $($kind => Self::$variant $((
                        $($crate::codec::field::Field::read(reader, stringify!($field))?),+
                    ))?,)+
                    _ => return Err(reader.unknown_kind()),
                })
            }
        }
    };
}
pub(crate) use kinds;

/// Appends an optional field if there is a value.
pub(super) fn put_maybe<T: Field>(out: &mut Vec<u8>, tag: u8, value: Option<&T>) {
    if let Some(value) = value {
        value.put_tagged(out, tag);
    }
}

/// The tag of the only field of a message with at most one.
const ONLY: u8 = 1;

/// Appends a message with a value or nothing.
pub(super) fn put_option<T: Field>(out: &mut Vec<u8>, value: Option<&T>) {
    put_nested(out, |out| put_maybe(out, ONLY, value));
}

/// Reads a message with a value or nothing.
pub(super) fn option<T: Field>(
    reader: &mut Reader<'_>,
    name: &'static str,
) -> Result<Option<T>, DecodeError> {
    let (mut fields, mut value) = (reader.nested()?, None);
    while let Some((tag, field)) = fields.optional()? {
        match tag {
            ONLY => value = Some(T::read_tagged(field, name)?),
            tag => field.ignored(tag)?,
        }
    }
    Ok(value)
}

/// Reads a number above 0.
pub(super) fn read_positive(
    reader: &mut Reader<'_>,
    name: &'static str,
) -> Result<u32, DecodeError> {
    match u32::read(reader, name)? {
        0 => Err(bad(name, &0)),
        number => Ok(number),
    }
}

impl Field for u8 {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }

    fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        reader.byte()
    }
}

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push((*self).into());
    }

    fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        Ok(reader.byte()? > 0)
    }
}

impl Field for Version {
    const LEN_MIN: usize = 8;

    fn put(&self, out: &mut Vec<u8>) {
        put_fixed(out, self.0);
    }

    fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        reader.fixed().map(Self)
    }

    fn put_tagged(&self, out: &mut Vec<u8>, tag: u8) {
        put_optional(out, tag, &self.0.to_le_bytes());
    }
}

/// As an optional field, the bytes are the whole field, and are copied out of the frame.
impl Field for Bytes {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self);
    }

    fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        reader.shared()
    }

    fn put_tagged(&self, out: &mut Vec<u8>, tag: u8) {
        put_optional(out, tag, self);
    }

    fn read_tagged(mut field: Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        let len = field.left();
        field.raw(len).map(Self::copy_from_slice)
    }
}

impl Field for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.as_bytes());
    }

    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
        let bytes = reader.slice()?;
        let text = std::str::from_utf8(bytes).map_err(|error| bad(name, &error))?;
        Ok(text.to_owned())
    }
}

impl Field for PartitionKey {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.as_bytes());
    }

    fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        Self::new(reader.shared()?).map_err(|error| bad("partition", &error))
    }
}

/// A key shares the memory of its frame; as an optional field it may be kept for long, and is copied if it is small.
impl Field for Key {
    const LEN_MIN: usize = 3;
    const COUNT_MAX: usize = limits::MULTI_GET_KEYS_MAX;

    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.partition.as_bytes());
        put_bytes(out, self.sort.as_bytes());
    }

    fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        let partition = reader.shared()?;
        Self::new(partition, reader.shared()?).map_err(|error| bad("key", &error))
    }

    fn read_tagged(mut field: Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        let partition = field.owned()?;
        Self::new(partition, field.owned()?).map_err(|error| bad("key", &error))
    }
}

/// A list: the number of its items, then the items.
impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        for item in self {
            item.put(out);
        }
    }

    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
        let count = reader.count(name, T::LEN_MIN)?;
        if count > T::COUNT_MAX {
            return Err(bad(name, &count));
        }
        (0..count).map(|_| T::read(reader, name)).collect()
    }
}

impl<T: Field> Field for Arc<T> {
    fn put(&self, out: &mut Vec<u8>) {
        T::put(self, out);
    }

    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
        T::read(reader, name).map(Self::new)
    }
}
