//! A request, ready to be sent more than once.

use bytes::Bytes;
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use umbo_api::header;

use crate::pacer::WorkHint;
use crate::retry::Repeat;
use crate::value_source::ValueSource;

/// Returns the target of a call, or of its dry run, which changes nothing.
pub(crate) fn with_dry_run(target: String, is_dry_run: bool) -> String {
    let mark = if target.contains('?') { '&' } else { '?' };
    if is_dry_run {
        format!("{target}{mark}dry_run=true")
    } else {
        target
    }
}

/// One request, ready to be sent more than once.
#[derive(Debug)]
pub(crate) struct RepeatableRequest {
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Source of its body, in place of `body`.
    pub(crate) source: Option<ValueSource>,
    pub(crate) repeat: Repeat,
    /// Rows that it reads or writes; 1 if not known.
    pub(crate) rows: u64,
    /// Whether it writes rows.
    pub(crate) is_write: bool,
    /// Whether the server recognises its repetitions.
    pub(crate) is_keyed: bool,
}

impl RepeatableRequest {
    pub(crate) fn new(method: Method, target: String, repeat: Repeat) -> Self {
        Self {
            is_write: matches!(method, Method::PUT | Method::DELETE),
            is_keyed: false,
            method,
            target,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            source: None,
            repeat,
            rows: 1,
        }
    }

    pub(crate) fn read(target: String) -> Self {
        Self::new(Method::GET, target, Repeat::Always)
    }

    pub(crate) fn with_header(mut self, name: &'static str, value: HeaderValue) -> Self {
        self.headers.insert(HeaderName::from_static(name), value);
        self
    }

    pub(crate) fn with_body(self, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        self.with_body_of(HeaderValue::from_static(content_type), body)
    }

    /// Sets its body, with a media type made at run time.
    pub(crate) fn with_body_of(mut self, media_type: HeaderValue, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self.with_header("content-type", media_type)
    }

    /// Sets its idempotency key: it may then be repeated after an attempt with any outcome.
    pub(crate) fn keyed(mut self, key: HeaderValue) -> Self {
        (self.is_keyed, self.repeat) = (true, Repeat::Always);
        self.with_header(header::IDEMPOTENCY_KEY, key)
    }

    /// Sets the number of rows that it writes.
    pub(crate) fn writing(mut self, rows: u64) -> Self {
        (self.is_write, self.rows) = (true, rows);
        self
    }

    /// Returns the body of one attempt.
    pub(crate) fn attempt_body(&self) -> reqwest::Body {
        match &self.source {
            Some(source) => source.body(),
            None => self.body.clone().into(),
        }
    }

    /// Returns the hint of its cost.
    pub(crate) fn load(&self) -> WorkHint {
        WorkHint {
            is_write: self.is_write,
            rows: self.rows,
            bytes: if self.is_write {
                let source = self.source.as_ref();
                source.map_or(self.body.len() as u64, ValueSource::len)
            } else {
                0
            },
        }
    }
}
