//! Fields that are lists, in several lines (RFC 9110, section 5.3): one line with all their members.
//!
//! Proxies and clients may write a list in this way, and code that reads a field later sees only one line of it.
//! Fields with a single value are left alone: two lines of them contradict each other.

use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderName, HeaderValue, IF_MATCH,
    IF_NONE_MATCH,
};

/// The fields that are lists, among the fields that Umbo reads.
const LISTS: [HeaderName; 7] = [
    ACCEPT,
    ACCEPT_ENCODING,
    CONTENT_ENCODING,
    HeaderName::from_static("content-digest"),
    IF_MATCH,
    IF_NONE_MATCH,
    HeaderName::from_static("prefer"),
];

/// Joins the lines of each list, in their order. Costs nothing if no field has two lines.
pub(super) fn join(headers: &mut HeaderMap) {
    if headers.len() == headers.keys_len() {
        return;
    }
    for name in LISTS {
        let lines: Vec<&[u8]> = headers
            .get_all(&name)
            .iter()
            .map(HeaderValue::as_bytes)
            .collect();
        // Values of header fields with a comma between them are one, too.
        if lines.len() > 1
            && let Ok(whole) = HeaderValue::from_bytes(&lines.join(&b", "[..]))
        {
            headers.insert(name, whole);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_list_are_one_and_those_of_a_single_value_stay() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("if-none-match", "\"1\", \"2\""),
            ("umbo-ttl", "1"),
            ("accept", "text/plain;q=0.5"),
            ("if-none-match", ""),
            ("umbo-ttl", "2"),
            ("if-none-match", "W/\"3\""),
        ] {
            headers.append(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        join(&mut headers);
        let lines = |name| headers.get_all(name).iter().collect::<Vec<_>>();
        assert_eq!(lines("if-none-match"), ["\"1\", \"2\", , W/\"3\""]);
        assert_eq!(lines("umbo-ttl"), ["1", "2"]);
        assert_eq!(lines("accept"), ["text/plain;q=0.5"]);
    }
}
