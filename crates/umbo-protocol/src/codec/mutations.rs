//! Mutations of a write. Decoded values share their frame's memory.

use umbo_store::{Change, Condition, FencingToken, Mutation, UploadStep};
use umbo_types::{StoredForm, Timestamp, UploadId, Value, Version, limits};

use super::field::{Field, fields, put_maybe};
use super::rows::form;
use crate::error::DecodeError;
use crate::wire::{REQUIRED_TAG, Reader, bad, put_fixed, put_nested, put_optional};

/// Optional fields of a mutation. A node that does not know forms must not store the bytes as a plain value.
const EXPIRES_AT: u8 = 1;
/// Optional field of a mutation: the number that an increment adds, eight bytes little endian. A node that does not
/// know increments must refuse the mutation, because without this field it is the removal of the row.
const INCREMENT: u8 = REQUIRED_TAG | 2;
/// Optional field of an increment: the expiry of a row that it creates.
const DEFAULT_EXPIRY: u8 = 3;
const FORM: u8 = REQUIRED_TAG | 1;
/// Optional fields of a mutation: the chunk that it adds to an upload (id, index, bytes), and the upload that it gives
/// up (id). A node that does not know these fields must refuse the request, as for increments.
const APPEND: u8 = REQUIRED_TAG | 3;
const ABANDON: u8 = REQUIRED_TAG | 4;
/// Bits of mutations: whether a value follows, and the condition.
const IS_PUT: u8 = 1;
const CONDITION_SHIFT: u8 = 1;

/// Fewest bytes of a mutation.
const MUTATION_LEN_MIN: usize = 5;

fields!(FencingToken { load, number });

/// A mutation is a message within the write.
impl Field for Mutation {
    const LEN_MIN: usize = MUTATION_LEN_MIN;
    const COUNT_MAX: usize = limits::BATCH_ROWS_MAX;

    fn put(&self, out: &mut Vec<u8>) {
        put_nested(out, |out| put_mutation(out, self));
    }

    fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        mutation(reader.nested()?)
    }
}

fn put_mutation(out: &mut Vec<u8>, mutation: &Mutation) {
    mutation.key.put(out);
    let condition: u8 = match mutation.condition {
        Condition::Always => 0,
        Condition::Absent => 1,
        Condition::Present => 2,
        Condition::VersionIn(_) => 3,
        // A node of an earlier version refuses the request: it could not decide it.
        Condition::NotNewerThan(_) => 4,
        Condition::Unwritten(None) => 5,
        Condition::Unwritten(Some(_)) => 6,
    };
    let is_put = match mutation.change {
        Change::Put { .. } => IS_PUT,
        Change::Delete | Change::Increment { .. } | Change::Upload(_) => 0,
    };
    out.push(is_put | condition << CONDITION_SHIFT);
    match &mutation.condition {
        Condition::VersionIn(versions) => versions.put(out),
        Condition::NotNewerThan(at) => put_fixed(out, at.0),
        Condition::Unwritten(Some(kept)) => put_fixed(out, kept.0),
        _ => {}
    }
    match &mutation.change {
        Change::Delete => {}
        Change::Put { value, expires_at } => {
            value.bytes.put(out);
            value.content_type.put(out);
            value.content_encoding.put(out);
            put_maybe(out, EXPIRES_AT, expires_at.as_ref());
            if value.form != StoredForm::Plain {
                put_optional(out, FORM, &[value.form.code()]);
            }
        }
        Change::Upload(UploadStep::Append {
            upload,
            index,
            bytes,
        }) => {
            out.push(APPEND);
            put_nested(out, |out| {
                out.extend_from_slice(&upload.0);
                index.put(out);
                bytes.put(out);
            });
        }
        Change::Upload(UploadStep::Abandon(upload)) => put_optional(out, ABANDON, &upload.0),
        Change::Increment {
            by,
            expires_at,
            default_expiry,
        } => {
            put_optional(out, INCREMENT, &by.to_le_bytes());
            put_maybe(out, EXPIRES_AT, expires_at.as_ref());
            put_maybe(out, DEFAULT_EXPIRY, default_expiry.as_ref());
        }
    }
}

fn mutation(mut reader: Reader<'_>) -> Result<Mutation, DecodeError> {
    let key = Field::read(&mut reader, "key")?;
    let flags = reader.byte()?;
    let condition = match flags >> CONDITION_SHIFT {
        0 => Condition::Always,
        1 => Condition::Absent,
        2 => Condition::Present,
        3 => Condition::VersionIn(Field::read(&mut reader, "versions")?),
        4 => Condition::NotNewerThan(Timestamp(reader.fixed()?)),
        5 => Condition::Unwritten(None),
        6 => Condition::Unwritten(Some(Version(reader.fixed()?))),
        other => return Err(bad("condition", &other)),
    };
    let mut change = if flags & IS_PUT > 0 {
        let (bytes, content_type) = (reader.shared()?, reader.shared()?);
        let value = Value::new(bytes, content_type, reader.shared()?);
        Change::Put {
            value: value.map_err(|error| bad("value", &error))?,
            expires_at: None,
        }
    } else {
        Change::Delete
    };
    while let Some((tag, mut field)) = reader.optional()? {
        match (tag, &mut change) {
            (INCREMENT, Change::Delete) => {
                change = Change::Increment {
                    by: field.fixed()?.cast_signed(),
                    expires_at: None,
                    default_expiry: None,
                };
            }
            (APPEND, Change::Delete) => {
                let (upload, index, bytes) = (
                    upload(&mut field)?,
                    Field::read(&mut field, "index")?,
                    field.shared()?,
                );
                if bytes.len() > limits::LARGE_CHUNK_LEN {
                    return Err(bad("chunk", &bytes.len()));
                }
                change = Change::Upload(UploadStep::Append {
                    upload,
                    index,
                    bytes,
                });
            }
            (ABANDON, Change::Delete) => {
                change = Change::Upload(UploadStep::Abandon(upload(&mut field)?));
            }
            (DEFAULT_EXPIRY, Change::Increment { default_expiry, .. }) => {
                *default_expiry = Some(Timestamp(field.varint()?));
            }
            (EXPIRES_AT, Change::Put { expires_at, .. } | Change::Increment { expires_at, .. }) => {
                *expires_at = Some(Timestamp(field.varint()?));
            }
            (FORM, Change::Put { value, .. }) => {
                let form = form(field.byte()?)?;
                let stored = std::mem::take(value).in_form(form);
                *value = stored.map_err(|error| bad("value", &error))?;
            }
            (tag, _) => field.ignored(tag)?,
        }
    }
    Ok(Mutation {
        key,
        change,
        condition,
    })
}

/// Reads the id of an upload.
fn upload(reader: &mut Reader<'_>) -> Result<UploadId, DecodeError> {
    let id = reader.raw(UploadId::LEN)?;
    let id = id.try_into().map_err(|_| bad("upload", &id.len()))?;
    Ok(UploadId(id))
}
