//! SHA-256 of parts, the header field `Content-Digest` (RFC 9530), and the checksum of the rows of a version.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{Context, SHA256};
use xxhash_rust::xxh3::xxh3_128;

/// A SHA-256.
pub type Sha256 = [u8; 32];

/// A SHA-256 under way.
#[derive(Clone)]
pub struct PartDigest(Context);

impl std::fmt::Debug for PartDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PartDigest")
    }
}

impl Default for PartDigest {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl PartDigest {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest of all bytes.
    pub fn finish(self) -> Sha256 {
        let mut digest = Sha256::default();
        digest.copy_from_slice(self.0.finish().as_ref());
        digest
    }
}

/// Returns a digest in hexadecimal.
pub fn hex(digest: &Sha256) -> String {
    use std::fmt::Write as _;
    digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Reads the SHA-256 of a `Content-Digest`. Returns `None` if it has only digests of other algorithms.
pub fn content_digest(field: &[u8]) -> Result<Option<Sha256>, BadDigest> {
    let text = std::str::from_utf8(field).map_err(|_| BadDigest)?;
    for member in text.split(',') {
        let (name, value) = member.split_once('=').ok_or(BadDigest)?;
        if !name.trim().eq_ignore_ascii_case("sha-256") {
            continue;
        }
        let bytes = value.trim().strip_prefix(':');
        let bytes = bytes
            .and_then(|rest| rest.strip_suffix(':'))
            .ok_or(BadDigest)?;
        let bytes = STANDARD.decode(bytes).map_err(|_| BadDigest)?;
        return bytes.try_into().map(Some).map_err(|_| BadDigest);
    }
    Ok(None)
}

/// A `Content-Digest` that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadDigest;

/// Checksum of rows: the sum of their XXH3-128. It does not depend on the order of the rows.
#[derive(Debug, Default)]
pub struct RowsDigest {
    sum: u128,
    /// Reused buffer for the row to add.
    row: Vec<u8>,
}

impl RowsDigest {
    /// Adds a row, by its fields.
    pub fn add(&mut self, fields: [&[u8]; 6]) {
        self.row.clear();
        for field in fields {
            self.row
                .extend_from_slice(&(field.len() as u64).to_be_bytes());
            self.row.extend_from_slice(field);
        }
        self.sum = self.sum.wrapping_add(xxh3_128(&self.row));
    }

    /// Returns the checksum in hexadecimal.
    pub fn finish(&self) -> String {
        format!("{:032x}", self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_a_field_is_that_of_the_bytes() {
        let mut digest = PartDigest::default();
        digest.update(b"he");
        digest.update(b"llo");
        let digest = digest.finish();
        assert_eq!(
            hex(&digest),
            "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
        );
        let field = b"sha-512=:AA==:, SHA-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:";
        assert_eq!(content_digest(field), Ok(Some(digest)));
        assert_eq!(content_digest(b"md5=:AA==:"), Ok(None));
        for bad in [&b"sha-256"[..], b"sha-256=AA==", b"sha-256=:AA==:", b"\xff"] {
            assert_eq!(content_digest(bad), Err(BadDigest));
        }
    }
}
