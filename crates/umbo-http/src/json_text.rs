//! JSON of answers, and its media types.

use bytes::{BufMut, BytesMut};
use http::HeaderValue;
use umbo_api::json_line;

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(crate) const NDJSON: HeaderValue = HeaderValue::from_static("application/x-ndjson");

/// Writes a value as JSON.
pub fn write_json(out: &mut BytesMut, value: &impl serde::Serialize) {
    json_line::write(out.writer(), value).expect("a buffer that grows takes every write");
}

/// Writes a value as one line of JSON.
pub fn write_json_line(out: &mut BytesMut, value: &impl serde::Serialize) {
    write_json(out, value);
    out.put_u8(b'\n');
}
