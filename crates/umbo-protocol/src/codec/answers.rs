//! Answers. Large values share their frame's memory; small ones are copied, so that a small value that is
//! kept does not keep the frame.
//!
//! `id, service time in ns, flags, rows, bytes, kind`, then the fields of the kind, then optional fields.

use std::sync::Arc;
use std::time::Duration;

use umbo_store::{Deleted, Page, RecordsCopy, RowBatch, ScanPage, ShardStatus, Touched};
use umbo_types::{Row, Timestamp, limits};

use super::errors::{error, put_error};
use super::mail::{letters, letters_len, put_letters};
use super::records::{copy, datasets, has_ranges, put_copy, put_datasets, put_ranges, ranges};
use super::results::{RESULT_LEN_MIN, put_shard_result, put_written, shard_result, written};
use super::rows::{batch, forms, put_batch, put_forms, put_row, row};
use super::statuses::{STATUS_LEN_MIN, put_status, status};
use super::{owned_key, put_key};
use crate::answer::{Answer, AnswerPart, Outcome, StatusOfNode};
use crate::error::DecodeError;
use crate::wire::{
    REQUIRED_TAG, Reader, bad, ignored, put_bytes, put_nested, put_optional, put_optional_varint,
    put_varint,
};

const ABSENT: u8 = 1;
const ROW: u8 = 2;
const MULTI_GOT: u8 = 3;
const PAGE: u8 = 4;
const SCANNED: u8 = 5;
const WRITTEN: u8 = 6;
const DELETED: u8 = 7;
const STATUS: u8 = 8;
const CLUSTER_MAP: u8 = 9;
const FAILED: u8 = 10;
const RECORDS_KEPT: u8 = 11;
const KEPT_RECORDS: u8 = 12;
const LETTERS: u8 = 13;

/// Bit of the flags of an answer.
const HAS_MORE: u8 = 1;
/// Optional field of an answer: its busy time in ns, if this differs from its service time.
const BUSY_TIME: u8 = 1;
/// Optional field of a status: the time of day of the node.
const WALL: u8 = 2;
/// Optional field of a chunk: the forms of rows that are not plain. A dispatcher that does not know forms must not take
/// their bytes for plain values.
const FORMS: u8 = REQUIRED_TAG | 1;
/// Optional field of chunks and of removals: the position to continue at.
const RESUME_AFTER: u8 = 1;
/// Optional field of kept records: the copy.
const COPY: u8 = 1;
/// Optional field of kept records, after the copy: its dataset groups. A dispatcher that does not know them would pass
/// a part of the copy on.
const DATASETS: u8 = REQUIRED_TAG | 1;
/// Optional field of kept records, after the copy: its fenced ranges. A dispatcher that does not know this field has
/// heard of all ids of a range already.
const RANGES: u8 = 2;

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
    put_outcome(out, &answer.outcome);
    if answer.busy_time != answer.service_time {
        let busy_time = answer.busy_time.as_nanos();
        put_optional_varint(out, BUSY_TIME, u64::try_from(busy_time).unwrap_or(u64::MAX));
    }
    if let Outcome::Status(StatusOfNode {
        wall: Some(wall), ..
    }) = &answer.outcome
    {
        put_optional_varint(out, WALL, wall.0);
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
        Outcome::Letters(letters) => letters_len(letters),
        Outcome::Deleted(_) | Outcome::Failed(_) => 0,
    }
}

/// Decodes the part after the id.
pub(crate) fn answer(reader: &mut Reader<'_>, id: u64) -> Result<Answer, DecodeError> {
    let service_time = Duration::from_nanos(reader.varint()?);
    let mut answer = Answer {
        id,
        service_time,
        busy_time: service_time,
        has_more: reader.byte()? & HAS_MORE > 0,
        rows: reader.varint()?,
        bytes: reader.varint()?,
        outcome: outcome(reader, id)?,
    };
    while let Some((tag, mut field)) = reader.optional()? {
        match tag {
            BUSY_TIME => answer.busy_time = Duration::from_nanos(field.varint()?),
            WALL => match &mut answer.outcome {
                Outcome::Status(status) => status.wall = Some(Timestamp(field.varint()?)),
                _ => ignored(tag, id)?,
            },
            FORMS => match &mut answer.outcome {
                Outcome::Page(page) => forms(field, &mut page.rows)?,
                Outcome::Scanned(page) => forms(field, &mut page.rows)?,
                _ => return Err(bad("forms", &"in an answer without rows")),
            },
            tag => ignored(tag, id)?,
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

fn put_outcome(out: &mut Vec<u8>, outcome: &Outcome) {
    match outcome {
        Outcome::Row(None) => out.push(ABSENT),
        Outcome::Row(Some(row)) => {
            out.push(ROW);
            put_row(out, row);
        }
        Outcome::MultiGot(parts) => {
            out.push(MULTI_GOT);
            put_varint(out, parts.len() as u64);
            for part in parts {
                put_part(out, part);
            }
        }
        Outcome::Page(page) => {
            out.push(PAGE);
            put_batch(out, &page.rows);
            put_resume_after(out, page.resume_after.as_deref());
        }
        Outcome::Scanned(page) => {
            out.push(SCANNED);
            put_batch(out, &page.rows);
            put_nested(out, |out| {
                if let Some(after) = &page.resume_after {
                    out.push(RESUME_AFTER);
                    put_nested(out, |out| put_key(out, after));
                }
            });
        }
        Outcome::Written(results) => {
            out.push(WRITTEN);
            put_varint(out, results.len() as u64);
            for result in results {
                put_written(out, result);
            }
        }
        Outcome::Deleted(deleted) => {
            out.push(DELETED);
            put_varint(out, deleted.rows);
            put_varint(out, deleted.bytes);
            put_resume_after(out, deleted.resume_after.as_deref());
        }
        Outcome::Status(node) => {
            out.push(STATUS);
            put_varint(out, node.map_version);
            put_varint(out, node.shards.len() as u64);
            for status in &node.shards {
                put_nested(out, |out| put_status(out, status));
            }
        }
        Outcome::ClusterMap(text) => {
            out.push(CLUSTER_MAP);
            put_bytes(out, text.as_bytes());
        }
        Outcome::RecordsKept(results) => {
            out.push(RECORDS_KEPT);
            put_varint(out, results.len() as u64);
            for result in results {
                put_shard_result(out, result);
            }
        }
        Outcome::KeptRecords(kept) => {
            out.push(KEPT_RECORDS);
            put_nested(out, |out| put_kept(out, kept.as_deref()));
        }
        Outcome::Letters(letters) => {
            out.push(LETTERS);
            put_letters(out, letters);
        }
        Outcome::Failed(error) => {
            out.push(FAILED);
            put_error(out, error);
        }
    }
}

fn put_kept(out: &mut Vec<u8>, kept: Option<&RecordsCopy>) {
    let Some(copy) = kept else {
        return;
    };
    out.push(COPY);
    put_nested(out, |out| put_copy(out, copy));
    if !copy.datasets.is_empty() {
        out.push(DATASETS);
        put_nested(out, |out| put_datasets(out, &copy.datasets));
    }
    if has_ranges(copy) {
        out.push(RANGES);
        put_nested(out, |out| put_ranges(out, copy));
    }
}

fn kept(mut fields: Reader<'_>, id: u64) -> Result<Option<RecordsCopy>, DecodeError> {
    let mut kept = None;
    while let Some((tag, mut field)) = fields.optional()? {
        match (tag, &mut kept) {
            (COPY, _) => kept = Some(copy(&mut field)?),
            (DATASETS, Some(copy)) => copy.datasets = datasets(field)?,
            (RANGES, Some(copy)) => ranges(field, copy)?,
            (tag, _) => ignored(tag, id)?,
        }
    }
    Ok(kept)
}

fn outcome(reader: &mut Reader<'_>, id: u64) -> Result<Outcome, DecodeError> {
    Ok(match reader.byte()? {
        ABSENT => Outcome::Row(None),
        ROW => Outcome::Row(Some(row(reader, id)?)),
        MULTI_GOT => {
            let count = count(reader, 1, limits::MULTI_GET_KEYS_MAX)?;
            let parts = (0..count).map(|_| part(reader, id));
            Outcome::MultiGot(parts.collect::<Result<_, _>>()?)
        }
        PAGE => {
            let rows = batch(reader)?;
            let resume_after = resume_after(reader.nested()?, id)?;
            Outcome::Page(Page {
                rows,
                resume_after,
                touched: Touched::default(),
            })
        }
        SCANNED => {
            let rows = batch(reader)?;
            let (mut fields, mut resume_after) = (reader.nested()?, None);
            while let Some((tag, mut field)) = fields.optional()? {
                match tag {
                    RESUME_AFTER => resume_after = Some(owned_key(&mut field)?),
                    tag => ignored(tag, id)?,
                }
            }
            Outcome::Scanned(ScanPage {
                rows,
                resume_after,
                touched: Touched::default(),
            })
        }
        WRITTEN => {
            let count = count(reader, RESULT_LEN_MIN, limits::BATCH_ROWS_MAX)?;
            let results = (0..count).map(|_| written(reader, id));
            Outcome::Written(results.collect::<Result<_, _>>()?)
        }
        DELETED => Outcome::Deleted(Deleted {
            rows: reader.varint()?,
            bytes: reader.varint()?,
            resume_after: resume_after(reader.nested()?, id)?,
        }),
        STATUS => {
            let map_version = reader.varint()?;
            let count = reader.count("shards", STATUS_LEN_MIN)?;
            let shards = (0..count).map(|_| status(reader.nested()?, id));
            Outcome::Status(StatusOfNode {
                map_version,
                wall: None,
                shards: shards.collect::<Result<_, _>>()?,
            })
        }
        CLUSTER_MAP => Outcome::ClusterMap(reader.text("map")?),
        RECORDS_KEPT => {
            let count = reader.count("shards", RESULT_LEN_MIN)?;
            let results = (0..count).map(|_| shard_result(reader, id));
            Outcome::RecordsKept(results.collect::<Result<_, _>>()?)
        }
        KEPT_RECORDS => Outcome::KeptRecords(kept(reader.nested()?, id)?.map(Arc::new)),
        LETTERS => Outcome::Letters(letters(reader)?),
        FAILED => Outcome::Failed(error(reader, id)?),
        _ => return Err(DecodeError::UnknownKind { id }),
    })
}

fn count(reader: &mut Reader<'_>, each: usize, max: usize) -> Result<usize, DecodeError> {
    let count = reader.count("results", each)?;
    if count > max {
        return Err(bad("results", &count));
    }
    Ok(count)
}

fn put_resume_after(out: &mut Vec<u8>, last: Option<&[u8]>) {
    put_nested(out, |out| {
        if let Some(last) = last {
            put_optional(out, RESUME_AFTER, last);
        }
    });
}

fn resume_after(mut fields: Reader<'_>, id: u64) -> Result<Option<bytes::Bytes>, DecodeError> {
    let mut last = None;
    while let Some((tag, mut field)) = fields.optional()? {
        match tag {
            RESUME_AFTER => {
                let len = field.left();
                last = Some(bytes::Bytes::copy_from_slice(field.raw(len)?));
            }
            tag => ignored(tag, id)?,
        }
    }
    Ok(last)
}

fn put_part(out: &mut Vec<u8>, part: &AnswerPart) {
    match part {
        Ok(None) => out.push(PART_ABSENT),
        Ok(Some(row)) => {
            out.push(PART_ROW);
            put_row(out, row);
        }
        Err(error) => {
            out.push(PART_FAILED);
            put_error(out, error);
        }
    }
}

fn part(reader: &mut Reader<'_>, id: u64) -> Result<AnswerPart, DecodeError> {
    Ok(match reader.byte()? {
        PART_ABSENT => Ok(None),
        PART_ROW => Ok(Some(row(reader, id)?)),
        PART_FAILED => Err(error(reader, id)?),
        other => return Err(bad("row", &other)),
    })
}
