//! What an answer says of where it came from: `Cache-Status` (RFC 9211) and `Age` (RFC 9111).
//!
//! Hot path: what is said often is not put together each time.

use http::HeaderMap;
use http::header::{AGE, HeaderName, HeaderValue};

use crate::shield::Passage;

const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// Answers are usually kept for three seconds.
const HITS: [&str; 4] = [
    "umbo; hit; ttl=0",
    "umbo; hit; ttl=1",
    "umbo; hit; ttl=2",
    "umbo; hit; ttl=3",
];

/// Says where an answer came from, and how old it is where it was kept.
pub(crate) fn insert(headers: &mut HeaderMap, passage: Passage) {
    let status = match passage {
        Passage::Hit { ttl, age } => {
            headers.insert(AGE, HeaderValue::from(age));
            let known = usize::try_from(ttl).ok().and_then(|ttl| HITS.get(ttl));
            known.map_or_else(|| longer(ttl), |text| HeaderValue::from_static(text))
        }
        Passage::Glow => {
            headers.insert(AGE, HeaderValue::from_static("0"));
            HeaderValue::from_static(HITS[0])
        }
        Passage::Collapsed => HeaderValue::from_static("umbo; fwd=miss; collapsed"),
        Passage::Miss => HeaderValue::from_static("umbo; fwd=miss"),
        Passage::Request => HeaderValue::from_static("umbo; fwd=request"),
    };
    headers.insert(CACHE_STATUS, status);
}

fn longer(ttl: u64) -> HeaderValue {
    let text = format!("umbo; hit; ttl={ttl}");
    HeaderValue::from_maybe_shared(bytes::Bytes::from(text)).expect("digits and words are a field")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_passage_has_its_words() {
        let said = |passage| {
            let mut headers = HeaderMap::new();
            insert(&mut headers, passage);
            let text = |name| {
                headers
                    .get(name)
                    .map(|value| value.to_str().unwrap().to_owned())
            };
            (text(CACHE_STATUS).unwrap(), text(AGE))
        };
        let plain = |text: &str| (text.to_owned(), None);
        assert_eq!(said(Passage::Miss), plain("umbo; fwd=miss"));
        assert_eq!(said(Passage::Collapsed), plain("umbo; fwd=miss; collapsed"));
        assert_eq!(said(Passage::Request), plain("umbo; fwd=request"));
        let glow = ("umbo; hit; ttl=0".to_owned(), Some("0".to_owned()));
        assert_eq!(said(Passage::Glow), glow);
        for (ttl, age) in [(0, 3), (3, 0), (4, 1), (3_600, 17)] {
            let (status, told) = said(Passage::Hit { ttl, age });
            assert_eq!(status, format!("umbo; hit; ttl={ttl}"));
            assert_eq!(told, Some(age.to_string()));
        }
    }
}
