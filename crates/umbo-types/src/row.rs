//! Rows: the values of keys.

use bytes::Bytes;

use crate::clock::Timestamp;
use crate::limits::{CONTENT_FIELD_LEN_MAX, VALUE_LEN_MAX};
use crate::version::Version;

/// The value of a key as a client stores it: the bytes and their encoding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Value {
    /// The bytes, as sent. At most 1 MiB.
    pub bytes: Bytes,
    /// Media type as sent; empty if the client sent none. Visible ASCII and spaces.
    pub content_type: Bytes,
    /// Content encoding as sent; empty for the identity. Visible ASCII and spaces.
    pub content_encoding: Bytes,
}

/// Why a value cannot be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// The value has this many bytes.
    #[error("a value has at most {VALUE_LEN_MAX} bytes, this one has {0}")]
    ValueTooLarge(usize),
    /// A content field has this many bytes.
    #[error(
        "a content type or encoding has at most {CONTENT_FIELD_LEN_MAX} bytes, this one has {0}"
    )]
    ContentFieldTooLong(usize),
}

impl Value {
    /// Checks every length.
    pub fn new(
        bytes: impl Into<Bytes>,
        content_type: impl Into<Bytes>,
        content_encoding: impl Into<Bytes>,
    ) -> Result<Self, RowError> {
        let value = Self {
            bytes: bytes.into(),
            content_type: content_type.into(),
            content_encoding: content_encoding.into(),
        };
        if value.bytes.len() > VALUE_LEN_MAX {
            return Err(RowError::ValueTooLarge(value.bytes.len()));
        }
        for field in [&value.content_type, &value.content_encoding] {
            if field.len() > CONTENT_FIELD_LEN_MAX {
                return Err(RowError::ContentFieldTooLong(field.len()));
            }
        }
        Ok(value)
    }
}

/// A stored row, as a reader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// What the client stored.
    pub value: Value,
    /// Version of the row; the `ETag`.
    pub version: Version,
    /// Instant from which the row is no longer visible; none for a row without expiry.
    pub expires_at: Option<Timestamp>,
}

impl Row {
    /// Returns whether the row is gone for a reader at `now`. A row that expires at `now` is gone.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}
