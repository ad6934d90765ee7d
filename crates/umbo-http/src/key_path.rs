//! Keys in the path of a request. The raw path is decoded, so any bytes are a key.

use bytes::BytesMut;
use http::Uri;
use umbo_api::path::KeyEncoding;
use umbo_types::Key;

use crate::query::Query;
use crate::request_error::{KeyPart, RequestError};

/// Decodes `{pk}[/{sk…}]`; the first slash ends the partition key, the sort key may hold more.
pub(crate) fn key_in_path(rest: &str, uri: &Uri) -> Result<Key, RequestError> {
    let encoding = match uri.query() {
        None => KeyEncoding::Percent,
        query => Query::read(query, "enc")?.key_encoding()?,
    };
    key_of(rest, encoding)
}

/// Decodes `{pk}[/{sk…}]` of this encoding.
pub fn key_of(rest: &str, encoding: KeyEncoding) -> Result<Key, RequestError> {
    let (partition, sort) = split_at_slash(rest).unwrap_or((rest, ""));
    if encoding == KeyEncoding::Percent && !rest.as_bytes().contains(&b'%') {
        // One buffer for both keys.
        let mut keys = BytesMut::with_capacity(partition.len() + sort.len());
        keys.extend_from_slice(partition.as_bytes());
        keys.extend_from_slice(sort.as_bytes());
        let mut partition_bytes = keys.freeze();
        let sort_bytes = partition_bytes.split_off(partition.len());
        return Ok(Key::new(partition_bytes, sort_bytes)?);
    }
    let partition = key_bytes(partition, KeyPart::Partition, encoding)?;
    Ok(Key::new(
        partition,
        key_bytes(sort, KeyPart::Sort, encoding)?,
    )?)
}

/// Splits at the first slash, which is a few bytes away: a search for a pattern costs several times as much.
pub(crate) fn split_at_slash(text: &str) -> Option<(&str, &str)> {
    let at = text.bytes().position(|byte| byte == b'/')?;
    Some((&text[..at], &text[at + 1..]))
}

/// Decodes one part of a key.
pub(crate) fn key_bytes(
    text: &str,
    part: KeyPart,
    encoding: KeyEncoding,
) -> Result<Vec<u8>, RequestError> {
    encoding
        .decode(text.as_bytes())
        .map_err(|problem| RequestError::BadKeyText { part, problem })
}
