//! Keys in URLs: percent-encoded bytes, or unpadded base64url with `enc=b64u`.
//!
//! The raw path is decoded directly, not through a UTF-8 string, so keys may be any bytes. `+` is a plus, not a space,
//! in paths and queries alike.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// How key-typed inputs of a request are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeyEncoding {
    /// Percent-encoded bytes.
    #[default]
    Percent,
    /// Unpadded base64url.
    Base64Url,
}

/// Why a key text cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// A percent sign without two hexadecimal digits, at this offset.
    #[error("the '%' at byte {0} is not followed by two hexadecimal digits")]
    BadPercent(usize),
    /// Not unpadded base64url.
    #[error("it is not unpadded base64url")]
    BadBase64,
}

impl KeyEncoding {
    /// Decodes a key text.
    pub fn decode(self, text: &[u8]) -> Result<Vec<u8>, PathError> {
        match self {
            Self::Percent => percent_decode(text),
            Self::Base64Url => URL_SAFE_NO_PAD
                .decode(text)
                .map_err(|_| PathError::BadBase64),
        }
    }
}

fn percent_decode(text: &[u8]) -> Result<Vec<u8>, PathError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        if byte == b'%' {
            let digit = |offset: usize| {
                let digit = text
                    .get(at + offset)
                    .and_then(|&byte| char::from(byte).to_digit(16));
                digit.ok_or(PathError::BadPercent(at))
            };
            bytes.push((digit(1)? * 16 + digit(2)?) as u8);
            at += 3;
        } else {
            bytes.push(byte);
            at += 1;
        }
    }
    Ok(bytes)
}

/// Returns a key as unpadded base64url.
pub fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns percent-encoded bytes. Only unreserved characters (RFC 3986) stay unchanged.
pub fn percent_encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if is_unreserved(byte) {
            text.push(char::from(byte));
        } else {
            text.push('%');
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from(b"0123456789ABCDEF"[usize::from(digit)]));
            }
        }
    }
    text
}

const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Returns path and query of a row, encoded so that proxies do not change their meaning: as text if that is safe,
/// otherwise as base64url.
pub fn kv_target(namespace: &str, partition: &[u8], sort: &[u8]) -> String {
    let is_plain =
        |key: &[u8]| key.iter().copied().all(is_unreserved) && !matches!(key, b"." | b"..");
    let (encode, query): (fn(&[u8]) -> String, _) = if is_plain(partition) && is_plain(sort) {
        (percent_encode, "")
    } else {
        (base64url, "?enc=b64u")
    };
    let partition = encode(partition);
    if sort.is_empty() {
        return format!("/v1/ns/{namespace}/kv/{partition}{query}");
    }
    format!("/v1/ns/{namespace}/kv/{partition}/{}{query}", encode(sort))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_encodings_read_back(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let percent = percent_encode(&bytes);
            prop_assert_eq!(KeyEncoding::Percent.decode(percent.as_bytes()).unwrap(), bytes.clone());
            let base64 = base64url(&bytes);
            prop_assert_eq!(KeyEncoding::Base64Url.decode(base64.as_bytes()).unwrap(), bytes);
        }

        #[test]
        fn any_text_decodes_or_is_refused(text in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = KeyEncoding::Percent.decode(&text);
            let _ = KeyEncoding::Base64Url.decode(&text);
        }
    }

    #[test]
    fn targets_survive_proxies() {
        assert_eq!(kv_target("n", b"a", b""), "/v1/ns/n/kv/a");
        assert_eq!(kv_target("n", b"a", b"b.c"), "/v1/ns/n/kv/a/b.c");
        assert_eq!(kv_target("n", b"a", b".."), "/v1/ns/n/kv/YQ/Li4?enc=b64u");
        assert_eq!(kv_target("n", b"a/b", b""), "/v1/ns/n/kv/YS9i?enc=b64u");
        assert_eq!(percent_decode(b"%2"), Err(PathError::BadPercent(0)));
        assert_eq!(percent_decode(b"a%zz"), Err(PathError::BadPercent(1)));
        assert_eq!(percent_decode(b"a+b").unwrap(), b"a+b");
    }
}
