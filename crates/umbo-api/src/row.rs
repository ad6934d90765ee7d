//! Rows as JSON: the format of ranges, scans, multi-gets and exports.
//!
//! `pk`, `sk` and `v` carry UTF-8 bytes as text, `pk64`, `sk64` and `v64` any bytes as base64url; a row has one field
//! of each pair. The writer does not use serde, because a range consists of rows alone and has to be fast. The tests
//! compare the writer with the serde types that read the rows.

use std::ops::RangeInclusive;

use bytes::BufMut;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::json_line;
use crate::path::{KeyEncoding, base64url};

/// A row as the server writes it.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JsonRow {
    /// Partition key as text; in scans and multi-gets.
    pub pk: Option<String>,
    /// Partition key as base64url.
    pub pk64: Option<String>,
    /// Sort key as text.
    pub sk: Option<String>,
    /// Sort key as base64url.
    pub sk64: Option<String>,
    /// Version; the `ETag` without its quotes.
    pub version: Option<u64>,
    /// Expiry, in milliseconds since the Unix epoch.
    pub expires_at: Option<u64>,
    /// Media type, if stored.
    pub content_type: Option<String>,
    /// Content encoding, if stored.
    pub content_encoding: Option<String>,
    /// Length of the value in bytes, if only keys were requested or the value is a large one.
    pub bytes: Option<u64>,
    /// SHA-256 of a large value, in hexadecimal. The row does not contain the value of `bytes` bytes: a get returns it.
    pub large: Option<Box<str>>,
    /// Value as text.
    pub v: Option<String>,
    /// Value as base64url.
    pub v64: Option<String>,
}

/// A row lacks a required field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowFieldError {
    /// A row has both fields of a pair.
    #[error("a row has '{0}' or '{0}64', not both")]
    Both(&'static str),
    /// A row has neither field of a required pair.
    #[error("a row needs '{0}' or '{0}64'")]
    Neither(&'static str),
    /// A `64` field is not unpadded base64url.
    #[error("'{0}64' is not unpadded base64url")]
    BadBase64(&'static str),
}

/// Returns the bytes of a pair of fields, or `None` if both are absent.
pub fn pair_bytes(
    name: &'static str,
    text: Option<&str>,
    base64: Option<&str>,
) -> Result<Option<Vec<u8>>, RowFieldError> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(RowFieldError::Both(name)),
        (Some(text), None) => Ok(Some(text.as_bytes().to_vec())),
        (None, Some(encoded)) => KeyEncoding::Base64Url
            .decode(encoded.as_bytes())
            .map(Some)
            .map_err(|_| RowFieldError::BadBase64(name)),
        (None, None) => Ok(None),
    }
}

impl JsonRow {
    /// Returns the partition key, or `None` if the row carries none.
    pub fn partition(&self) -> Result<Option<Vec<u8>>, RowFieldError> {
        pair_bytes("pk", self.pk.as_deref(), self.pk64.as_deref())
    }

    /// Returns the sort key, or no bytes if the row carries none.
    pub fn sort(&self) -> Result<Vec<u8>, RowFieldError> {
        Ok(pair_bytes("sk", self.sk.as_deref(), self.sk64.as_deref())?.unwrap_or_default())
    }

    /// Returns the value, or `None` if only keys were requested.
    pub fn value(&self) -> Result<Option<Vec<u8>>, RowFieldError> {
        pair_bytes("v", self.v.as_deref(), self.v64.as_deref())
    }
}

/// A row to write, with borrowed fields.
#[derive(Debug, Clone, Copy, Default)]
pub struct RowFields<'a> {
    /// Partition key, if the row carries it.
    pub partition: Option<&'a [u8]>,
    /// Sort key.
    pub sort: &'a [u8],
    /// Version; 0 leaves it out.
    pub version: u64,
    /// Expiry, in milliseconds since the Unix epoch.
    pub expires_at: Option<u64>,
    /// Media type; empty leaves it out.
    pub content_type: &'a [u8],
    /// Content encoding; empty leaves it out.
    pub content_encoding: &'a [u8],
    /// Value, or its length if only keys were requested.
    pub value: ValueField<'a>,
}

/// The value of a row to write.
#[derive(Debug, Clone, Copy, Default)]
pub enum ValueField<'a> {
    /// Neither value nor length.
    #[default]
    None,
    /// Only the length.
    Len(u64),
    /// The value.
    Bytes(&'a [u8]),
    /// The length and the SHA-256 of a large value.
    Large {
        /// Length, in bytes.
        len: u64,
        /// Digest.
        sha256: [u8; 32],
    },
}

impl RowFields<'_> {
    /// Writes the fields as the inside of a JSON object, without the braces.
    #[inline]
    pub fn write(self, out: &mut impl BufMut) {
        if let Some(partition) = self.partition {
            write_pair(out, "\"pk\":\"", "\"pk64\":\"", partition);
            out.put_u8(b',');
        }
        write_pair(out, "\"sk\":\"", "\"sk64\":\"", self.sort);
        if self.version != 0 {
            write_number(out, ",\"version\":", self.version);
        }
        if let Some(expires_at) = self.expires_at {
            write_number(out, ",\"expires_at\":", expires_at);
        }
        if !self.content_type.is_empty() {
            write_content_field(out, ",\"content_type\":", self.content_type);
        }
        if !self.content_encoding.is_empty() {
            write_content_field(out, ",\"content_encoding\":", self.content_encoding);
        }
        match self.value {
            ValueField::None => {}
            ValueField::Len(len) => write_number(out, ",\"bytes\":", len),
            ValueField::Large { len, sha256 } => write_large(out, len, sha256),
            ValueField::Bytes(bytes) => write_pair(out, ",\"v\":\"", ",\"v64\":\"", bytes),
        }
    }

    /// Writes the row as one line.
    pub fn write_line(self, out: &mut impl BufMut) {
        out.put_u8(b'{');
        self.write(out);
        out.put_slice(b"}\n");
    }
}

/// Bounds of an expiry in a request or row: the years 2001 to 9999. A smaller number would be one of seconds.
pub const EXPIRES_AT_MS: RangeInclusive<u64> = 1_000_000_000_000..=253_402_300_799_999;
/// Description of a valid expiry.
pub const EXPIRES_AT_EXPECTED: &str = "milliseconds since the Unix epoch, 1000000000000 or more (for a number of seconds: times 1000)";

/// Description of a valid content type or encoding, as [`is_content_field`] checks it.
pub const CONTENT_FIELD_EXPECTED: &str = "visible ASCII, with spaces only within";

/// Returns whether a content type or encoding reads the same as a header field and in a JSON row: visible ASCII, with
/// spaces only within. Every route that stores one refuses other values.
pub fn is_content_field(field: &[u8]) -> bool {
    let is_visible = field.iter().all(|byte| matches!(byte, b' '..=b'~'));
    is_visible && field.first() != Some(&b' ') && field.last() != Some(&b' ')
}

/// Returns the digit of a number below 16.
const fn hex_digit(number: u8) -> u8 {
    match number {
        0..=9 => b'0' + number,
        _ => b'a' + number - 10,
    }
}

fn write_number(out: &mut impl BufMut, name: &str, number: u64) {
    out.put_slice(name.as_bytes());
    out.put_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Writes a content field. A field stored by an earlier version may not be valid text; it is left out, so that the row
/// does not give a wrong value.
fn write_content_field(out: &mut impl BufMut, name: &str, field: &[u8]) {
    if is_content_field(field)
        && let Ok(text) = std::str::from_utf8(field)
    {
        out.put_slice(name.as_bytes());
        write_text(out, text);
    }
}

fn write_large(out: &mut impl BufMut, len: u64, sha256: [u8; 32]) {
    write_number(out, ",\"bytes\":", len);
    out.put_slice(b",\"large\":\"");
    for byte in sha256 {
        out.put_slice(&[hex_digit(byte >> 4), hex_digit(byte & 15)]);
    }
    out.put_u8(b'"');
}

/// Writes bytes as a string; both names end with its quotation mark.
#[inline]
fn write_pair(out: &mut impl BufMut, name: &str, name64: &str, bytes: &[u8]) {
    if is_plain(bytes) {
        out.put_slice(name.as_bytes());
        out.put_slice(bytes);
        out.put_u8(b'"');
    } else {
        write_odd_pair(out, name, name64, bytes);
    }
}

/// Writes bytes that need escapes or are not text.
#[cold]
fn write_odd_pair(out: &mut impl BufMut, name: &str, name64: &str, bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        out.put_slice(name.trim_end_matches('"').as_bytes());
        write_text(out, text);
    } else {
        out.put_slice(name64.as_bytes());
        out.put_slice(base64url(bytes).as_bytes());
        out.put_u8(b'"');
    }
}

/// Returns whether the bytes are ASCII that needs no escapes in JSON.
///
/// Checks whole pieces without a branch within them, so that compilers use vector instructions. Checking byte by byte
/// took a fifth of the time of a range.
fn is_plain(bytes: &[u8]) -> bool {
    match bytes.len() {
        0..4 => bytes.iter().all(|byte| is_plain_piece(&[*byte])),
        4..8 => has_plain_ends::<4>(bytes),
        8..16 => has_plain_ends::<8>(bytes),
        16..32 => has_plain_ends::<16>(bytes),
        32..64 => has_plain_ends::<32>(bytes),
        _ => is_plain_long(bytes),
    }
}

/// Checks the first and the last `N` bytes. They cover all bytes if there are at most `2 * N`.
fn has_plain_ends<const N: usize>(bytes: &[u8]) -> bool {
    let ends = (bytes.first_chunk::<N>(), bytes.last_chunk::<N>());
    let (Some(first), Some(last)) = ends else {
        return false;
    };
    is_plain_piece(first) & is_plain_piece(last)
}

#[inline]
#[expect(
    clippy::needless_bitwise_bool,
    reason = "a lazy operator is a branch, and with a branch there are no vector instructions"
)]
fn is_plain_piece<const N: usize>(piece: &[u8; N]) -> bool {
    piece.iter().fold(true, |is_plain, &byte| {
        // Bytes beyond ASCII are negative as signed numbers.
        is_plain & (byte.cast_signed() >= 0x20) & (byte != b'"') & (byte != b'\\')
    })
}

/// Bytes of a long text that are checked together: two vectors of the smallest supported processor.
const PIECE_LEN: usize = 32;

/// Checks 64 bytes or more. Odd bytes are collected by their place in a piece, and tested for once at the end.
fn is_plain_long(bytes: &[u8]) -> bool {
    let (pieces, rest) = bytes.as_chunks();
    let mut odd = [0; PIECE_LEN];
    for piece in pieces {
        gather_odd(&mut odd, piece);
    }
    if !rest.is_empty()
        && let Some(last) = bytes.last_chunk()
    {
        gather_odd(&mut odd, last);
    }
    odd == [0; PIECE_LEN]
}

#[inline]
fn gather_odd(odd: &mut [u8; PIECE_LEN], piece: &[u8; PIECE_LEN]) {
    // Exchanges the quotation mark and the space. Afterwards every byte that needs an escape is at most 0x20 as a
    // signed number, except the backslash.
    const EXCHANGE: u8 = b'"' ^ b' ';
    for at in 0..PIECE_LEN {
        let byte = piece[at];
        let is_low = (byte ^ EXCHANGE).cast_signed() <= 0x20;
        odd[at] |= 0_u8.wrapping_sub(u8::from(is_low) | u8::from(byte == b'\\'));
    }
}

fn write_text(out: &mut impl BufMut, text: &str) {
    json_line::write(out.writer(), text).expect("a buffer that grows takes every write");
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use proptest::prelude::*;

    fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..20),
            "[\\PC\"\\\\\n\u{0}]{0,12}".prop_map(String::into_bytes),
        ]
    }

    proptest! {
        #[test]
        fn plain_is_what_json_leaves_alone(
            mut bytes in "[a-z]{0,150}".prop_map(String::into_bytes),
            at in any::<prop::sample::Index>(),
            odd in any::<u8>(),
        ) {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = odd;
            }
            let escaped = std::str::from_utf8(&bytes).ok().map(|text| serde_json::to_string(text).unwrap());
            let is_same = escaped.is_some_and(|text| text.as_bytes()[1..=bytes.len()] == bytes && text.len() == bytes.len() + 2);
            prop_assert_eq!(is_plain(&bytes), is_same && bytes.is_ascii());
        }

        #[test]
        fn numbers_are_written_in_full(number in any::<u64>(), short in 0_u64..1_000) {
            for number in [number, short, 0, u64::MAX] {
                let mut out = BytesMut::new();
                write_number(&mut out, "n:", number);
                prop_assert_eq!(out, format!("n:{number}").into_bytes());
            }
        }

        #[test]
        fn a_content_field_of_a_row_is_what_was_stored_or_not_there(field in prop::collection::vec(any::<u8>(), 0..12)) {
            let mut out = BytesMut::new();
            RowFields { content_type: &field, ..RowFields::default() }.write_line(&mut out);
            let row: JsonRow = serde_json::from_slice(&out).unwrap();
            let text = row.content_type.unwrap_or_default();
            prop_assert_eq!(text.as_bytes(), if is_content_field(&field) { &field[..] } else { b"" });
        }

        #[test]
        fn rows_read_back_as_written(
            partition in any_bytes(), sort in any_bytes(), value in any_bytes(),
            version in 1_u64.., expires_at in prop::option::of(any::<u64>()),
        ) {
            let mut out = BytesMut::new();
            RowFields {
                partition: Some(&partition), sort: &sort, version, expires_at,
                content_type: b"text/\"x\"", content_encoding: b"",
                value: ValueField::Bytes(&value),
            }.write_line(&mut out);
            prop_assert_eq!(out[..].split(|&byte| byte == b'\n').count(), 2);
            let row: JsonRow = serde_json::from_slice(&out).unwrap();
            prop_assert_eq!(row.partition().unwrap(), Some(partition));
            prop_assert_eq!(row.sort().unwrap(), sort);
            prop_assert_eq!(row.value().unwrap(), Some(value));
            prop_assert_eq!((row.version, row.expires_at), (Some(version), expires_at));
            prop_assert_eq!(row.content_type.as_deref(), Some("text/\"x\""));
            prop_assert_eq!(row.content_encoding, None);
        }

        #[test]
        fn a_large_value_is_its_length_and_digest(len: u64, sha256: [u8; 32]) {
            let mut out = BytesMut::new();
            let value = ValueField::Large { len, sha256 };
            RowFields { value, ..RowFields::default() }.write_line(&mut out);
            let row: JsonRow = serde_json::from_slice(&out).unwrap();
            let hex = sha256.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
            prop_assert_eq!((row.value(), row.bytes), (Ok(None), Some(len)));
            prop_assert_eq!(row.large.as_deref(), Some(&hex[..]));
        }
    }
}
