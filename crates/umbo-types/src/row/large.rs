//! The reference to a large value, which a row has in place of the value. The bytes of the value are stored next to
//! the row.

use std::fmt;

use crate::limits::{LARGE_CHUNK_LEN, LARGE_VALUE_LEN_MAX};

/// Names the bytes of one upload within a shard: random, never given twice, and not bound to a row, because several
/// rows may refer to the same bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UploadId(pub [u8; UploadId::LEN]);

impl UploadId {
    /// Length of the id, in bytes.
    pub const LEN: usize = 16;
}

impl fmt::Debug for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// The bytes of a large value: their upload, their number and their digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LargeRef {
    /// The upload that has them.
    pub upload: UploadId,
    /// Their number, at most [`LARGE_VALUE_LEN_MAX`].
    pub len: u64,
    /// SHA-256 of all of them.
    pub sha256: [u8; LargeRef::DIGEST_LEN],
}

impl LargeRef {
    /// Length of a SHA-256, in bytes.
    pub const DIGEST_LEN: usize = 32;
    /// Length of a reference, in bytes: upload, length (big endian), digest.
    pub const LEN: usize = UploadId::LEN + 8 + Self::DIGEST_LEN;

    /// Encodes the reference: the bytes of a value in the large form.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let (upload, rest) = bytes.split_at_mut(UploadId::LEN);
        let (len, digest) = rest.split_at_mut(8);
        upload.copy_from_slice(&self.upload.0);
        len.copy_from_slice(&self.len.to_be_bytes());
        digest.copy_from_slice(&self.sha256);
        bytes
    }

    /// Decodes a reference. Returns `None` if the bytes are not a reference.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let split = || {
            let (upload, rest) = bytes.split_first_chunk()?;
            let (len, digest) = rest.split_first_chunk()?;
            Some(Self {
                upload: UploadId(*upload),
                len: u64::from_be_bytes(*len),
                sha256: digest.try_into().ok()?,
            })
        };
        split().filter(|large| large.len <= LARGE_VALUE_LEN_MAX)
    }

    /// Returns the number of its chunks. All but the last have [`LARGE_CHUNK_LEN`] bytes.
    pub const fn chunks(&self) -> u32 {
        self.len.div_ceil(LARGE_CHUNK_LEN as u64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_comes_back_and_hostile_bytes_are_none() {
        let large = LargeRef {
            upload: UploadId([7; 16]),
            len: LARGE_VALUE_LEN_MAX,
            sha256: [9; 32],
        };
        let bytes = large.encode();
        assert_eq!(LargeRef::decode(&bytes), Some(large));
        assert_eq!(large.chunks(), 261);
        assert_eq!(large.upload.to_string(), "07".repeat(16));
        for len in (0..LargeRef::LEN).chain([LargeRef::LEN + 1]) {
            let mut other = bytes.to_vec();
            other.resize(len, 0);
            assert_eq!(LargeRef::decode(&other), None);
        }
        let mut too_long = bytes;
        too_long[UploadId::LEN + 7] += 1;
        assert_eq!(LargeRef::decode(&too_long), None);
    }
}
