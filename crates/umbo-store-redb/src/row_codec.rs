//! The encoding of stored rows: version, expiry and value as bytes, and the detection of damage.
//!
//! `format u8 | flags u8 | version u64 | [expires_at u64] | [as_of u64] | [form u8] | type length u8, type | encoding
//! length u8, encoding | value | checksum u32`, integers big endian. The checksum is the low half of XXH3-64 over
//! everything before it, xor the low half of XXH3-64 of the physical key, so that a row found under another key counts
//! as damaged. (A seed would have the same effect, but costs deriving a secret for each row.)
//!
//! Owns the encoding; does not depend on redb. The invariant: bytes that [`encode`] did not write for this
//! key are refused, and no bytes make the decoder panic.

use umbo_store::RowStamp;
use umbo_types::{FormError, LargeRef, Row, StoredForm, Timestamp, Value, Version};
use xxhash_rust::xxh3::xxh3_64;

const FORMAT: u8 = 1;
const FLAG_EXPIRES: u8 = 1;
const FLAG_AS_OF: u8 = 2;
/// The value is not in the plain form, and the code of its form follows. `umbo-types` assigns the codes. Further
/// attributes of a form (a dictionary, a key) are stored at the beginning of the value, so that no further flag is
/// needed.
const FLAG_FORM: u8 = 4;
const FLAGS: u8 = FLAG_EXPIRES | FLAG_AS_OF | FLAG_FORM;
const CHECKSUM_LEN: usize = 4;

/// The part of a row that a writer needs when it replaces the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowHead {
    /// Version.
    pub(crate) version: Version,
    /// Expiry.
    pub(crate) expires_at: Option<Timestamp>,
    /// Instant of its data, if a load has put it.
    pub(crate) as_of: Option<Timestamp>,
}

impl RowHead {
    /// Returns whether a reader sees the row at `now`.
    pub(crate) fn is_visible(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|at| at > now)
    }

    /// Returns the stamp of the row, the input of conditions.
    pub(crate) const fn stamp(&self) -> RowStamp {
        RowStamp {
            version: self.version,
            as_of: self.as_of,
        }
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
    /// Value, in its form.
    pub(crate) value: &'a [u8],
    /// Form of the value's bytes.
    pub(crate) form: StoredForm,
    /// Length of the value as the client stored it.
    pub(crate) plain_len: usize,
}

impl RowView<'_> {
    /// Copies the row.
    pub(crate) fn to_row(self) -> Row {
        let copy = bytes::Bytes::copy_from_slice;
        Row {
            value: Value {
                bytes: copy(self.value),
                form: self.form,
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
    /// The row is shorter than its parts say.
    #[error("a row is cut short")]
    CutShort,
    /// The format is unknown.
    #[error("a row has format {0}, which this version does not know")]
    UnknownFormat(u8),
    /// The form of the value is unknown, or the beginning of the value does not fit the form.
    #[error("{0}")]
    Form(#[from] FormError),
    /// The bytes have changed since they were written.
    #[error("the checksum of a row is wrong")]
    Checksum,
}

/// Encodes a row into `out`, replacing its content.
pub(crate) fn encode(out: &mut Vec<u8>, key: &[u8], head: RowHead, value: &Value) {
    out.clear();
    append(out, key, head, value);
}

/// Appends an encoded row to `out`.
pub(crate) fn append(out: &mut Vec<u8>, key: &[u8], head: RowHead, value: &Value) {
    let start = out.len();
    out.push(FORMAT);
    let is_formed = value.form != StoredForm::Plain;
    let flag = |is_there, flag| if is_there { flag } else { 0 };
    out.push(
        flag(head.expires_at.is_some(), FLAG_EXPIRES)
            | flag(head.as_of.is_some(), FLAG_AS_OF)
            | flag(is_formed, FLAG_FORM),
    );
    out.extend_from_slice(&head.version.0.to_be_bytes());
    for at in [head.expires_at, head.as_of].into_iter().flatten() {
        out.extend_from_slice(&at.0.to_be_bytes());
    }
    if is_formed {
        out.push(value.form.code());
    }
    for field in [&value.content_type, &value.content_encoding] {
        out.push(field.len() as u8);
        out.extend_from_slice(field);
    }
    out.extend_from_slice(&value.bytes);
    let checksum = checksum(key, &out[start..]);
    out.extend_from_slice(&checksum.to_be_bytes());
}

/// Returns an upper bound of the encoded length.
pub(crate) fn encoded_len_max(value: &Value) -> usize {
    2 + 8
        + 8
        + 8
        + 1
        + 2
        + CHECKSUM_LEN
        + value.content_type.len()
        + value.content_encoding.len()
        + value.bytes.len()
}

/// Checks and decodes a row found under `key`.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "a range decodes each of its rows, and most of the time of it went into copying the view"
)]
pub(crate) fn decode<'a>(key: &[u8], bytes: &'a [u8]) -> Result<RowView<'a>, RowDamage> {
    let (body, stored) = bytes
        .split_last_chunk::<CHECKSUM_LEN>()
        .ok_or(RowDamage::CutShort)?;
    let (head, form, rest) = split_head(body)?;
    if checksum(key, body) != u32::from_be_bytes(*stored) {
        return Err(RowDamage::Checksum);
    }
    let (content_type, rest) = split_field(rest)?;
    let (content_encoding, value) = split_field(rest)?;
    let (form, plain_len) = if form == StoredForm::Plain.code() {
        (StoredForm::Plain, value.len())
    } else {
        let form = StoredForm::from_code(form)?;
        (form, form.plain_len(value)?)
    };
    Ok(RowView {
        head,
        content_type,
        content_encoding,
        value,
        form,
        plain_len,
    })
}

/// Decodes version and expiry without reading the rest, so without checking the checksum.
pub(crate) fn decode_head(bytes: &[u8]) -> Result<RowHead, RowDamage> {
    split_head(bytes).map(|(head, _, _)| head)
}

/// Returns how many bytes the row saves against its plain form, without checking the checksum; 0 if the row cannot be
/// read.
pub(crate) fn saved_len(bytes: &[u8]) -> usize {
    if bytes.get(1).is_none_or(|flags| flags & FLAG_FORM == 0) {
        return 0;
    }
    let saved = || -> Result<usize, RowDamage> {
        let (form, value) = split_value(bytes)?;
        if form == StoredForm::Large {
            return Ok(0);
        }
        // The form takes a byte that a plain row does not have.
        Ok(form.plain_len(value)?.saturating_sub(value.len() + 1))
    };
    saved().unwrap_or(0)
}

/// Returns the reference of a row that has a large value, without checking the checksum. Returns `None` for other rows,
/// and for a row that cannot be read.
pub(crate) fn large(bytes: &[u8]) -> Option<LargeRef> {
    if bytes.get(1).is_none_or(|flags| flags & FLAG_FORM == 0) {
        return None;
    }
    match split_value(bytes) {
        Ok((StoredForm::Large, value)) => LargeRef::decode(value),
        _ => None,
    }
}

/// Returns the form of a row and its value.
fn split_value(bytes: &[u8]) -> Result<(StoredForm, &[u8]), RowDamage> {
    let body = bytes.split_last_chunk::<CHECKSUM_LEN>();
    let (body, _) = body.ok_or(RowDamage::CutShort)?;
    let (_, form, rest) = split_head(body)?;
    let (_, rest) = split_field(rest)?;
    let (_, value) = split_field(rest)?;
    Ok((StoredForm::from_code(form)?, value))
}

/// Returns the checksum of stored bytes under a key.
pub(crate) fn checksum(key: &[u8], body: &[u8]) -> u32 {
    (xxh3_64(body) ^ xxh3_64(key)) as u32
}

/// Returns head, code of the form and the rest.
#[inline]
fn split_head(bytes: &[u8]) -> Result<(RowHead, u8, &[u8]), RowDamage> {
    let (&[format, flags], rest) = bytes.split_first_chunk().ok_or(RowDamage::CutShort)?;
    if format != FORMAT || flags & !FLAGS != 0 {
        return Err(RowDamage::UnknownFormat(format));
    }
    let (version, rest) = split_u64(rest)?;
    if flags == 0 {
        let head = RowHead {
            version: Version(version),
            expires_at: None,
            as_of: None,
        };
        return Ok((head, StoredForm::Plain.code(), rest));
    }
    split_flagged(flags, Version(version), rest)
}

/// Returns the same parts of a row with flags. `rest` begins after the version.
fn split_flagged(
    flags: u8,
    version: Version,
    mut rest: &[u8],
) -> Result<(RowHead, u8, &[u8]), RowDamage> {
    let mut instant = |flag| -> Result<Option<Timestamp>, RowDamage> {
        if flags & flag == 0 {
            return Ok(None);
        }
        let (at, after) = split_u64(rest)?;
        rest = after;
        Ok(Some(Timestamp(at)))
    };
    let (expires_at, as_of) = (instant(FLAG_EXPIRES)?, instant(FLAG_AS_OF)?);
    let mut form = StoredForm::Plain.code();
    if flags & FLAG_FORM != 0 {
        let (&code, after) = rest.split_first().ok_or(RowDamage::CutShort)?;
        (form, rest) = (code, after);
    }
    let head = RowHead {
        version,
        expires_at,
        as_of,
    };
    Ok((head, form, rest))
}

#[inline]
fn split_u64(bytes: &[u8]) -> Result<(u64, &[u8]), RowDamage> {
    let (number, rest) = bytes.split_first_chunk().ok_or(RowDamage::CutShort)?;
    Ok((u64::from_be_bytes(*number), rest))
}

#[inline]
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
        let instant = || prop::option::of(any::<u64>());
        let head = (any::<u64>(), instant(), instant());
        (head, bytes(300), bytes(256), bytes(4)).prop_map(|(head, value, kind, coding)| {
            let (version, expires_at, as_of) = head;
            let head = RowHead {
                version: Version(version),
                expires_at: expires_at.map(Timestamp),
                as_of: as_of.map(Timestamp),
            };
            let value = Value::new(value, kind, coding).unwrap();
            let formed = value.clone().in_form(StoredForm::Zstd);
            (head, formed.unwrap_or(value))
        })
    }

    /// Rows of files that are in use, as they are there: a plain one, as all versions have written it, and one in the
    /// zstd form.
    #[test]
    fn rows_are_encoded_as_they_always_were() {
        let head = RowHead {
            version: Version(3),
            expires_at: Some(Timestamp(9)),
            as_of: None,
        };
        let value = Value::new(&b"\0\0\0\x40frame"[..], "text/plain", "").unwrap();
        let formed = value.clone().in_form(StoredForm::Zstd).unwrap();
        for (value, kept) in [
            (
                value,
                "0101000000000000000300000000000000090a746578742f706c61696e00000000406672616d65b8e59361",
            ),
            (
                formed,
                "010500000000000000030000000000000009010a746578742f706c61696e00000000406672616d65e0cc6066",
            ),
        ] {
            let mut bytes = Vec::new();
            encode(&mut bytes, b"key", head, &value);
            let hex = bytes
                .iter()
                .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
            assert_eq!(hex, kept);
        }
    }

    #[test]
    fn a_form_is_kept_and_counted_and_an_unknown_one_is_damage() {
        let head = RowHead {
            version: Version(3),
            expires_at: Some(Timestamp(9)),
            as_of: None,
        };
        let value = Value::new(&b"\0\0\x03\xe8frame"[..], "text/plain", "").unwrap();
        let value = value.in_form(StoredForm::Zstd).unwrap();
        let mut bytes = Vec::new();
        encode(&mut bytes, b"key", head, &value);
        let view = decode(b"key", &bytes).unwrap();
        assert_eq!((view.form, view.plain_len), (StoredForm::Zstd, 1_000));
        assert_eq!(view.to_row().value, value);
        assert_eq!(saved_len(&bytes), 1_000 - 9 - 1);
        assert_eq!(decode_head(&bytes), Ok(head));
        let with = |at: usize, code: u8| {
            let mut body = bytes[..bytes.len() - CHECKSUM_LEN].to_vec();
            body[at] = code;
            let sum = checksum(b"key", &body).to_be_bytes();
            [&body[..], &sum].concat()
        };
        let unknown = decode(b"key", &with(18, 77)).unwrap_err();
        assert_eq!(unknown, RowDamage::Form(FormError::Unknown(77)));
        assert_eq!(saved_len(&with(18, 77)), 0);
        // The length of the value is bounded as that of any value.
        let too_long = with(bytes.len() - CHECKSUM_LEN - 9, 0x7f);
        assert_eq!(
            decode(b"key", &too_long),
            Err(RowDamage::Form(FormError::BadLength))
        );
        assert_eq!(
            decode(b"key", &with(1, 8)),
            Err(RowDamage::UnknownFormat(FORMAT))
        );
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
