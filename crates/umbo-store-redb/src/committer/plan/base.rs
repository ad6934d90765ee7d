//! What a plan knows of the stored row of a key.

use bytes::Bytes;
use umbo_store::{CounterRow, number_of};

use crate::row_codec::{self, RowHead};

/// The stored state of a key before the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Base {
    /// Not read, because no condition needed it so far.
    Unread,
    /// Head of the stored row, or `None` if no row is stored; with the number in the row, if an increment needs it.
    Row(Option<RowHead>, Option<CounterRow>),
    /// Bytes that cannot be decoded, with the reason.
    Damaged(String),
}

impl Base {
    /// Returns the state of a key with these stored bytes, with the number in the row if `is_counter`.
    pub(crate) fn of(key: &[u8], row: Option<&[u8]>, is_counter: bool) -> Self {
        let Some(row) = row else {
            return Self::Row(None, None);
        };
        match row_codec::decode(key, row) {
            Ok(row) => {
                let counter = is_counter.then(|| CounterRow {
                    number: number_of(row.value, row.content_encoding),
                    content_type: Bytes::copy_from_slice(row.content_type),
                    expires_at: row.head.expires_at,
                });
                Self::Row(Some(row.head), counter)
            }
            Err(damage) => Self::Damaged(damage.to_string()),
        }
    }
}
