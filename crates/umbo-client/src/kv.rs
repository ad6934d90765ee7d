//! Single rows: get, head, put, touch, increment, delete.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use umbo_api::admin::DurabilitySetting;
use umbo_api::batch::{DeleteRangeAnswer, KeyFields, MatchField, WriteLineSchema, WriteOp};
use umbo_api::path::{base64url, kv_target};
use umbo_api::{ErrorCode, header};

use crate::answer::{number_header, text_header};
use crate::client::Client;
use crate::dead_letters;
use crate::error::Error;
use crate::request::{RepeatableRequest, with_dry_run};
use crate::retry::Repeat;

/// What a write requires of the row before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    #[default]
    None,
    /// The row has this version.
    Version(u64),
    /// The row exists.
    Exists,
    /// The row does not exist.
    Absent,
}

impl Condition {
    /// Adds the condition to a request.
    pub(crate) fn on(self, request: RepeatableRequest) -> Result<RepeatableRequest, Error> {
        let Some((name, text)) = self.header() else {
            return Ok(request);
        };
        let value = HeaderValue::try_from(text)
            .map_err(|_| Error::BadOption("a condition has control characters"))?;
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

    /// Returns whether a repetition without an idempotency key could have another outcome than the first attempt.
    const fn is_any(self) -> bool {
        !matches!(self, Self::None)
    }
}

/// How to store a value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// Time to live, in whole seconds (rounded up); `None` is the default of the namespace.
    pub ttl: Option<Duration>,
    /// When the row expires, in milliseconds since the Unix epoch; not used if `ttl` is set.
    pub expires_at: Option<u64>,
    /// Media type.
    pub content_type: Option<String>,
    /// Content encoding.
    pub content_encoding: Option<String>,
    /// Condition on the row before.
    pub condition: Condition,
    /// When the write is acknowledged; `None` is the setting of the namespace.
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

/// The outcome of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Whether there was no row before.
    pub is_new: bool,
    /// Version the row was given.
    pub version: u64,
}

/// How to increment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IncrementOptions {
    /// Time to live that the row gets, in whole seconds (rounded up). With `None` a row keeps its expiry, and a new
    /// row gets the default of the namespace.
    pub ttl: Option<Duration>,
    /// Condition on the row before.
    pub condition: Condition,
    /// When the write is acknowledged; `None` is the setting of the namespace.
    pub durability: Option<DurabilitySetting>,
}

/// The outcome of an increment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incremented {
    /// The new number.
    pub number: i64,
    /// Version the row was given.
    pub version: u64,
}

impl Client {
    /// Reads a row, or returns `None` if it does not exist. A namespace that does not exist is an error.
    pub async fn get(
        &self,
        namespace: &str,
        partition: &[u8],
        sort: &[u8],
    ) -> Result<Option<StoredValue>, Error> {
        let request = RepeatableRequest::read(kv_target(namespace, partition, sort));
        let read = self.send_for_parts(&request).await;
        match read {
            Ok((headers, bytes)) => stored(&headers, bytes).map(Some),
            Err(error) if error.code() == Some(ErrorCode::KeyNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a row without its bytes. Returns `None` if the row or the namespace does not exist: an answer to `HEAD`
    /// cannot tell them apart.
    pub async fn head(
        &self,
        namespace: &str,
        partition: &[u8],
        sort: &[u8],
    ) -> Result<Option<StoredValue>, Error> {
        let target = kv_target(namespace, partition, sort);
        let request = RepeatableRequest::new(Method::HEAD, target, Repeat::Always);
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
        let mut request = put_request(self, target, options)?;
        request.body = value.into();
        let sent = self.send(&request).await;
        let response = sent.inspect_err(|error| {
            self.bury(|| {
                let line = put_line(partition, sort, &request.body, options);
                dead_letters::letter(namespace, error, line)
            });
        })?;
        written(&response)
    }

    /// Changes the expiry of a row and leaves its value. Returns its new version, or `None` if there is no row.
    pub async fn touch(
        &self,
        namespace: &str,
        partition: &[u8],
        sort: &[u8],
        ttl: Duration,
        condition: Condition,
    ) -> Result<Option<u64>, Error> {
        let target = kv_target(namespace, partition, sort);
        let request =
            RepeatableRequest::new(Method::PATCH, target, Repeat::IfNotApplied).writing(1);
        let request = with_write_headers(with_ttl(request, ttl), condition, None)?;
        let request = self.keyed(request, true);
        match self.send(&request).await {
            Ok(response) => version(response.headers()).map(Some),
            Err(error) if error.code() == Some(ErrorCode::KeyNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Adds to the number that a row holds, decimal text of a signed 64-bit number; an absent row counts as 0. The sum
    /// is applied once, even after several attempts.
    pub async fn increment(
        &self,
        namespace: &str,
        partition: &[u8],
        sort: &[u8],
        by: i64,
        options: &IncrementOptions,
    ) -> Result<Incremented, Error> {
        let target = kv_target(namespace, partition, sort);
        let mut request =
            RepeatableRequest::new(Method::PATCH, target, Repeat::IfNotApplied).writing(1);
        request = request.with_header(header::INCREMENT, HeaderValue::from(by));
        if let Some(ttl) = options.ttl {
            request = with_ttl(request, ttl);
        }
        request = with_write_headers(request, options.condition, options.durability)?;
        let sent = self.send_for_parts(&self.keyed(request, true)).await;
        let (headers, number) = sent.inspect_err(|error| {
            self.bury(|| {
                let (ttl, condition) = (options.ttl, options.condition);
                let line = increment_line(partition, sort, by, ttl, condition);
                dead_letters::letter(namespace, error, line)
            });
        })?;
        let number = std::str::from_utf8(&number).ok();
        let number = number.and_then(|number| number.parse().ok());
        Ok(Incremented {
            number: number
                .ok_or_else(|| Error::Malformed("its body is not a number".to_owned()))?,
            version: version(&headers)?,
        })
    }

    /// Returns the rows and bytes that a delete would remove, and removes nothing.
    pub async fn delete_dry_run(
        &self,
        namespace: &str,
        partition: &[u8],
        sort: &[u8],
        condition: Condition,
    ) -> Result<DeleteRangeAnswer, Error> {
        let target = with_dry_run(kv_target(namespace, partition, sort), true);
        let request = RepeatableRequest::new(Method::DELETE, target, Repeat::Always);
        self.send_for_json(&condition.on(request)?).await
    }

    /// Removes a row, whether or not it exists. Returns whether it existed, or `None` if the server does not say.
    pub async fn delete(
        &self,
        namespace: &str,
        partition: &[u8],
        sort: &[u8],
        condition: Condition,
    ) -> Result<Option<bool>, Error> {
        let target = kv_target(namespace, partition, sort);
        let request = RepeatableRequest::new(Method::DELETE, target, Repeat::IfNotApplied);
        let request = with_write_headers(request, condition, None)?;
        let request = self.keyed(request, condition.is_any());
        let sent = self.send(&request).await;
        let response = sent.inspect_err(|error| {
            self.bury(|| {
                let line = delete_line(partition, sort, condition);
                dead_letters::letter(namespace, error, line)
            });
        })?;
        let existed = text_header(response.headers(), header::EXISTED);
        Ok(existed.and_then(|existed| existed.parse().ok()))
    }
}

/// Makes the request of a put, without its body.
pub(crate) fn put_request(
    client: &Client,
    target: String,
    options: &PutOptions,
) -> Result<RepeatableRequest, Error> {
    let mut request = RepeatableRequest::new(Method::PUT, target, Repeat::IfNotApplied);
    if let Some(ttl) = options.ttl {
        request = with_ttl(request, ttl);
    } else if let Some(at) = options.expires_at {
        request = request.with_header(header::EXPIRES_AT, HeaderValue::from(at));
    }
    for (name, field) in [
        ("content-type", &options.content_type),
        ("content-encoding", &options.content_encoding),
    ] {
        if let Some(field) = field {
            let value = HeaderValue::try_from(field).map_err(|_| {
                Error::BadOption("a content type or encoding has control characters")
            })?;
            request = request.with_header(name, value);
        }
    }
    let request = with_write_headers(request, options.condition, options.durability)?;
    Ok(client.keyed(request, options.condition.is_any()))
}

/// Reads the answer to a put.
pub(crate) fn written(response: &Response) -> Result<Written, Error> {
    Ok(Written {
        is_new: response.status() == StatusCode::CREATED,
        version: version(response.headers())?,
    })
}

/// Sets a time to live in whole seconds, rounded up.
fn with_ttl(request: RepeatableRequest, ttl: Duration) -> RepeatableRequest {
    let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    request.with_header(header::TTL, HeaderValue::from(seconds))
}

fn with_write_headers(
    request: RepeatableRequest,
    condition: Condition,
    durability: Option<DurabilitySetting>,
) -> Result<RepeatableRequest, Error> {
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

pub(crate) fn stored(headers: &HeaderMap, bytes: Bytes) -> Result<StoredValue, Error> {
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
    // After a semicolon stands which representation of the version it is.
    let version = tag.trim_matches('"').split(';').next();
    version
        .unwrap_or_default()
        .parse()
        .map_err(|_| Error::Malformed(format!("its ETag '{tag}' has no version")))
}

/// Returns a put as a line of a batch; its time to live counts from now.
fn put_line(partition: &[u8], sort: &[u8], value: &[u8], options: &PutOptions) -> String {
    let (v, v64) = match std::str::from_utf8(value) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(base64url(value))),
    };
    to_line(&WriteLineSchema {
        v,
        v64,
        expires_at: options.ttl.and_then(expiry).or(options.expires_at),
        content_type: options.content_type.clone(),
        content_encoding: options.content_encoding.clone(),
        ..line_of(partition, sort, options.condition)
    })
}

/// Returns a delete as a line of a batch.
fn delete_line(partition: &[u8], sort: &[u8], condition: Condition) -> String {
    to_line(&WriteLineSchema {
        op: Some(WriteOp::Del),
        ..line_of(partition, sort, condition)
    })
}

/// Returns an increment as a line of a batch.
fn increment_line(
    partition: &[u8],
    sort: &[u8],
    by: i64,
    ttl: Option<Duration>,
    condition: Condition,
) -> String {
    to_line(&WriteLineSchema {
        op: Some(WriteOp::Inc),
        by: Some(by),
        expires_at: ttl.and_then(expiry),
        ..line_of(partition, sort, condition)
    })
}

fn line_of(partition: &[u8], sort: &[u8], condition: Condition) -> WriteLineSchema {
    let KeyFields { pk, pk64, sk, sk64 } = KeyFields::of(partition, sort);
    let any = || Some(MatchField::Text("*".to_owned()));
    let (if_match, if_none_match) = match condition {
        Condition::None => (None, None),
        Condition::Version(version) => (Some(MatchField::Version(version)), None),
        Condition::Exists => (any(), None),
        Condition::Absent => (None, any()),
    };
    WriteLineSchema {
        pk,
        pk64,
        sk,
        sk64,
        if_match,
        if_none_match,
        ..WriteLineSchema::default()
    }
}

fn expiry(ttl: Duration) -> Option<u64> {
    let at = SystemTime::now().checked_add(ttl)?;
    let at = at.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(at.as_millis()).ok()
}

fn to_line(line: &WriteLineSchema) -> String {
    serde_json::to_string(line).expect("texts and numbers are JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_bytes_and_conditions() {
        let options = PutOptions {
            condition: Condition::Version(7),
            content_type: Some("text/x".to_owned()),
            ..PutOptions::default()
        };
        assert_eq!(
            put_line(b"a", b"\xff", b"v", &options),
            r#"{"pk":"a","sk64":"_w","v":"v","content_type":"text/x","if_match":7}"#
        );
        assert_eq!(
            delete_line(b"a", b"s", Condition::Absent),
            r#"{"op":"del","pk":"a","sk":"s","if_none_match":"*"}"#
        );
        assert_eq!(
            increment_line(b"a", b"s", -5, None, Condition::Exists),
            r#"{"op":"inc","pk":"a","sk":"s","by":-5,"if_match":"*"}"#
        );
    }
}
