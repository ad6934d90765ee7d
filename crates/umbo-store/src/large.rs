//! Large values: bytes that are stored in chunks, separately from their row.
//!
//! An upload gathers the chunks, one after the other. A put of a row whose value is a [`LargeRef`] to the upload makes
//! the chunks the value of the row, as an ordinary mutation with its condition, expiry and idempotency. A shard counts
//! the rows that refer to an upload, and reclaims an upload without such rows by itself. The invariant: a row refers
//! only to a whole upload in the same shard.
//!
//! [`LargeRef`]: umbo_types::LargeRef

use std::time::Duration;

use bytes::Bytes;
use umbo_types::{LargeRef, NamespaceId, UploadId};

/// An upload that no row has ever referred to is kept for this time after its last chunk. It is twice the time that a
/// sender may be silent within a body.
pub const UPLOAD_IDLE: Duration = Duration::from_mins(2);
/// An upload is kept at least for this time after the last row that referred to it is gone, because reads that have
/// begun may take this long.
pub const READ_GRACE: Duration = Duration::from_secs(20);

/// A step of an upload. It changes no row. A row that an earlier mutation of the same commit stores counts as a row
/// that refers to the upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UploadStep {
    /// Adds a chunk, and begins the upload with the first. Chunks are added in order, and all but the last have
    /// [`LARGE_CHUNK_LEN`](umbo_types::limits::LARGE_CHUNK_LEN) bytes. A sender that does not know whether a chunk was
    /// added may add it again.
    Append {
        /// The upload.
        upload: UploadId,
        /// Number of the chunk, from 0 on.
        index: u32,
        /// Bytes of the chunk, at least one.
        bytes: Bytes,
    },
    /// Gives up an upload that no row refers to; its chunks are reclaimed soon. Other uploads stay as they are.
    Abandon(UploadId),
}

impl UploadStep {
    /// Returns the upload that the step changes.
    pub const fn upload(&self) -> &UploadId {
        match self {
            Self::Append { upload, .. } | Self::Abandon(upload) => upload,
        }
    }

    /// Returns the bytes that the step stores.
    pub const fn len(&self) -> usize {
        match self {
            Self::Append { bytes, .. } => bytes.len(),
            Self::Abandon(_) => 0,
        }
    }

    /// Returns whether the step stores nothing.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A chunk to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkRequest {
    /// Namespace of the row whose value has the chunk.
    pub namespace: NamespaceId,
    /// The value.
    pub large: LargeRef,
    /// Number of the chunk, from 0 on.
    pub index: u32,
}

/// State of an upload: its length so far, and the number of rows that refer to it. The rules of uploads, which every
/// engine shares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UploadState {
    /// Bytes of its chunks.
    pub len: u64,
    /// Rows that refer to it.
    pub references: u32,
}

impl UploadState {
    /// Returns the state after a chunk was added, or `None` if the chunk must not be added. `state` is `None` if the
    /// upload does not exist.
    pub fn append(state: Option<Self>, index: u32, len: usize) -> Option<Self> {
        use umbo_types::limits::{LARGE_CHUNK_LEN, LARGE_VALUE_LEN_MAX};
        let begins = u64::from(index) * LARGE_CHUNK_LEN as u64;
        let end = begins + len as u64;
        let is_chunk = len > 0 && len <= LARGE_CHUNK_LEN && end <= LARGE_VALUE_LEN_MAX;
        let known = state.unwrap_or_default();
        let is_next = known.len == begins;
        let is_known = known.len == end || (known.len > end && len == LARGE_CHUNK_LEN);
        // An upload that a row refers to does not change any more.
        let is_taken = known.references == 0 && (is_next || is_known);
        let len = known.len.max(end);
        (is_chunk && is_taken).then_some(Self { len, ..known })
    }

    /// Returns whether a row may refer to the upload by this reference.
    pub const fn is_whole(&self, large: &LargeRef) -> bool {
        // An upload that is being reclaimed has length 0.
        self.len > 0 && self.len == large.len
    }
}

#[cfg(test)]
mod tests {
    use umbo_types::limits::{LARGE_CHUNK_LEN, LARGE_VALUE_LEN_MAX};

    use super::*;

    #[test]
    fn chunks_are_added_in_order_and_may_be_added_again() {
        let full = LARGE_CHUNK_LEN;
        let first = UploadState::append(None, 0, full).unwrap();
        assert_eq!(first.len, full as u64);
        assert_eq!(UploadState::append(Some(first), 0, full), Some(first));
        let second = UploadState::append(Some(first), 1, 5).unwrap();
        assert_eq!(second.len, full as u64 + 5);
        assert_eq!(UploadState::append(Some(second), 0, full), Some(second));
        for (state, index, len) in [
            (None, 1, full),
            (None, 0, 0),
            (None, 0, full + 1),
            (Some(first), 2, full),
            (Some(first), 0, 7),
            (Some(second), 2, 1),
        ] {
            assert_eq!(
                UploadState::append(state, index, len),
                None,
                "{index} {len}"
            );
        }
        let referred = UploadState {
            references: 1,
            ..first
        };
        assert_eq!(UploadState::append(Some(referred), 1, 1), None);
    }

    #[test]
    fn an_upload_ends_at_the_longest_value() {
        let chunks = LARGE_VALUE_LEN_MAX / LARGE_CHUNK_LEN as u64;
        let before = UploadState {
            len: chunks * LARGE_CHUNK_LEN as u64,
            references: 0,
        };
        let left = (LARGE_VALUE_LEN_MAX - before.len) as usize;
        let whole = UploadState::append(Some(before), chunks as u32, left).unwrap();
        assert_eq!(whole.len, LARGE_VALUE_LEN_MAX);
        assert_eq!(
            UploadState::append(Some(before), chunks as u32, left + 1),
            None
        );
    }
}
