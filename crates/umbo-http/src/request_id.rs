//! Ids of requests: sent by a client, or made here without an allocation.
//!
//! Hot path.

use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;

const OWN_LEN: usize = 20;

/// The id of a request.
#[derive(Debug)]
pub enum RequestId {
    /// Hexadecimal digits.
    Own([u8; OWN_LEN]),
    /// As the client sent it.
    Sent(HeaderValue),
}

impl RequestId {
    /// Returns the bytes of the id: letters, digits, points, dashes and underscores.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Own(text) => text,
            Self::Sent(value) => value.as_bytes(),
        }
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Own(text) => std::str::from_utf8(text).unwrap_or_default(),
            Self::Sent(value) => value.to_str().unwrap_or_default(),
        }
    }

    /// Returns the id as a header value. Made when it is needed: a copy of a value made before
    /// would cost an allocation more.
    pub fn to_header(&self) -> HeaderValue {
        match self {
            Self::Own(text) => HeaderValue::from_bytes(text).expect("digits are a header value"),
            Self::Sent(value) => value.clone(),
        }
    }
}

/// Makes ids for requests without one: a random start per process, then counting.
#[derive(Debug)]
pub struct RequestIds {
    prefix: u32,
    next: AtomicU64,
}

impl RequestIds {
    /// Begins at a random number, so that dispatchers give different ids.
    pub fn random_start() -> Self {
        Self {
            prefix: getrandom::u32().unwrap_or_else(|_| fastrand::u32(..)),
            next: AtomicU64::new(0),
        }
    }

    /// Returns the id that the client sent, if it is valid, or a new one.
    pub fn of(&self, sent: Option<&HeaderValue>) -> RequestId {
        let is_id = |value: &&HeaderValue| {
            let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
            (1..=64).contains(&value.len()) && value.as_bytes().iter().all(allowed)
        };
        if let Some(sent) = sent.filter(is_id) {
            return RequestId::Sent(sent.clone());
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut text = [0; OWN_LEN];
        let digit = |nibble: u64| b"0123456789abcdef"[(nibble & 15) as usize];
        for (at, byte) in text[..8].iter_mut().enumerate() {
            *byte = digit(u64::from(self.prefix) >> (28 - 4 * at));
        }
        for (at, byte) in text[8..].iter_mut().enumerate() {
            *byte = digit(number >> (44 - 4 * at));
        }
        RequestId::Own(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sent_id_is_kept_and_another_is_replaced_by_a_new_one() {
        let ids = RequestIds::random_start();
        let sent = HeaderValue::from_static("job-7.a_b");
        assert_eq!(ids.of(Some(&sent)).as_str(), "job-7.a_b");
        let bad = HeaderValue::from_static("no spaces");
        let (first, second) = (ids.of(Some(&bad)), ids.of(None));
        assert_eq!(first.as_str().len(), OWN_LEN);
        assert!(first.as_str() < second.as_str());
        assert_eq!(first.to_header().to_str().unwrap(), first.as_str());
    }
}
