//! Rows: the values of keys.

mod form;
mod large;

use bytes::Bytes;

pub use self::form::{FormError, PLAIN_LEN_LEN, StoredForm};
pub use self::large::{LargeRef, UploadId};

use crate::clock::Timestamp;
use crate::limits::{CONTENT_FIELD_LEN_MAX, LARGE_VALUE_LEN_MAX, VALUE_LEN_MAX};
use crate::version::Version;

/// The value of a key: the bytes, their encoding and their stored form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Value {
    /// The bytes; in the plain form as the client sent them. In a store at most 1 MiB.
    pub bytes: Bytes,
    /// Their stored form.
    pub form: StoredForm,
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
    /// The value has this many bytes, more than a large one may have.
    #[error("a value has at most {LARGE_VALUE_LEN_MAX} bytes, this one has {0} or more")]
    LongerThanAny(u64),
    /// The bytes are not valid in their form.
    #[error("{0}")]
    BadForm(#[from] FormError),
    /// A content field has this many bytes.
    #[error(
        "a content type or encoding has at most {CONTENT_FIELD_LEN_MAX} bytes, this one has {0}"
    )]
    ContentFieldTooLong(usize),
}

impl Value {
    /// Makes a value in the plain form; checks every length.
    pub fn new(
        bytes: impl Into<Bytes>,
        content_type: impl Into<Bytes>,
        content_encoding: impl Into<Bytes>,
    ) -> Result<Self, RowError> {
        let value = Self::unbounded(bytes, content_type, content_encoding)?;
        if value.is_long() {
            return Err(RowError::ValueTooLarge(value.bytes.len()));
        }
        Ok(value)
    }

    /// Makes a value in the plain form, of any number of bytes; checks the other lengths.
    pub fn unbounded(
        bytes: impl Into<Bytes>,
        content_type: impl Into<Bytes>,
        content_encoding: impl Into<Bytes>,
    ) -> Result<Self, RowError> {
        let value = Self {
            bytes: bytes.into(),
            form: StoredForm::Plain,
            content_type: content_type.into(),
            content_encoding: content_encoding.into(),
        };
        for field in [&value.content_type, &value.content_encoding] {
            if field.len() > CONTENT_FIELD_LEN_MAX {
                return Err(RowError::ContentFieldTooLong(field.len()));
            }
        }
        Ok(value)
    }

    /// Returns whether the bytes are too many for a row, so that they have to be stored as an upload.
    pub fn is_long(&self) -> bool {
        self.bytes.len() > VALUE_LEN_MAX
    }

    /// Returns the value with its bytes in this form; checks that they begin as the form does.
    pub fn in_form(self, form: StoredForm) -> Result<Self, RowError> {
        form.plain_len(&self.bytes)?;
        Ok(Self { form, ..self })
    }

    /// Returns the large value for a reference: its bytes are stored next to its row.
    #[must_use]
    pub fn of_large(self, large: &LargeRef) -> Self {
        Self {
            bytes: Bytes::copy_from_slice(&large.encode()),
            form: StoredForm::Large,
            ..self
        }
    }

    /// Returns the reference of a large value. Returns `None` for other values, and if the bytes are not a
    /// reference.
    pub fn large(&self) -> Option<LargeRef> {
        match self.form {
            StoredForm::Large => LargeRef::decode(&self.bytes),
            StoredForm::Plain | StoredForm::Zstd => None,
        }
    }

    /// Returns the number of bytes that a shard keeps for the value, including the bytes of a large value next to
    /// its row.
    pub fn stored_len(&self) -> usize {
        let beside = self.large().map_or(0, |large| large.len as usize);
        self.bytes.len() + beside
    }

    /// Returns the number of bytes that the client stored, or 0 if the bytes are not valid in their form.
    pub fn plain_len(&self) -> usize {
        self.form.plain_len(&self.bytes).unwrap_or(0)
    }
}

/// A stored row, as a reader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The value that the client stored.
    pub value: Value,
    /// Version of the row; the `ETag`.
    pub version: Version,
    /// Instant from which the row is no longer visible, or `None` for a row without expiry.
    pub expires_at: Option<Timestamp>,
}

impl Row {
    /// Returns whether the row is gone for a reader at `now`. A row that expires at `now` is gone.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}
