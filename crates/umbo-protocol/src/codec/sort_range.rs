//! Ranges of sort keys.

use umbo_store::SortRange;
use umbo_types::limits;

use crate::error::DecodeError;
use crate::wire::{Reader, bad, ignored, put_bytes, put_nested, put_optional};

/// Optional field of a range.
const END: u8 = 1;

/// Encodes a range of sort keys.
pub(super) fn put_sort_range(out: &mut Vec<u8>, range: &SortRange) {
    put_bytes(out, &range.start);
    put_nested(out, |out| {
        if let Some(end) = &range.end {
            put_optional(out, END, end);
        }
    });
}

/// Bounds may be a byte longer than a sort key: see [`SortRange`].
pub(super) fn sort_range(reader: &mut Reader<'_>, id: u64) -> Result<SortRange, DecodeError> {
    let start = reader.shared()?;
    let (mut fields, mut end) = (reader.nested()?, None);
    while let Some((tag, mut field)) = fields.optional()? {
        match tag {
            END => {
                let len = field.left();
                end = Some(bytes::Bytes::copy_from_slice(field.raw(len)?));
            }
            tag => ignored(tag, id)?,
        }
    }
    let longest = start.len().max(end.as_ref().map_or(0, bytes::Bytes::len));
    if longest > limits::SORT_KEY_LEN_MAX + 1 {
        return Err(bad("range", &format_args!("a bound of {longest} bytes")));
    }
    Ok(SortRange { start, end })
}
