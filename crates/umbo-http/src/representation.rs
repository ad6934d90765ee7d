//! Representations of a value and their entity tags (RFC 9110, section 8.8).
//!
//! The invariant: tags are strong. Equal tags mean equal bytes, and all tags of a version stand for it in conditions.

use http::header::{CONTENT_SECURITY_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue};
use umbo_types::Version;

use crate::digits;

/// The representation of a value that its client gets. Representations differ in their bytes, and so do their tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Representation {
    /// The bytes that were stored.
    Stored,
    /// Decoded, for a client that does not accept the content encoding that was stored.
    Identity,
    /// Compressed, as the store keeps it, of a value that was stored without a content encoding.
    Zstd,
}

impl Representation {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Stored, Self::Identity, Self::Zstd];

    /// Returns the text after the version in a tag of the representation.
    pub const fn tag_suffix(self) -> &'static str {
        match self {
            Self::Stored => "",
            Self::Identity => ";identity",
            Self::Zstd => ";zstd",
        }
    }

    /// Returns the tag of a version in this representation. Strong: equal tags mean equal bytes.
    pub fn etag(self, version: Version) -> HeaderValue {
        if self == Self::Stored {
            return etag(version);
        }
        let text = format!("\"{}{}\"", version.0, self.tag_suffix());
        HeaderValue::try_from(text).expect("digits and a word in quotes are a header value")
    }
}

/// Returns the entity tag of a version.
pub fn etag(version: Version) -> HeaderValue {
    // Twenty digits at most, and the quotes.
    let mut text = [b'"'; 22];
    let end = text.len() - 1;
    let first = digits::put(&mut text, end, version.0);
    HeaderValue::from_bytes(&text[first - 1..]).expect("digits in quotes are a header value")
}

/// Makes browsers treat stored content strictly by its media type and run nothing in it. A stored document would
/// otherwise have the rights of the operators' page, which has the same origin.
pub(crate) fn confine(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_the_version_in_quotes() {
        for version in [0, 7, 10, 1_789_000_000_000_000, u64::MAX] {
            assert_eq!(etag(Version(version)), format!("\"{version}\""));
        }
    }
}
