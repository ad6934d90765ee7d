//! The key syntax of command lines and listings: text, `text:…`, `0x…` or `b64:…`, the same in and out.
//!
//! Text stands for its UTF-8 bytes. Text that looks like one of the other forms is written after `text:`, and bytes
//! that are not printable text after `0x`. `b64:` (base64url, padding optional) is read, but never written.

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Why a text is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyTextError {
    /// Text after `0x` that is not an even number of hexadecimal digits.
    #[error(
        "'{0}' is not 0x followed by an even number of hexadecimal digits; for a text write text:{0}"
    )]
    BadHex(String),
    /// Text after `b64:` that is not base64url.
    #[error("'{0}' is not b64: followed by base64url; for a text write text:{0}")]
    BadBase64(String),
}

/// Reads a key.
pub fn parse(text: &str) -> Result<Vec<u8>, KeyTextError> {
    if let Some(digits) = text.strip_prefix("0x") {
        let bad = || KeyTextError::BadHex(text.to_owned());
        if digits.len() % 2 != 0 || !digits.is_ascii() {
            return Err(bad());
        }
        let pairs = (0..digits.len()).step_by(2).map(|at| &digits[at..at + 2]);
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        return pairs
            .map(|pair| {
                u8::from_str_radix(pair, 16)
                    .ok()
                    .filter(|_| is_hex)
                    .ok_or_else(bad)
            })
            .collect();
    }
    if let Some(encoded) = text.strip_prefix("b64:") {
        return LENIENT
            .decode(encoded)
            .map_err(|_| KeyTextError::BadBase64(text.to_owned()));
    }
    let text = text.strip_prefix("text:").unwrap_or(text);
    Ok(text.as_bytes().to_vec())
}

/// Writes a key so that [`parse`] reads the same bytes.
pub fn format(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => {
            let reads_otherwise = ["0x", "b64:", "text:"]
                .iter()
                .any(|form| text.starts_with(form));
            let form = if reads_otherwise { "text:" } else { "" };
            format!("{form}{text}")
        }
        _ => bytes
            .iter()
            .fold(String::from("0x"), |text, byte| format!("{text}{byte:02x}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_reads_back(bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            "(0x|b64:|text:)*[a-z0-9/.%é]{0,12}".prop_map(String::into_bytes),
        ]) {
            prop_assert_eq!(parse(&format(&bytes)).unwrap(), bytes);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "(0x|b64:|text:)?.{0,20}") {
            let _ = parse(&text);
        }
    }

    #[test]
    fn the_four_forms() {
        assert_eq!(parse("US").unwrap(), b"US");
        assert_eq!(parse("0x00fF").unwrap(), [0, 255]);
        assert_eq!(parse("b64:AP8").unwrap(), [0, 255]);
        assert_eq!(parse("b64:AP8=").unwrap(), [0, 255]);
        // An address of a wallet is text to its writer.
        assert_eq!(parse("text:0x42b6").unwrap(), b"0x42b6");
        assert_eq!(format(b"0x42b6"), "text:0x42b6");
        assert_eq!(parse("text:text:").unwrap(), b"text:");
        assert!(parse("0x0").is_err() && parse("0x+1").is_err() && parse("b64:?").is_err());
    }
}
