//! Answers. Large values share their frame's memory; small ones are copied, so that a small value that is
//! kept does not keep the frame.
//!
//! `id, service time in ns, flags, rows, bytes, kind`, then the fields of the kind, then optional fields.

use std::time::Duration;

use umbo_store::{Deleted, Page, RowBatch, ScanPage, ShardStatus, Touched};
use umbo_types::{Row, limits};

use super::field::{Field, fields, kinds, put_maybe};
use super::rows::{forms, put_forms};
use crate::answer::{Answer, AnswerPart, Outcome, StatusOfNode};
use crate::error::{DecodeError, NodeError};
use crate::wire::{REQUIRED_TAG, Reader, bad, put_nested, put_optional_varint, put_varint};

kinds!(
    Outcome {
        3 => MultiGot(results),
        4 => Page(page),
        5 => Scanned(page),
        6 => Written(results),
        7 => Deleted(deleted),
        8 => Status(node),
        9 => ClusterMap(map),
        10 => Failed(error),
        11 => RecordsKept(shards),
        12 => KeptRecords(kept),
    }
    // 13 was for letters of dispatchers.
    by hand { 2 => Row }
);
const ABSENT: u8 = 1;
const ROW: u8 = 2;

fields!(Page { rows, resume_after as option; touched: Touched::default() });
fields!(ScanPage { rows, resume_after as option; touched: Touched::default() });
fields!(Deleted { rows, bytes, resume_after as option });

/// Bit of the flags of an answer.
const HAS_MORE: u8 = 1;
/// Optional field of an answer: its busy time in ns, if this differs from its service time.
const BUSY_TIME: u8 = 1;
/// Optional field of a status: the time of day of the node.
const WALL: u8 = 2;
/// Optional field of a chunk: the forms of rows that are not plain. A dispatcher that does not know forms must not take
/// their bytes for plain values.
const FORMS: u8 = REQUIRED_TAG | 1;
/// Parts of a multi-get.
const PART_ABSENT: u8 = 1;
const PART_ROW: u8 = 2;
const PART_FAILED: u8 = 3;

pub(crate) fn put_answer(out: &mut Vec<u8>, answer: &Answer) {
    put_varint(out, answer.id);
    let service_time = answer.service_time.as_nanos();
    put_varint(out, u64::try_from(service_time).unwrap_or(u64::MAX));
    out.push(if answer.has_more { HAS_MORE } else { 0 });
    put_varint(out, answer.rows);
    put_varint(out, answer.bytes);
    match &answer.outcome {
        Outcome::Row(None) => out.push(ABSENT),
        Outcome::Row(Some(row)) => {
            out.push(ROW);
            row.put(out);
        }
        outcome => {
            out.push(outcome.kind());
            outcome.put_fields(out);
        }
    }
    if answer.busy_time != answer.service_time {
        let busy_time = answer.busy_time.as_nanos();
        put_optional_varint(out, BUSY_TIME, u64::try_from(busy_time).unwrap_or(u64::MAX));
    }
    if let Outcome::Status(status) = &answer.outcome {
        put_maybe(out, WALL, status.wall.as_ref());
    }
    if let Some(rows) = rows_of(&answer.outcome)
        && rows.forms().next().is_some()
    {
        out.push(FORMS);
        put_nested(out, |out| put_forms(out, rows));
    }
}

/// Returns the rows of a chunk, or `None` for other outcomes.
const fn rows_of(outcome: &Outcome) -> Option<&RowBatch> {
    match outcome {
        Outcome::Page(page) => Some(&page.rows),
        Outcome::Scanned(page) => Some(&page.rows),
        _ => None,
    }
}

/// Returns the approximate length of an answer, so that the buffer of a large one is allocated once.
pub(crate) fn len_hint(outcome: &Outcome) -> usize {
    /// Length of everything but rows.
    const HEAD: usize = 128;
    let row = |row: &Row| {
        let value = &row.value;
        value.bytes.len() + value.content_type.len() + value.content_encoding.len() + 32
    };
    HEAD + match outcome {
        Outcome::Row(found) => found.as_ref().map_or(0, row),
        Outcome::MultiGot(parts) => {
            let len = |part: &AnswerPart| match part {
                Ok(Some(found)) => row(found),
                Ok(None) => 1,
                Err(_) => 64,
            };
            parts.iter().map(len).sum()
        }
        Outcome::Page(page) => page.rows.bytes() + page.rows.len() * 24,
        Outcome::Scanned(page) => page.rows.bytes() + page.rows.len() * 24,
        Outcome::Written(results) => results.len() * 16,
        Outcome::Status(StatusOfNode { shards, .. }) => {
            let sizes = |status: &ShardStatus| status.sizes.as_ref().map_or(0, Vec::len);
            shards.iter().map(|status| 64 + 12 * sizes(status)).sum()
        }
        Outcome::ClusterMap(text) => text.len(),
        Outcome::RecordsKept(results) => results.len() * 4,
        Outcome::KeptRecords(kept) => kept.as_ref().map_or(0, |copy| copy.content.len()),
        Outcome::Deleted(_) | Outcome::Failed(_) => 0,
    }
}

/// Decodes the part after the id.
pub(crate) fn answer(reader: &mut Reader<'_>) -> Result<Answer, DecodeError> {
    let service_time = Duration::from_nanos(reader.varint()?);
    let mut answer = Answer {
        id: reader.id,
        service_time,
        busy_time: service_time,
        has_more: reader.byte()? & HAS_MORE > 0,
        rows: reader.varint()?,
        bytes: reader.varint()?,
        outcome: outcome(reader)?,
    };
    while let Some((tag, mut field)) = reader.optional()? {
        match tag {
            BUSY_TIME => answer.busy_time = Duration::from_nanos(field.varint()?),
            WALL => match &mut answer.outcome {
                Outcome::Status(status) => status.wall = Some(Field::read_tagged(field, "wall")?),
                _ => field.ignored(tag)?,
            },
            FORMS => match &mut answer.outcome {
                Outcome::Page(page) => forms(field, &mut page.rows)?,
                Outcome::Scanned(page) => forms(field, &mut page.rows)?,
                _ => return Err(bad("forms", &"in an answer without rows")),
            },
            tag => field.ignored(tag)?,
        }
    }
    // The answer itself contains the touched rows and bytes of a chunk.
    let touched = Touched {
        rows: answer.rows,
        bytes: answer.bytes,
    };
    match &mut answer.outcome {
        Outcome::Page(page) => page.touched = touched,
        Outcome::Scanned(page) => page.touched = touched,
        _ => {}
    }
    Ok(answer)
}

fn outcome(reader: &mut Reader<'_>) -> Result<Outcome, DecodeError> {
    Ok(match reader.byte()? {
        ABSENT => Outcome::Row(None),
        ROW => Outcome::Row(Some(Field::read(reader, "row")?)),
        kind => Outcome::read_fields(kind, reader)?,
    })
}

impl Field for AnswerPart {
    const COUNT_MAX: usize = limits::MULTI_GET_KEYS_MAX;

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Ok(None) => out.push(PART_ABSENT),
            Ok(Some(row)) => {
                out.push(PART_ROW);
                row.put(out);
            }
            Err(error) => {
                out.push(PART_FAILED);
                error.put(out);
            }
        }
    }

    fn read(reader: &mut Reader<'_>, name: &'static str) -> Result<Self, DecodeError> {
        Ok(match reader.byte()? {
            PART_ABSENT => Ok(None),
            PART_ROW => Ok(Some(Row::read(reader, name)?)),
            PART_FAILED => Err(NodeError::read(reader, name)?),
            other => return Err(bad("row", &other)),
        })
    }
}
