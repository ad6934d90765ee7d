//! Rows: one, and a batch of them.

use umbo_store::{RowBatch, RowRef};
use umbo_types::{Row, StoredForm, Timestamp, Value, Version, limits};

use super::field::Field;
use crate::error::DecodeError;
use crate::wire::{
    REQUIRED_TAG, Reader, bad, put_bytes, put_fixed, put_nested, put_optional, put_optional_varint,
    put_varint,
};

/// Optional fields of a row. A dispatcher that does not know forms must not take the bytes for a plain value.
const EXPIRES_AT: u8 = 1;
const FORM: u8 = REQUIRED_TAG | 1;
/// Fewest bytes of a row of a batch: five lengths, length of the stored value, version, expiry.
const ROW_LEN_MIN: usize = 5 + 1 + 8 + 1;

impl Field for Row {
    fn put(&self, out: &mut Vec<u8>) {
        put_nested(out, |out| {
            put_fixed(out, self.version.0);
            put_bytes(out, &self.value.bytes);
            put_bytes(out, &self.value.content_type);
            put_bytes(out, &self.value.content_encoding);
            if let Some(at) = self.expires_at {
                put_optional_varint(out, EXPIRES_AT, at.0);
            }
            if self.value.form != StoredForm::Plain {
                put_optional(out, FORM, &[self.value.form.code()]);
            }
        });
    }

    fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        let mut reader = reader.nested()?;
        let version = Version(reader.fixed()?);
        let (bytes, content_type) = (reader.owned()?, reader.owned()?);
        let value = Value::new(bytes, content_type, reader.owned()?);
        let mut value = value.map_err(|error| bad("value", &error))?;
        let mut expires_at = None;
        while let Some((tag, mut field)) = reader.optional()? {
            match tag {
                EXPIRES_AT => expires_at = Some(Timestamp(field.varint()?)),
                FORM => {
                    let stored = value.in_form(form(field.byte()?)?);
                    value = stored.map_err(|error| bad("value", &error))?;
                }
                tag => field.ignored(tag)?,
            }
        }
        Ok(Self {
            value,
            version,
            expires_at,
        })
    }
}

impl Field for RowBatch {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        // The total length, so that the receiver allocates once.
        put_varint(out, self.bytes() as u64);
        out.reserve(self.bytes() + self.len() * 2 * ROW_LEN_MIN);
        for row in self.iter() {
            put_bytes(out, row.partition);
            put_bytes(out, row.sort);
            put_bytes(out, row.content_type);
            put_bytes(out, row.content_encoding);
            put_bytes(out, row.value);
            put_varint(out, row.value_len.into());
            put_fixed(out, row.version.0);
            // The instant plus one; 0 for none.
            let expiry = row.expires_at.map_or(0, |at| at.0.saturating_add(1));
            put_varint(out, expiry);
        }
    }

    fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        let count = reader.count("rows", ROW_LEN_MIN)?;
        let bytes = reader.varint()?;
        let bytes = usize::try_from(bytes).map_or(usize::MAX, |bytes| bytes);
        let mut rows = Self::default();
        rows.reserve(count, bytes.min(reader.left()));
        for _ in 0..count {
            rows.push(RowRef {
                partition: field(reader, limits::PARTITION_KEY_LEN_MAX)?,
                sort: field(reader, limits::SORT_KEY_LEN_MAX)?,
                content_type: field(reader, limits::CONTENT_FIELD_LEN_MAX)?,
                content_encoding: field(reader, limits::CONTENT_FIELD_LEN_MAX)?,
                value: field(reader, limits::VALUE_LEN_MAX)?,
                form: StoredForm::Plain,
                value_len: Field::read(reader, "value_len")?,
                version: Version(reader.fixed()?),
                expires_at: reader.varint()?.checked_sub(1).map(Timestamp),
            });
        }
        Ok(rows)
    }
}

/// Writes the forms of the rows of a batch: place and form of each row that is not plain.
pub(super) fn put_forms(out: &mut Vec<u8>, rows: &RowBatch) {
    for (place, form) in rows.forms() {
        put_varint(out, place as u64);
        out.push(form.code());
    }
}

/// Reads the forms of the rows of a batch.
pub(super) fn forms(mut reader: Reader<'_>, rows: &mut RowBatch) -> Result<(), DecodeError> {
    while !reader.is_empty() {
        let place = reader.varint()?;
        let form = form(reader.byte()?)?;
        let set = usize::try_from(place)
            .ok()
            .and_then(|at| rows.set_form(at, form));
        set.ok_or_else(|| bad("form", &format_args!("of row {place}, which is not there")))?;
    }
    Ok(())
}

pub(super) fn form(code: u8) -> Result<StoredForm, DecodeError> {
    StoredForm::from_code(code).map_err(|error| bad("form", &error))
}

fn field<'a>(reader: &mut Reader<'a>, max: usize) -> Result<&'a [u8], DecodeError> {
    let bytes = reader.slice()?;
    if bytes.len() > max {
        let found = format!("a length of {}, more than {max}", bytes.len());
        return Err(bad("rows", &found));
    }
    Ok(bytes)
}
