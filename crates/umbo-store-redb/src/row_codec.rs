//! The encoding of stored rows: version, expiry and value as bytes, and the detection of damage.
//!
//! `format u8 | flags u8 | version u64 | [expires_at u64] | type length u8, type | encoding length u8,
//! encoding | value | checksum u32`, integers big endian. The checksum is the low half of XXH3-64 over
//! everything before it, xor the low half of XXH3-64 of the physical key, so that a row found under another
//! key counts as damaged. (A seed would have the same effect, but costs deriving a secret for each row.)
//!
//! Owns the encoding; does not depend on redb. The invariant: bytes that [`encode`] did not write for this
//! key are refused, and no bytes make the decoder panic.

use umbo_types::{Row, Timestamp, Value, Version};
use xxhash_rust::xxh3::xxh3_64;

const FORMAT: u8 = 1;
const FLAG_EXPIRES: u8 = 1;
const CHECKSUM_LEN: usize = 4;

/// The part of a row that a writer needs when it replaces the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowHead {
    /// Version.
    pub(crate) version: Version,
    /// Expiry.
    pub(crate) expires_at: Option<Timestamp>,
}

impl RowHead {
    /// Returns whether a reader sees the row at `now`.
    pub(crate) fn is_visible(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|at| at > now)
    }
}

/// A stored row, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowView<'a> {
    /// Version and expiry.
    pub(crate) head: RowHead,
    /// Media type.
    pub(crate) content_type: &'a [u8],
    /// Content encoding.
    pub(crate) content_encoding: &'a [u8],
    /// Value.
    pub(crate) value: &'a [u8],
}

impl RowView<'_> {
    /// Copies the row.
    pub(crate) fn to_row(self) -> Row {
        let copy = bytes::Bytes::copy_from_slice;
        Row {
            value: Value {
                bytes: copy(self.value),
                content_type: copy(self.content_type),
                content_encoding: copy(self.content_encoding),
            },
            version: self.head.version,
            expires_at: self.head.expires_at,
        }
    }
}

/// Why stored bytes are not a valid row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RowDamage {
    /// Shorter than its parts say.
    #[error("a row is cut short")]
    CutShort,
    /// A format other than the only known one.
    #[error("a row has format {0}, which this version does not know")]
    UnknownFormat(u8),
    /// The bytes have changed since they were written.
    #[error("the checksum of a row is wrong")]
    Checksum,
}

/// Encodes a row into `out`, replacing what is there.
pub(crate) fn encode(out: &mut Vec<u8>, key: &[u8], head: RowHead, value: &Value) {
    out.clear();
    out.push(FORMAT);
    out.push(if head.expires_at.is_some() {
        FLAG_EXPIRES
    } else {
        0
    });
    out.extend_from_slice(&head.version.0.to_be_bytes());
    if let Some(at) = head.expires_at {
        out.extend_from_slice(&at.0.to_be_bytes());
    }
    for field in [&value.content_type, &value.content_encoding] {
        out.push(field.len() as u8);
        out.extend_from_slice(field);
    }
    out.extend_from_slice(&value.bytes);
    let checksum = checksum(key, out);
    out.extend_from_slice(&checksum.to_be_bytes());
}

/// Returns an upper bound of the encoded length.
pub(crate) fn encoded_len_max(value: &Value) -> usize {
    2 + 8
        + 8
        + 2
        + CHECKSUM_LEN
        + value.content_type.len()
        + value.content_encoding.len()
        + value.bytes.len()
}

/// Checks and decodes a row found under `key`.
pub(crate) fn decode<'a>(key: &[u8], bytes: &'a [u8]) -> Result<RowView<'a>, RowDamage> {
    let (body, stored) = bytes
        .split_last_chunk::<CHECKSUM_LEN>()
        .ok_or(RowDamage::CutShort)?;
    let (head, rest) = split_head(body)?;
    if checksum(key, body) != u32::from_be_bytes(*stored) {
        return Err(RowDamage::Checksum);
    }
    let (content_type, rest) = split_field(rest)?;
    let (content_encoding, value) = split_field(rest)?;
    Ok(RowView {
        head,
        content_type,
        content_encoding,
        value,
    })
}

/// Decodes version and expiry without reading the rest, so without checking the checksum.
pub(crate) fn decode_head(bytes: &[u8]) -> Result<RowHead, RowDamage> {
    split_head(bytes).map(|(head, _)| head)
}

fn checksum(key: &[u8], body: &[u8]) -> u32 {
    (xxh3_64(body) ^ xxh3_64(key)) as u32
}

fn split_head(bytes: &[u8]) -> Result<(RowHead, &[u8]), RowDamage> {
    let (&[format, flags], rest) = bytes.split_first_chunk().ok_or(RowDamage::CutShort)?;
    if format != FORMAT || flags & !FLAG_EXPIRES != 0 {
        return Err(RowDamage::UnknownFormat(format));
    }
    let (version, mut rest) = split_u64(rest)?;
    let mut expires_at = None;
    if flags & FLAG_EXPIRES != 0 {
        let (at, after) = split_u64(rest)?;
        (expires_at, rest) = (Some(Timestamp(at)), after);
    }
    let head = RowHead {
        version: Version(version),
        expires_at,
    };
    Ok((head, rest))
}

fn split_u64(bytes: &[u8]) -> Result<(u64, &[u8]), RowDamage> {
    let (number, rest) = bytes.split_first_chunk().ok_or(RowDamage::CutShort)?;
    Ok((u64::from_be_bytes(*number), rest))
}

fn split_field(bytes: &[u8]) -> Result<(&[u8], &[u8]), RowDamage> {
    let (&len, rest) = bytes.split_first().ok_or(RowDamage::CutShort)?;
    rest.split_at_checked(len.into()).ok_or(RowDamage::CutShort)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row() -> impl Strategy<Value = (RowHead, Value)> {
        let bytes = |len| prop::collection::vec(any::<u8>(), 0..len);
        let head = (any::<u64>(), prop::option::of(any::<u64>()));
        (head, bytes(300), bytes(256), bytes(4)).prop_map(|((version, at), value, kind, coding)| {
            let head = RowHead {
                version: Version(version),
                expires_at: at.map(Timestamp),
            };
            (head, Value::new(value, kind, coding).unwrap())
        })
    }

    proptest! {
        #[test]
        fn rows_come_back((head, value) in row(), key in prop::collection::vec(any::<u8>(), 0..9)) {
            let mut bytes = Vec::new();
            encode(&mut bytes, &key, head, &value);
            prop_assert!(bytes.len() <= encoded_len_max(&value));
            let view = decode(&key, &bytes).unwrap();
            let row = view.to_row();
            prop_assert_eq!(row.value, value);
            prop_assert_eq!((row.version, row.expires_at), (head.version, head.expires_at));
            prop_assert_eq!(decode_head(&bytes), Ok(head));
        }

        #[test]
        fn a_changed_byte_or_another_key_is_noticed(
            (head, value) in row(),
            at in any::<prop::sample::Index>(),
            flip in 1_u8..,
        ) {
            let mut bytes = Vec::new();
            encode(&mut bytes, b"key", head, &value);
            prop_assert_eq!(decode(b"kez", &bytes), Err(RowDamage::Checksum));
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert!(decode(b"key", &bytes).is_err());
            bytes[at] ^= flip;
            bytes.truncate(at);
            prop_assert!(decode(b"key", &bytes).is_err());
        }

        #[test]
        fn hostile_bytes_do_not_panic(bytes in prop::collection::vec(0_u8..20, 0..60)) {
            let _ = decode(b"key", &bytes);
            let _ = decode_head(&bytes);
            // A valid checksum lets the parser behind it see the bytes.
            let sum = checksum(b"key", &bytes).to_be_bytes();
            let _ = decode(b"key", &[&bytes[..], &sum].concat());
        }
    }
}
