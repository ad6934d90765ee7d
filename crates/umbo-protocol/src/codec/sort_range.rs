//! Ranges of sort keys.

use umbo_store::SortRange;
use umbo_types::limits;

use super::field::{Field, option, put_option};
use crate::error::DecodeError;
use crate::wire::{Reader, bad};

/// Bounds may be a byte longer than a sort key: see [`SortRange`].
impl Field for SortRange {
    fn put(&self, out: &mut Vec<u8>) {
        self.start.put(out);
        put_option(out, self.end.as_ref());
    }

    fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        let start = reader.shared()?;
        let end: Option<bytes::Bytes> = option(reader, "end")?;
        let longest = start.len().max(end.as_ref().map_or(0, bytes::Bytes::len));
        if longest > limits::SORT_KEY_LEN_MAX + 1 {
            return Err(bad("range", &format_args!("a bound of {longest} bytes")));
        }
        Ok(Self { start, end })
    }
}
