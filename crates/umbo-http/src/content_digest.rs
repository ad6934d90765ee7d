//! Digests of bodies: `Content-Digest` (RFC 9530), SHA-256 alone.
//!
//! Owns the grammar of the field and the comparison. Other algorithms are ignored, as the RFC has it; a SHA-256 that
//! cannot be read is refused, because its sender relies on it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use ring::digest;

use crate::request_error::RequestError;

/// Name of the field.
pub const NAME: &str = "content-digest";

/// A SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentDigest(pub [u8; 32]);

impl ContentDigest {
    /// Reads `Content-Digest`, or returns `None` if it is absent or names no SHA-256.
    pub fn read(field: Option<&HeaderValue>) -> Result<Option<Self>, RequestError> {
        let Some(field) = field else {
            return Ok(None);
        };
        let bad = RequestError::BadHeader {
            name: NAME,
            expected: "sha-256=:BASE64 OF 32 BYTES:",
        };
        let Ok(text) = field.to_str() else {
            return Err(bad);
        };
        let mut members = text.split(',').map(str::trim);
        let Some(encoded) = members.find_map(|member| member.strip_prefix("sha-256=")) else {
            return Ok(None);
        };
        let encoded = encoded
            .strip_prefix(':')
            .and_then(|rest| rest.strip_suffix(':'));
        let bytes = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
        let digest = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        digest.map(|digest| Some(Self(digest))).ok_or(bad)
    }

    /// Returns the digest of a body.
    pub fn of(body: &[u8]) -> Self {
        let mut sum = DigestSum::new();
        sum.add(body);
        sum.finish()
    }

    /// Refuses a body with another digest.
    pub fn check(self, body: &[u8]) -> Result<(), RequestError> {
        if Self::of(body) == self {
            Ok(())
        } else {
            Err(RequestError::DigestMismatch)
        }
    }

    /// Returns the field of this digest.
    pub fn to_header(self) -> HeaderValue {
        let text = format!("sha-256=:{}:", STANDARD.encode(self.0));
        HeaderValue::try_from(text).expect("base64 is a header value")
    }
}

/// The digest of bytes that come piece by piece.
#[derive(Clone)]
pub struct DigestSum(digest::Context);

impl DigestSum {
    /// Begins with no bytes.
    pub fn new() -> Self {
        Self(digest::Context::new(&digest::SHA256))
    }

    /// Adds a piece.
    pub fn add(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// Returns the digest of all pieces.
    pub fn finish(self) -> ContentDigest {
        let digest = self.0.finish();
        ContentDigest(std::array::from_fn(|at| digest.as_ref()[at]))
    }
}

impl Default for DigestSum {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for DigestSum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DigestSum")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of `{"hello": "world"}` and a line feed: the example of RFC 9530, appendix D.
    const OF_HELLO: &str = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:";

    fn read(text: &str) -> Result<Option<ContentDigest>, RequestError> {
        ContentDigest::read(Some(&HeaderValue::from_str(text).unwrap()))
    }

    #[test]
    fn a_digest_is_read_compared_and_written() {
        let hello = b"{\"hello\": \"world\"}\n";
        let digest = read(OF_HELLO).unwrap().unwrap();
        assert!(digest.check(hello).is_ok());
        let refused = digest.check(&hello[1..]);
        assert!(matches!(refused, Err(RequestError::DigestMismatch)));
        assert_eq!(ContentDigest::of(hello).to_header(), OF_HELLO);
        let among_others = format!("sha-512=:AAAA:, {OF_HELLO}");
        assert_eq!(read(&among_others).unwrap(), Some(digest));
        let mut sum = DigestSum::new();
        hello.chunks(3).for_each(|piece| sum.add(piece));
        assert_eq!(sum.finish(), digest);
    }

    #[test]
    fn other_algorithms_are_ignored_and_a_bad_digest_is_refused() {
        for ignored in ["", "sha-512=:AAAA:", "md5=:x:"] {
            assert_eq!(read(ignored).unwrap(), None, "{ignored}");
        }
        for bad in [
            "sha-256=",
            "sha-256=::",
            "sha-256=:AAAA:",
            "sha-256=RK",
            "sha-256=:?:",
        ] {
            assert!(
                matches!(read(bad), Err(RequestError::BadHeader { .. })),
                "{bad}"
            );
        }
    }
}
