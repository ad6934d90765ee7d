//! Rows of a chunk on the wire: one buffer, and columns of what describes it.

use umbo_store::{RowBatch, RowRef};
use umbo_types::{Timestamp, Version, limits};

use crate::error::DecodeError;
use crate::message;

/// Lengths of each row: partition key, sort key, content type, content encoding, value held, value
/// stored.
const LENGTHS: usize = 6;

pub(crate) fn encode(rows: &RowBatch) -> message::Rows {
    let mut columns = message::Rows {
        lengths: Vec::with_capacity(rows.len() * LENGTHS),
        versions: Vec::with_capacity(rows.len()),
        expires_at_us: Vec::with_capacity(rows.len()),
        buffer: rows.buffer().to_vec().into(),
    };
    for row in rows.iter() {
        columns.lengths.extend([
            row.partition.len() as u32,
            row.sort.len() as u32,
            row.content_type.len() as u32,
            row.content_encoding.len() as u32,
            row.value.len() as u32,
            row.value_len,
        ]);
        columns.versions.push(row.version.0);
        let expiry = row.expires_at.map_or(0, |at| at.0.saturating_add(1));
        columns.expires_at_us.push(expiry);
    }
    columns
}

pub(crate) fn decode(columns: Option<message::Rows>) -> Result<RowBatch, DecodeError> {
    let columns = columns.unwrap_or_default();
    let count = columns.versions.len();
    let bad = |found: String| DecodeError::BadField {
        field: "rows",
        found,
    };
    if columns.lengths.len() != count * LENGTHS || columns.expires_at_us.len() != count {
        return Err(bad("columns of different lengths".to_owned()));
    }
    let mut rows = RowBatch::default();
    rows.reserve(count, columns.buffer.len());
    let mut rest = &columns.buffer[..];
    let described = columns.lengths.chunks_exact(LENGTHS);
    let instants = columns.versions.iter().zip(&columns.expires_at_us);
    for (lengths, (&version, &expiry)) in described.zip(instants) {
        check_lengths(lengths)?;
        let mut take = |length: u32| {
            let (part, after) = rest
                .split_at_checked(length as usize)
                .ok_or_else(|| bad("less than it describes".to_owned()))?;
            rest = after;
            Ok::<_, DecodeError>(part)
        };
        let (partition, sort) = (take(lengths[0])?, take(lengths[1])?);
        let (content_type, content_encoding) = (take(lengths[2])?, take(lengths[3])?);
        rows.push(RowRef {
            partition,
            sort,
            value: take(lengths[4])?,
            value_len: lengths[5],
            content_type,
            content_encoding,
            version: Version(version),
            expires_at: expiry.checked_sub(1).map(Timestamp),
        });
    }
    if !rest.is_empty() {
        return Err(bad("more than it describes".to_owned()));
    }
    Ok(rows)
}

fn check_lengths(lengths: &[u32]) -> Result<(), DecodeError> {
    let longest = [
        limits::PARTITION_KEY_LEN_MAX,
        limits::SORT_KEY_LEN_MAX,
        limits::CONTENT_FIELD_LEN_MAX,
        limits::CONTENT_FIELD_LEN_MAX,
        limits::VALUE_LEN_MAX,
        limits::VALUE_LEN_MAX,
    ];
    for (&length, max) in lengths.iter().zip(longest) {
        if length as usize > max {
            return Err(DecodeError::BadField {
                field: "rows",
                found: format!("a length of {length}, where {max} is the longest"),
            });
        }
    }
    Ok(())
}
