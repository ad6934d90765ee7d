//! The idempotency key of a request, and the digest of everything that determines its outcome.
//!
//! `Idempotency-Key` is a string of structured fields (RFC 9651; draft-ietf-httpapi-idempotency-key-header), or the
//! same characters without quotes, because many clients send it so. The digest covers the input of the client, not
//! values that this process derived from it: the time to live and not the expiry. It leaves out fields that do not
//! change the outcome: the durability, the timeout, the criticality, the payer.

use std::time::Duration;

use blake3::Hasher;
use http::HeaderValue;
use umbo_api::path::base64url;
use umbo_api::{header, time_to_live};
use umbo_store::{DIGEST_LEN, Idempotency};
use umbo_types::limits::{
    IDEMPOTENCY_KEY_LEN_MAX, IDEMPOTENCY_SECONDS_DEFAULT, IDEMPOTENCY_SECONDS_MAX,
};
use umbo_types::{CallerId, LargeRef, Timestamp};

use crate::fields::Fields;
use crate::request_error::RequestError;

/// A request with an idempotency key.
#[derive(Debug)]
pub struct KeyedRequest {
    key: Box<str>,
    /// How long its record is kept.
    kept_for: Duration,
    /// Digest of the input that determines the outcome, so far.
    digest: Box<Hasher>,
}

impl KeyedRequest {
    /// Reads the key of a request and how long its record is to be kept, or returns `None` without a key.
    pub fn read(fields: &Fields<'_>) -> Result<Option<Self>, RequestError> {
        let Some(value) = fields.idempotency_key else {
            return match fields.idempotency_ttl {
                None => Ok(None),
                Some(_) => Err(RequestError::BadHeader {
                    name: header::IDEMPOTENCY_TTL,
                    expected: "an Idempotency-Key in the same request",
                }),
            };
        };
        let key = value.to_str().ok().and_then(parse);
        let key = key.ok_or(RequestError::BadHeader {
            name: header::IDEMPOTENCY_KEY,
            expected: "1 to 255 visible ASCII characters, in double quotes or without any",
        })?;
        let kept_for = match fields.idempotency_ttl {
            None => IDEMPOTENCY_SECONDS_DEFAULT,
            Some(value) => {
                let seconds = value.to_str().ok().and_then(time_to_live::parse);
                let seconds = seconds.filter(|seconds| *seconds <= IDEMPOTENCY_SECONDS_MAX);
                seconds.ok_or(RequestError::BadHeader {
                    name: header::IDEMPOTENCY_TTL,
                    expected: "1 to 86400 seconds, as a number or with units (600, 10m, 24h)",
                })?
            }
        };
        Ok(Some(Self {
            key: key.into(),
            kept_for: Duration::from_secs(kept_for),
            digest: Box::default(),
        }))
    }

    /// Adds a part of the input that determines the outcome. Absent parts and the order of parts count too.
    pub fn add(&mut self, part: Option<&[u8]>) {
        let len = part.map_or(u64::MAX, |part| part.len() as u64);
        self.digest.update(&len.to_le_bytes());
        self.digest.update(part.unwrap_or_default());
    }

    /// Adds a large value: its length and digest stand for its bytes.
    pub fn add_large(&mut self, large: &LargeRef) {
        self.add(Some(b"large"));
        self.add(Some(&large.len.to_le_bytes()));
        self.add(Some(&large.sha256));
    }

    /// Adds the fields of a write that determine its outcome.
    pub(crate) fn add_fields(&mut self, fields: &Fields<'_>) {
        for field in [
            fields.content_type,
            fields.content_encoding,
            fields.expires_at,
            fields.ttl,
            fields.if_match,
            fields.if_none_match,
            fields.increment,
        ] {
            self.add(field.map(HeaderValue::as_bytes));
        }
    }

    /// Returns the idempotency key for the store, of a request of this caller with mutations of these lines.
    pub fn idempotency(
        &self,
        caller: &CallerId,
        now: Timestamp,
        keeps_refusals: bool,
        lines: Vec<u32>,
    ) -> Idempotency {
        Idempotency {
            id: self.id(caller),
            request: digest_of(&self.digest),
            keep_until: now.saturating_add(self.kept_for),
            keeps_refusals,
            lines,
        }
    }

    /// Returns the id of the key of this caller, and the digest of the request, as texts that a record keeps.
    pub fn kept_texts(&self, caller: &CallerId) -> (String, String) {
        let digest = digest_of(&self.digest);
        (base64url(&self.id(caller)), base64url(&digest))
    }

    fn id(&self, caller: &CallerId) -> [u8; DIGEST_LEN] {
        let caller = caller.as_str().as_bytes();
        let mut id = Hasher::new();
        id.update(&(caller.len() as u64).to_le_bytes());
        id.update(caller);
        id.update(self.key.as_bytes());
        digest_of(&id)
    }
}

fn digest_of(hasher: &Hasher) -> [u8; DIGEST_LEN] {
    let mut digest = [0; DIGEST_LEN];
    hasher.finalize_xof().fill(&mut digest);
    digest
}

/// Reads a key: `"a\"b"` and `a"b` are the same key.
fn parse(text: &str) -> Option<String> {
    let text = text.trim_matches(' ');
    let key = match text.strip_prefix('"') {
        Some(rest) => unquoted(rest)?,
        None => text.to_owned(),
    };
    let is_visible = |byte: u8| byte.is_ascii_graphic() || (byte == b' ' && text.starts_with('"'));
    let is_key = (1..=IDEMPOTENCY_KEY_LEN_MAX).contains(&key.len()) && key.bytes().all(is_visible);
    is_key.then_some(key)
}

/// Reads a quoted string behind its first quote; the second must be the end.
fn unquoted(rest: &str) -> Option<String> {
    let mut key = String::with_capacity(rest.len());
    let mut characters = rest.chars();
    loop {
        match characters.next()? {
            '"' => return characters.as_str().is_empty().then_some(key),
            '\\' => key.push(
                characters
                    .next()
                    .filter(|next| matches!(next, '"' | '\\'))?,
            ),
            other => key.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_quoted_or_bare() {
        let long = "x".repeat(255);
        for (text, key) in [
            ("\"01J8-a b\"", Some("01J8-a b")),
            ("01J8-ab", Some("01J8-ab")),
            (" \"a\" ", Some("a")),
            ("\"a\\\"b\\\\c\"", Some("a\"b\\c")),
            (long.as_str(), Some(long.as_str())),
            ("", None),
            ("\"\"", None),
            ("a b", None),
            ("\"a", None),
            ("\"a\"b", None),
            ("\"a\";p=1", None),
            ("\"a\\n\"", None),
        ] {
            assert_eq!(parse(text).as_deref(), key, "{text}");
        }
        assert_eq!(parse(&"x".repeat(256)), None);
    }

    #[test]
    fn parts_do_not_run_together() {
        let digest = |parts: &[Option<&[u8]>]| {
            let mut request = KeyedRequest {
                key: "k".into(),
                kept_for: Duration::ZERO,
                digest: Box::default(),
            };
            for part in parts {
                request.add(*part);
            }
            digest_of(&request.digest)
        };
        let all = [
            digest(&[Some(b"ab"), Some(b"c")]),
            digest(&[Some(b"a"), Some(b"bc")]),
            digest(&[Some(b"abc"), None]),
            digest(&[None, Some(b"abc")]),
            digest(&[Some(b"abc"), Some(b"")]),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one));
        }
    }
}
