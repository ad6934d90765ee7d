//! Mutations of a write. Decoded values share their frame's memory.

use umbo_store::{Change, Condition, Mutation};
use umbo_types::{Timestamp, Value, Version};

use super::{put_key, shared_key};
use crate::error::DecodeError;
use crate::wire::{Reader, bad, ignored, put_bytes, put_fixed, put_optional_varint, put_varint};

/// Optional field of a mutation.
const EXPIRES_AT: u8 = 1;
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
    };
    let is_put = match mutation.change {
        Change::Put { .. } => IS_PUT,
        Change::Delete => 0,
    };
    out.push(is_put | condition << CONDITION_SHIFT);
    if let Condition::VersionIn(versions) = &mutation.condition {
        put_varint(out, versions.len() as u64);
        for version in versions {
            put_fixed(out, version.0);
        }
    }
    if let Change::Put { value, expires_at } = &mutation.change {
        put_bytes(out, &value.bytes);
        put_bytes(out, &value.content_type);
        put_bytes(out, &value.content_encoding);
        if let Some(at) = expires_at {
            put_optional_varint(out, EXPIRES_AT, at.0);
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
            (EXPIRES_AT, Change::Put { expires_at, .. }) => {
                *expires_at = Some(Timestamp(field.varint()?));
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
