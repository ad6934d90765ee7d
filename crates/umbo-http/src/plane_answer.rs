//! Answers of planes above the one of rows, which write them themselves.

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use umbo_edge::body::ReplyBody;

use crate::json_text::{JSON, NDJSON, write_json_line};
use crate::representation::confine;

/// An answer that a plane above the one of rows has written.
#[derive(Debug, Default)]
pub struct PlaneAnswer {
    /// Status of the answer.
    pub status: StatusCode,
    /// Its header fields.
    pub headers: HeaderMap,
    /// Its body, if the header fields have its type.
    pub body: Bytes,
}

impl PlaneAnswer {
    /// Makes an answer that is JSON.
    pub fn json(answer: &impl serde::Serialize) -> Self {
        let mut text = BytesMut::new();
        write_json_line(&mut text, answer);
        Self::of_type(JSON, text.freeze())
    }

    /// Makes an answer that is lines of JSON.
    pub fn lines(lines: Bytes) -> Self {
        Self::of_type(NDJSON, lines)
    }

    fn of_type(content_type: HeaderValue, body: Bytes) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, content_type);
        Self {
            headers,
            body,
            ..Self::default()
        }
    }

    pub(crate) fn write_to(self, response: &mut Response<ReplyBody>) -> StatusCode {
        *response.headers_mut() = self.headers;
        if response.headers().contains_key(CONTENT_TYPE) {
            confine(response.headers_mut());
            *response.body_mut() = ReplyBody::Full(self.body);
        }
        self.status
    }
}
