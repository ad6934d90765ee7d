//! Single rows: get, head, put, touch, delete.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue};
use reqwest::{Method, StatusCode};
use umbo_api::admin::DurabilitySetting;
use umbo_api::batch::DeleteRangeAnswer;
use umbo_api::path::kv_target;
use umbo_api::{ErrorCode, header};

use crate::answer::{number_header, text_header};
use crate::client::Client;
use crate::error::Error;
use crate::request::Request;
use crate::retry::Repeat;

/// What a write asks of the row that is there before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    #[default]
    None,
    /// It has this version.
    Version(u64),
    /// There is one.
    Exists,
    /// There is none.
    Absent,
}

impl Condition {
    /// Adds the condition to a request.
    pub(crate) fn on(self, request: Request) -> Result<Request, Error> {
        let Some((name, text)) = self.header() else {
            return Ok(request);
        };
        let value = HeaderValue::try_from(text)
            .map_err(|_| Error::BadOption("a condition holds control characters"))?;
        Ok(request.with_header(name, value))
    }

    fn header(self) -> Option<(&'static str, String)> {
        match self {
            Self::None => None,
            Self::Version(version) => Some(("if-match", format!("\"{version}\""))),
            Self::Exists => Some(("if-match", "*".to_owned())),
            Self::Absent => Some(("if-none-match", "*".to_owned())),
        }
    }

    /// A write with a condition is repeated after an attempt without an answer: it is applied at most
    /// once in a row, and a success of any attempt is one. Where the condition is false then, the
    /// call ends with [`Error::Unconfirmed`].
    fn repeat(self) -> Repeat {
        match self {
            Self::None | Self::Exists => Repeat::IfNotApplied,
            Self::Version(_) | Self::Absent => Repeat::Always,
        }
    }
}

/// How to store a value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// Time to live, in whole seconds (rounded up); the namespace's default where none.
    pub ttl: Option<Duration>,
    /// Media type.
    pub content_type: Option<String>,
    /// Content encoding.
    pub content_encoding: Option<String>,
    /// What must be true of the row before.
    pub condition: Condition,
    /// When the write is acknowledged; the namespace's setting where none.
    pub durability: Option<DurabilitySetting>,
}

/// A value as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredValue {
    /// The bytes; empty in the answer to `head`.
    pub bytes: Bytes,
    /// Length of the bytes.
    pub len: u64,
    /// Version, the `ETag` without its quotes.
    pub version: u64,
    /// Expiry, in milliseconds since the Unix epoch.
    pub expires_at: Option<u64>,
    /// Media type.
    pub content_type: Option<String>,
    /// Content encoding.
    pub content_encoding: Option<String>,
}

/// What a put did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Whether there was no row before.
    pub is_new: bool,
    /// Version the row was given.
    pub version: u64,
}

impl Client {
    /// Reads a row, none where there is none. A namespace that does not exist is an error.
    pub async fn get(
        &self,
        namespace: &str,
        partition: &[u8],
        sort: &[u8],
    ) -> Result<Option<StoredValue>, Error> {
        let request = Request::read(kv_target(namespace, partition, sort));
        let read = self.send_for_parts(&request).await;
        match read {
            Ok((headers, bytes)) => stored(&headers, bytes).map(Some),
            Err(error) if error.code() == Some(ErrorCode::KeyNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a row without its bytes, none where there is no row or no namespace: an answer to
    /// `HEAD` cannot tell them apart.
    pub async fn head(
        &self,
        namespace: &str,
        partition: &[u8],
        sort: &[u8],
    ) -> Result<Option<StoredValue>, Error> {
        let target = kv_target(namespace, partition, sort);
        let request = Request::new(Method::HEAD, target, Repeat::Always);
        match self.send_for_parts(&request).await {
            Ok((headers, bytes)) => stored(&headers, bytes).map(Some),
            Err(error) if error.status() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores a row.
    pub async fn put(
        &self,
        namespace: &str,
        partition: &[u8],
        sort: &[u8],
        value: impl Into<Bytes>,
        options: &PutOptions,
    ) -> Result<Written, Error> {
        let target = kv_target(namespace, partition, sort);
        let mut request = Request::new(Method::PUT, target, options.condition.repeat());
        request.body = value.into();
        if let Some(ttl) = options.ttl {
            request = with_ttl(request, ttl);
        }
        for (name, field) in [
            ("content-type", &options.content_type),
            ("content-encoding", &options.content_encoding),
        ] {
            if let Some(field) = field {
                let value = HeaderValue::try_from(field).map_err(|_| {
                    Error::BadOption("a content type or encoding holds control characters")
                })?;
                request = request.with_header(name, value);
            }
        }
        request = with_write_headers(request, options.condition, options.durability)?;
        let response = self.send(&request).await?;
        Ok(Written {
            is_new: response.status() == StatusCode::CREATED,
            version: version(response.headers())?,
        })
    }

    /// Changes the expiry of a row and leaves its value; returns its new version, none where there is no row.
    pub async fn touch(
        &self,
        namespace: &str,
        partition: &[u8],
        sort: &[u8],
        ttl: Duration,
        condition: Condition,
    ) -> Result<Option<u64>, Error> {
        let target = kv_target(namespace, partition, sort);
        let request = Request::new(Method::PATCH, target, condition.repeat());
        let request = with_write_headers(with_ttl(request, ttl), condition, None)?;
        match self.send(&request).await {
            Ok(response) => version(response.headers()).map(Some),
            Err(error) if error.code() == Some(ErrorCode::KeyNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns what a delete would remove, and removes nothing.
    pub async fn delete_dry_run(
        &self,
        namespace: &str,
        partition: &[u8],
        sort: &[u8],
        condition: Condition,
    ) -> Result<DeleteRangeAnswer, Error> {
        let target = kv_target(namespace, partition, sort);
        let mark = if target.contains('?') { '&' } else { '?' };
        let target = format!("{target}{mark}dry_run=true");
        let request = Request::new(Method::DELETE, target, Repeat::Always);
        self.send_for_json(&condition.on(request)?).await
    }

    /// Removes a row, whether or not it is there.
    pub async fn delete(
        &self,
        namespace: &str,
        partition: &[u8],
        sort: &[u8],
        condition: Condition,
    ) -> Result<(), Error> {
        let target = kv_target(namespace, partition, sort);
        let request = Request::new(Method::DELETE, target, condition.repeat());
        let request = with_write_headers(request, condition, None)?;
        self.send(&request).await.map(drop)
    }
}

/// Says a time to live in whole seconds, rounded up.
fn with_ttl(request: Request, ttl: Duration) -> Request {
    let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    request.with_header(header::TTL, HeaderValue::from(seconds))
}

fn with_write_headers(
    request: Request,
    condition: Condition,
    durability: Option<DurabilitySetting>,
) -> Result<Request, Error> {
    let mut request = condition.on(request)?;
    if let Some(durability) = durability {
        let name = durability_name(durability);
        request = request.with_header(header::DURABILITY, HeaderValue::from_static(name));
    }
    Ok(request)
}

/// Returns the name of a durability on the wire.
pub(crate) const fn durability_name(durability: DurabilitySetting) -> &'static str {
    match durability {
        DurabilitySetting::Sync => "sync",
        DurabilitySetting::Async => "async",
    }
}

fn stored(headers: &HeaderMap, bytes: Bytes) -> Result<StoredValue, Error> {
    Ok(StoredValue {
        len: number_header(headers, "content-length").unwrap_or(bytes.len() as u64),
        version: version(headers)?,
        expires_at: number_header(headers, header::EXPIRES_AT),
        content_type: text_header(headers, CONTENT_TYPE.as_str()),
        content_encoding: text_header(headers, CONTENT_ENCODING.as_str()),
        bytes,
    })
}

fn version(headers: &HeaderMap) -> Result<u64, Error> {
    let tag = text_header(headers, ETAG.as_str()).unwrap_or_default();
    tag.trim_matches('"')
        .parse()
        .map_err(|_| Error::Malformed(format!("its ETag is '{tag}'")))
}
