//! Results of mutations, and of shards that records were kept in: one after the other in the answer.

use umbo_store::{WriteError, Written};
use umbo_types::{ShardId, Version};

use super::errors::{error, put_error, put_store_error};
use crate::answer::{ShardResult, WriteAnswer};
use crate::error::DecodeError;
use crate::wire::{Reader, bad, ignored, put_fixed, put_nested, put_optional, put_varint};

/// Optional field of a failed condition.
const CURRENT: u8 = 1;

const APPLIED: u8 = 1;
const CONDITION_FAILED: u8 = 2;
const GROUP_ABORTED: u8 = 3;
const NOT_WRITTEN: u8 = 4;
/// Results that only writes with an idempotency, increments and uploads have, so no peer gets them that does not know them.
const REPLAYED: u8 = 5;
const NOT_A_NUMBER: u8 = 6;
const INCREMENT_OVERFLOW: u8 = 7;
const IDEMPOTENCY_MISMATCH: u8 = 8;
const IDEMPOTENCY_FULL: u8 = 9;
const COUNTED: u8 = 10;
const UPLOAD_GONE: u8 = 11;

/// Fewest bytes of a result of a write.
pub(super) const RESULT_LEN_MIN: usize = 2;

pub(super) fn put_written(out: &mut Vec<u8>, result: &WriteAnswer) {
    match result {
        Ok(Ok(written)) => {
            if written.is_replayed {
                out.push(REPLAYED);
            }
            out.push(if written.number.is_some() {
                COUNTED
            } else {
                APPLIED
            });
            put_fixed(out, written.version.0);
            out.push(written.existed.into());
            if let Some(number) = written.number {
                put_fixed(out, number.cast_unsigned());
            }
        }
        Ok(Err(WriteError::Replayed(error))) => {
            out.push(REPLAYED);
            put_written(out, &Ok(Err(*error.clone())));
        }
        Ok(Err(WriteError::NotANumber)) => {
            out.extend_from_slice(&[NOT_A_NUMBER, 0]);
        }
        Ok(Err(WriteError::UploadGone)) => out.extend_from_slice(&[UPLOAD_GONE, 0]),
        Ok(Err(WriteError::IncrementOverflow { current })) => {
            out.push(INCREMENT_OVERFLOW);
            put_fixed(out, current.cast_unsigned());
        }
        Ok(Err(WriteError::IdempotencyMismatch)) => {
            out.extend_from_slice(&[IDEMPOTENCY_MISMATCH, 0]);
        }
        Ok(Err(WriteError::IdempotencyFull { bytes_max })) => {
            out.push(IDEMPOTENCY_FULL);
            put_varint(out, *bytes_max);
        }
        Ok(Err(WriteError::ConditionFailed { current })) => {
            out.push(CONDITION_FAILED);
            put_nested(out, |out| {
                if let Some(version) = current {
                    put_optional(out, CURRENT, &version.0.to_le_bytes());
                }
            });
        }
        Ok(Err(WriteError::GroupAborted { index })) => {
            out.push(GROUP_ABORTED);
            put_varint(out, *index as u64);
        }
        Ok(Err(WriteError::Store(error))) => {
            out.push(NOT_WRITTEN);
            put_store_error(out, error);
        }
        Err(error) => {
            out.push(NOT_WRITTEN);
            put_error(out, error);
        }
    }
}

pub(super) fn written(reader: &mut Reader<'_>, id: u64) -> Result<WriteAnswer, DecodeError> {
    let kind = reader.byte()?;
    if kind != REPLAYED {
        return decided(kind, reader, id);
    }
    // A result is marked once: a longer run of marks is no result.
    let kind = reader.byte()?;
    Ok(match decided(kind, reader, id)? {
        Ok(Ok(written)) => Ok(Ok(Written {
            is_replayed: true,
            ..written
        })),
        Ok(Err(error)) => Ok(Err(WriteError::Replayed(Box::new(error)))),
        Err(_) => return Err(bad("result", &kind)),
    })
}

fn decided(kind: u8, reader: &mut Reader<'_>, id: u64) -> Result<WriteAnswer, DecodeError> {
    Ok(match kind {
        APPLIED | COUNTED => {
            let version = Version(reader.fixed()?);
            let existed = reader.byte()? > 0;
            let number = match kind {
                COUNTED => Some(reader.fixed()?.cast_signed()),
                _ => None,
            };
            Ok(Ok(Written {
                number,
                ..Written::new(version, existed)
            }))
        }
        // A result has two bytes at least.
        NOT_A_NUMBER => reader.byte().map(|_| Ok(Err(WriteError::NotANumber)))?,
        IDEMPOTENCY_MISMATCH => reader
            .byte()
            .map(|_| Ok(Err(WriteError::IdempotencyMismatch)))?,
        UPLOAD_GONE => reader.byte().map(|_| Ok(Err(WriteError::UploadGone)))?,
        INCREMENT_OVERFLOW => Ok(Err(WriteError::IncrementOverflow {
            current: reader.fixed()?.cast_signed(),
        })),
        IDEMPOTENCY_FULL => Ok(Err(WriteError::IdempotencyFull {
            bytes_max: reader.varint()?,
        })),
        CONDITION_FAILED => {
            let (mut fields, mut current) = (reader.nested()?, None);
            while let Some((tag, mut field)) = fields.optional()? {
                match tag {
                    CURRENT => current = Some(Version(field.fixed()?)),
                    tag => ignored(tag, id)?,
                }
            }
            Ok(Err(WriteError::ConditionFailed { current }))
        }
        GROUP_ABORTED => {
            let index = reader.varint()?;
            let index = usize::try_from(index).map_err(|_| bad("index", &index))?;
            Ok(Err(WriteError::GroupAborted { index }))
        }
        NOT_WRITTEN => Err(error(reader, id)?),
        other => return Err(bad("result", &other)),
    })
}

pub(super) fn put_shard_result(out: &mut Vec<u8>, (shard, result): &ShardResult) {
    put_varint(out, shard.0.into());
    match result {
        Ok(()) => out.push(APPLIED),
        Err(error) => {
            out.push(NOT_WRITTEN);
            put_error(out, error);
        }
    }
}

pub(super) fn shard_result(reader: &mut Reader<'_>, id: u64) -> Result<ShardResult, DecodeError> {
    let shard = ShardId(reader.u16("shard")?);
    Ok(match reader.byte()? {
        APPLIED => (shard, Ok(())),
        NOT_WRITTEN => (shard, Err(error(reader, id)?)),
        other => return Err(bad("result", &other)),
    })
}
