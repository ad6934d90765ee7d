//! Results of mutations, and of shards that records were kept in: one after the other in the answer.

use umbo_store::{WriteError, Written};
use umbo_types::limits;

use super::errors::put_store_error;
use super::field::{Field, option, put_option};
use crate::answer::{ShardResult, WriteAnswer};
use crate::error::{DecodeError, NodeError};
use crate::wire::{Reader, bad, put_fixed, put_varint};

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
const NEEDS_EXACT_WRITES: u8 = 12;

impl Field for WriteAnswer {
    const LEN_MIN: usize = 2;
    const COUNT_MAX: usize = limits::BATCH_ROWS_MAX;

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Ok(Ok(written)) => put_written(out, written),
            Ok(Err(error)) => put_refused(out, error),
            Err(error) => {
                out.push(NOT_WRITTEN);
                error.put(out);
            }
        }
    }

    fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        let kind = reader.byte()?;
        if kind != REPLAYED {
            return decided(kind, reader);
        }
        // A result is marked once: a longer run of marks is no result.
        let kind = reader.byte()?;
        Ok(match decided(kind, reader)? {
            Ok(Ok(written)) => Ok(Ok(Written {
                is_replayed: true,
                ..written
            })),
            Ok(Err(error)) => Ok(Err(WriteError::Replayed(Box::new(error)))),
            Err(_) => return Err(bad("result", &kind)),
        })
    }
}

fn put_written(out: &mut Vec<u8>, written: &Written) {
    if written.is_replayed {
        out.push(REPLAYED);
    }
    out.push(written.number.map_or(APPLIED, |_| COUNTED));
    written.version.put(out);
    written.existed.put(out);
    if let Some(number) = written.number {
        put_fixed(out, number.cast_unsigned());
    }
}

fn put_refused(out: &mut Vec<u8>, error: &WriteError) {
    match error {
        WriteError::Replayed(error) => {
            out.push(REPLAYED);
            put_refused(out, error);
        }
        // A result has two bytes at least.
        WriteError::NotANumber => out.extend_from_slice(&[NOT_A_NUMBER, 0]),
        WriteError::UploadGone => out.extend_from_slice(&[UPLOAD_GONE, 0]),
        WriteError::NeedsExactWrites => out.extend_from_slice(&[NEEDS_EXACT_WRITES, 0]),
        WriteError::IdempotencyMismatch => out.extend_from_slice(&[IDEMPOTENCY_MISMATCH, 0]),
        WriteError::IncrementOverflow { current } => {
            out.push(INCREMENT_OVERFLOW);
            put_fixed(out, current.cast_unsigned());
        }
        WriteError::IdempotencyFull { bytes_max } => {
            out.push(IDEMPOTENCY_FULL);
            put_varint(out, *bytes_max);
        }
        WriteError::ConditionFailed { current } => {
            out.push(CONDITION_FAILED);
            put_option(out, current.as_ref());
        }
        WriteError::GroupAborted { index } => {
            out.push(GROUP_ABORTED);
            put_varint(out, *index as u64);
        }
        WriteError::Store(error) => {
            out.push(NOT_WRITTEN);
            put_store_error(out, error);
        }
    }
}

fn decided(kind: u8, reader: &mut Reader<'_>) -> Result<WriteAnswer, DecodeError> {
    let refused = match kind {
        APPLIED | COUNTED => {
            let version = Field::read(reader, "version")?;
            let written = Written::new(version, Field::read(reader, "existed")?);
            let number = (kind == COUNTED).then(|| reader.fixed()).transpose()?;
            return Ok(Ok(Ok(Written {
                number: number.map(u64::cast_signed),
                ..written
            })));
        }
        NOT_WRITTEN => return NodeError::read(reader, "error").map(Err),
        NOT_A_NUMBER | IDEMPOTENCY_MISMATCH | UPLOAD_GONE | NEEDS_EXACT_WRITES => {
            reader.byte()?;
            match kind {
                NOT_A_NUMBER => WriteError::NotANumber,
                IDEMPOTENCY_MISMATCH => WriteError::IdempotencyMismatch,
                NEEDS_EXACT_WRITES => WriteError::NeedsExactWrites,
                _ => WriteError::UploadGone,
            }
        }
        INCREMENT_OVERFLOW => WriteError::IncrementOverflow {
            current: reader.fixed()?.cast_signed(),
        },
        IDEMPOTENCY_FULL => WriteError::IdempotencyFull {
            bytes_max: reader.varint()?,
        },
        CONDITION_FAILED => WriteError::ConditionFailed {
            current: option(reader, "current")?,
        },
        GROUP_ABORTED => {
            let index = reader.varint()?;
            let index = usize::try_from(index).map_err(|_| bad("index", &index))?;
            WriteError::GroupAborted { index }
        }
        other => return Err(bad("result", &other)),
    };
    Ok(Ok(Err(refused)))
}

impl Field for ShardResult {
    const LEN_MIN: usize = 2;

    fn put(&self, out: &mut Vec<u8>) {
        let (shard, result) = self;
        shard.put(out);
        match result {
            Ok(()) => out.push(APPLIED),
            Err(error) => {
                out.push(NOT_WRITTEN);
                error.put(out);
            }
        }
    }

    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
        let shard = Field::read(reader, "shard")?;
        Ok(match reader.byte()? {
            APPLIED => (shard, Ok(())),
            NOT_WRITTEN => (shard, Err(NodeError::read(reader, name)?)),
            other => return Err(bad("result", &other)),
        })
    }
}
