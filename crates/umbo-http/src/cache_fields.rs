//! Source of an answer: `Cache-Status` (RFC 9211) and `Age` (RFC 9111).
//!
//! Hot path: frequent values are constants.

use http::HeaderMap;
use http::header::{AGE, HeaderName, HeaderValue};

use crate::cache_status::CacheStatus;

const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// Results are usually cached for three seconds.
const HITS: [&str; 4] = [
    "umbo; hit; ttl=0",
    "umbo; hit; ttl=1",
    "umbo; hit; ttl=2",
    "umbo; hit; ttl=3",
];

/// Inserts the fields.
pub(crate) fn insert(headers: &mut HeaderMap, status: CacheStatus) {
    let status = match status {
        CacheStatus::Hit { ttl, age } => {
            headers.insert(AGE, HeaderValue::from(age));
            let known = usize::try_from(ttl).ok().and_then(|ttl| HITS.get(ttl));
            known.map_or_else(|| longer(ttl), |text| HeaderValue::from_static(text))
        }
        CacheStatus::Collapsed => HeaderValue::from_static("umbo; fwd=miss; collapsed"),
        CacheStatus::Miss => HeaderValue::from_static("umbo; fwd=miss"),
        CacheStatus::Bypass => HeaderValue::from_static("umbo; fwd=request"),
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
    fn every_cache_status_has_its_value() {
        let fields_of = |status| {
            let mut headers = HeaderMap::new();
            insert(&mut headers, status);
            let text = |name| {
                headers
                    .get(name)
                    .map(|value| value.to_str().unwrap().to_owned())
            };
            (text(CACHE_STATUS).unwrap(), text(AGE))
        };
        let plain = |text: &str| (text.to_owned(), None);
        assert_eq!(fields_of(CacheStatus::Miss), plain("umbo; fwd=miss"));
        assert_eq!(
            fields_of(CacheStatus::Collapsed),
            plain("umbo; fwd=miss; collapsed")
        );
        assert_eq!(fields_of(CacheStatus::Bypass), plain("umbo; fwd=request"));
        for (ttl, age) in [(0, 3), (3, 0), (4, 1), (3_600, 17)] {
            let (status, told) = fields_of(CacheStatus::Hit { ttl, age });
            assert_eq!(status, format!("umbo; hit; ttl={ttl}"));
            assert_eq!(told, Some(age.to_string()));
        }
    }
}
