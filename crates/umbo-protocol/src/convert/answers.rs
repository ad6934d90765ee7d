//! Answers to messages and back.

use std::time::Duration;

use bytes::Bytes;
use umbo_store::{
    Deleted, Page, PurgeProgress, ScanPage, ScanPosition, ShardState, ShardStatus, WriteError,
    Written,
};
use umbo_types::{Row, ShardId, Timestamp, Value, Version};

use super::{bad, errors, instant, key, key_of, some};
use crate::answer::{Answer, AnswerPart, Outcome, WriteAnswer};
use crate::error::DecodeError;
use crate::{message, rows};

/// Longest value that is copied out of its frame, in bytes.
pub(crate) const COPIED_LEN_MAX: usize = 16 << 10;

pub(crate) fn encode(answer: Answer) -> message::Answer {
    let service_time = answer.service_time.as_nanos();
    message::Answer {
        id: answer.id,
        service_time_ns: u64::try_from(service_time).unwrap_or(u64::MAX),
        has_more: answer.has_more,
        rows: answer.rows,
        bytes: answer.bytes,
        outcome: Some(outcome(answer.outcome)),
    }
}

pub(crate) fn decode(answer: message::Answer) -> Result<Answer, DecodeError> {
    let id = answer.id;
    let came_to = answer.outcome.ok_or(DecodeError::UnknownKind { id })?;
    Ok(Answer {
        id,
        service_time: Duration::from_nanos(answer.service_time_ns),
        has_more: answer.has_more,
        rows: answer.rows,
        bytes: answer.bytes,
        outcome: outcome_of(came_to)?,
    })
}

fn outcome(outcome: Outcome) -> message::Outcome {
    match outcome {
        Outcome::Row(Some(found)) => message::Outcome::Row(row(found)),
        Outcome::Row(None) => message::Outcome::Absent(message::Empty {}),
        Outcome::MultiGot(parts) => message::Outcome::MultiGot(message::MultiGot {
            rows: parts.into_iter().map(got).collect(),
        }),
        Outcome::Page(page) => message::Outcome::Page(message::Page {
            rows: Some(rows::encode(&page.rows)),
            resume_after: page.resume_after,
        }),
        Outcome::Scanned(page) => message::Outcome::Scanned(message::Scanned {
            rows: Some(rows::encode(&page.rows)),
            resume_after: page.resume_after.map(|after| key(after.key)),
        }),
        Outcome::Written(results) => message::Outcome::Written(message::Written {
            results: results.into_iter().map(write_result).collect(),
        }),
        Outcome::Deleted(deleted) => message::Outcome::Deleted(message::Deleted {
            rows: deleted.rows,
            bytes: deleted.bytes,
            resume_after: deleted.resume_after,
        }),
        Outcome::Purged(progress) => message::Outcome::Purged(message::Purged {
            rows: progress.rows,
            more: progress.more,
        }),
        Outcome::Status(map_version, shards) => message::Outcome::Status(message::Status {
            map_version,
            shards: shards.into_iter().map(status).collect(),
        }),
        Outcome::ClusterMap(text) => message::Outcome::ClusterMap(text),
        Outcome::Failed(error) => message::Outcome::Error(errors::encode(error)),
    }
}

fn outcome_of(outcome: message::Outcome) -> Result<Outcome, DecodeError> {
    Ok(match outcome {
        message::Outcome::Row(found) => Outcome::Row(Some(row_of(&found)?)),
        message::Outcome::Absent(_) => Outcome::Row(None),
        message::Outcome::MultiGot(many) => {
            let parts = many.rows.into_iter().map(got_of);
            Outcome::MultiGot(parts.collect::<Result<_, _>>()?)
        }
        message::Outcome::Page(page) => Outcome::Page(Page {
            rows: rows::decode(page.rows)?,
            resume_after: page.resume_after.map(|last| owned(&last)),
        }),
        message::Outcome::Scanned(page) => {
            let after = page.resume_after.map(key_of).transpose()?;
            Outcome::Scanned(ScanPage {
                rows: rows::decode(page.rows)?,
                // The shard is that of the request, which the receiver knows.
                resume_after: after.map(|key| ScanPosition {
                    shard: ShardId(0),
                    key,
                }),
            })
        }
        message::Outcome::Written(written) => {
            let results = written.results.into_iter().map(write_result_of);
            Outcome::Written(results.collect::<Result<_, _>>()?)
        }
        message::Outcome::Deleted(deleted) => Outcome::Deleted(Deleted {
            rows: deleted.rows,
            bytes: deleted.bytes,
            resume_after: deleted.resume_after.map(|last| owned(&last)),
        }),
        message::Outcome::Purged(progress) => Outcome::Purged(PurgeProgress {
            rows: progress.rows,
            more: progress.more,
        }),
        message::Outcome::Status(node) => {
            let shards = node.shards.into_iter().map(status_of);
            Outcome::Status(node.map_version, shards.collect::<Result<_, _>>()?)
        }
        message::Outcome::ClusterMap(text) => Outcome::ClusterMap(text),
        message::Outcome::Error(error) => Outcome::Failed(errors::decode(error)),
    })
}

fn row(row: Row) -> message::Row {
    message::Row {
        value: some(row.value.bytes),
        content_type: some(row.value.content_type),
        content_encoding: some(row.value.content_encoding),
        version: row.version.0,
        expires_at_us: instant(row.expires_at),
    }
}

fn row_of(row: &message::Row) -> Result<Row, DecodeError> {
    let value = Value::new(
        owned_or_empty(row.value.as_ref()),
        owned_or_empty(row.content_type.as_ref()),
        owned_or_empty(row.content_encoding.as_ref()),
    );
    Ok(Row {
        value: value.map_err(|error| bad("value", &error))?,
        version: Version(row.version),
        expires_at: row.expires_at_us.map(Timestamp),
    })
}

/// What is kept must not keep a frame of many others.
fn owned(bytes: &Bytes) -> Bytes {
    if bytes.len() > COPIED_LEN_MAX {
        bytes.clone()
    } else {
        Bytes::copy_from_slice(bytes)
    }
}

fn owned_or_empty(bytes: Option<&Bytes>) -> Bytes {
    bytes.map_or_else(Bytes::new, owned)
}

fn got(part: AnswerPart) -> message::GotRow {
    let got = match part {
        Ok(Some(found)) => message::Got::Row(row(found)),
        Ok(None) => message::Got::Absent(message::Empty {}),
        Err(error) => message::Got::Error(errors::encode(error)),
    };
    message::GotRow { got: Some(got) }
}

fn got_of(part: message::GotRow) -> Result<AnswerPart, DecodeError> {
    Ok(match part.got {
        Some(message::Got::Row(found)) => Ok(Some(row_of(&found)?)),
        Some(message::Got::Absent(_)) => Ok(None),
        Some(message::Got::Error(error)) => Err(errors::decode(error)),
        None => return Err(bad("row", &"nothing")),
    })
}

fn write_result(result: WriteAnswer) -> message::WriteResult {
    let outcome = match result {
        Ok(Ok(written)) => message::WriteOutcome::Applied(message::Applied {
            version: written.version.0,
            existed: written.existed,
        }),
        Ok(Err(WriteError::ConditionFailed { current })) => {
            message::WriteOutcome::ConditionFailed(message::ConditionFailed {
                current: current.map(|version| version.0),
            })
        }
        Ok(Err(WriteError::GroupAborted { index })) => {
            message::WriteOutcome::GroupAborted(index as u64)
        }
        Ok(Err(WriteError::Store(error))) => {
            message::WriteOutcome::Error(errors::encode(error.into()))
        }
        Err(error) => message::WriteOutcome::Error(errors::encode(error)),
    };
    message::WriteResult {
        outcome: Some(outcome),
    }
}

fn write_result_of(result: message::WriteResult) -> Result<WriteAnswer, DecodeError> {
    Ok(match result.outcome {
        Some(message::WriteOutcome::Applied(applied)) => Ok(Ok(Written {
            version: Version(applied.version),
            existed: applied.existed,
        })),
        Some(message::WriteOutcome::ConditionFailed(failed)) => {
            Ok(Err(WriteError::ConditionFailed {
                current: failed.current.map(Version),
            }))
        }
        Some(message::WriteOutcome::GroupAborted(index)) => {
            let index = usize::try_from(index).map_err(|_| bad("index", &index))?;
            Ok(Err(WriteError::GroupAborted { index }))
        }
        Some(message::WriteOutcome::Error(error)) => Err(errors::decode(error)),
        None => return Err(bad("result", &"nothing")),
    })
}

fn status(status: ShardStatus) -> message::ShardStatus {
    let (state, reason) = match status.state {
        ShardState::Available => (0, String::new()),
        ShardState::ReadOnly(reason) => (1, reason),
        ShardState::Unavailable(reason) => (2, reason),
    };
    message::ShardStatus {
        shard: status.shard.0.into(),
        state,
        reason,
        rows: status.rows,
        file_bytes: status.file_bytes,
        queued: status.queued,
        commits: status.commits,
        mutations: status.mutations,
        reclaimed: status.reclaimed,
    }
}

fn status_of(status: message::ShardStatus) -> Result<ShardStatus, DecodeError> {
    let shard = u16::try_from(status.shard).map_err(|_| bad("shard", &status.shard))?;
    Ok(ShardStatus {
        shard: ShardId(shard),
        state: match status.state {
            0 => ShardState::Available,
            1 => ShardState::ReadOnly(status.reason),
            _ => ShardState::Unavailable(status.reason),
        },
        rows: status.rows,
        file_bytes: status.file_bytes,
        queued: status.queued,
        commits: status.commits,
        mutations: status.mutations,
        reclaimed: status.reclaimed,
    })
}
