//! Mutations of a write. Decoded values share their frame's memory.

use umbo_store::{Change, Condition, FencingToken, Mutation, UploadStep};
use umbo_types::{NamespaceId, StoredForm, Timestamp, UploadId, Value, Version, limits};

use super::rows::form;
use super::{put_key, shared_key};
use crate::error::DecodeError;
use crate::wire::{
    REQUIRED_TAG, Reader, bad, ignored, put_bytes, put_fixed, put_nested, put_optional,
    put_optional_varint, put_varint,
};

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

pub(super) fn put_mutation(out: &mut Vec<u8>, mutation: &Mutation) {
    put_key(out, &mutation.key);
    let condition: u8 = match mutation.condition {
        Condition::Always => 0,
        Condition::Absent => 1,
        Condition::Present => 2,
        Condition::VersionIn(_) => 3,
        // A node of an earlier version refuses the request: it could not decide it.
        Condition::NotNewerThan(_) => 4,
        Condition::Unwritten => 5,
    };
    let is_put = match mutation.change {
        Change::Put { .. } => IS_PUT,
        Change::Delete | Change::Increment { .. } | Change::Upload(_) => 0,
    };
    out.push(is_put | condition << CONDITION_SHIFT);
    if let Condition::VersionIn(versions) = &mutation.condition {
        put_varint(out, versions.len() as u64);
        for version in versions {
            put_fixed(out, version.0);
        }
    }
    if let Condition::NotNewerThan(at) = &mutation.condition {
        put_fixed(out, at.0);
    }
    if let Change::Put { value, expires_at } = &mutation.change {
        put_bytes(out, &value.bytes);
        put_bytes(out, &value.content_type);
        put_bytes(out, &value.content_encoding);
        if let Some(at) = expires_at {
            put_optional_varint(out, EXPIRES_AT, at.0);
        }
        if value.form != StoredForm::Plain {
            put_optional(out, FORM, &[value.form.code()]);
        }
    }
    match &mutation.change {
        Change::Upload(UploadStep::Append {
            upload,
            index,
            bytes,
        }) => {
            out.push(APPEND);
            put_nested(out, |out| {
                out.extend_from_slice(&upload.0);
                put_varint(out, (*index).into());
                put_bytes(out, bytes);
            });
        }
        Change::Upload(UploadStep::Abandon(upload)) => put_optional(out, ABANDON, &upload.0),
        Change::Put { .. } | Change::Delete | Change::Increment { .. } => {}
    }
    if let Change::Increment {
        by,
        expires_at,
        default_expiry,
    } = &mutation.change
    {
        put_optional(out, INCREMENT, &by.to_le_bytes());
        for (tag, at) in [(EXPIRES_AT, expires_at), (DEFAULT_EXPIRY, default_expiry)] {
            if let Some(at) = at {
                put_optional_varint(out, tag, at.0);
            }
        }
    }
}

pub(super) fn mutation(mut reader: Reader<'_>, id: u64) -> Result<Mutation, DecodeError> {
    let key = shared_key(&mut reader)?;
    let flags = reader.byte()?;
    let condition = match flags >> CONDITION_SHIFT {
        0 => Condition::Always,
        1 => Condition::Absent,
        2 => Condition::Present,
        3 => {
            let count = reader.count("versions", 8)?;
            let versions = (0..count).map(|_| reader.fixed().map(Version));
            Condition::VersionIn(versions.collect::<Result<_, _>>()?)
        }
        4 => Condition::NotNewerThan(Timestamp(reader.fixed()?)),
        5 => Condition::Unwritten,
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
                let (upload, index, bytes) =
                    (upload(&mut field)?, field.u32("index")?, field.shared()?);
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
            (tag, _) => ignored(tag, id)?,
        }
    }
    Ok(Mutation {
        key,
        change,
        condition,
    })
}

/// Reads the id of an upload.
pub(super) fn upload(reader: &mut Reader<'_>) -> Result<UploadId, DecodeError> {
    let id = reader.raw(UploadId::LEN)?;
    let id = id.try_into().map_err(|_| bad("upload", &id.len()))?;
    Ok(UploadId(id))
}

pub(super) fn put_run(out: &mut Vec<u8>, run: FencingToken) {
    put_varint(out, run.load.0.into());
    put_varint(out, run.number.into());
}

pub(super) fn run(reader: &mut Reader<'_>) -> Result<FencingToken, DecodeError> {
    Ok(FencingToken {
        load: NamespaceId(reader.u32("load")?),
        number: reader.u32("run")?,
    })
}
