//! The stored form of chunks of large values.
//!
//! Key: `upload id | index (u32, big endian)`, without a namespace, because rows of several namespaces may refer to one
//! upload. Chunk: its bytes and the same kind of checksum as a row has, so that a chunk found under another key counts
//! as damaged.

use bytes::Bytes;
use redb::TableDefinition;
use umbo_types::UploadId;

use crate::file_error::FileError;
use crate::row_codec::checksum;

/// Key of a chunk → the chunk.
pub(crate) const CHUNKS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("chunks");

const KEY_LEN: usize = UploadId::LEN + 4;

/// Returns the key of a chunk.
pub(crate) fn chunk_key(upload: UploadId, index: u32) -> [u8; KEY_LEN] {
    let mut key = [0; KEY_LEN];
    let (id, at) = key.split_at_mut(UploadId::LEN);
    id.copy_from_slice(&upload.0);
    at.copy_from_slice(&index.to_be_bytes());
    key
}

/// Encodes a chunk.
pub(crate) fn encode_chunk(key: &[u8], bytes: &[u8]) -> Vec<u8> {
    [bytes, &checksum(key, bytes).to_be_bytes()].concat()
}

/// Checks and copies a chunk found under `key`.
pub(crate) fn decode_chunk(key: &[u8], stored: &[u8]) -> Result<Bytes, FileError> {
    let damaged = || FileError::Damaged("the checksum of a chunk is wrong".to_owned());
    let (bytes, stored) = stored.split_last_chunk().ok_or_else(damaged)?;
    if checksum(key, bytes) != u32::from_be_bytes(*stored) {
        return Err(damaged());
    }
    Ok(Bytes::copy_from_slice(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_comes_back_under_its_own_key_only() {
        let upload = UploadId([3; UploadId::LEN]);
        let (key, other) = (chunk_key(upload, 1), chunk_key(upload, 2));
        assert!(key < other);
        let mut stored = encode_chunk(&key, b"bytes");
        assert_eq!(decode_chunk(&key, &stored).unwrap(), &b"bytes"[..]);
        assert!(decode_chunk(&other, &stored).is_err());
        stored[2] ^= 1;
        assert!(decode_chunk(&key, &stored).is_err());
        assert!(decode_chunk(&key, b"x").is_err());
    }
}
