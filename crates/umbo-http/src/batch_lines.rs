//! The lines of a batch write: each a mutation, or refused by its number.
//!
//! Values that need no unescaping are slices of the request body.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use umbo_api::batch::{MatchField, Text, WriteLine, WriteOp};
use umbo_api::path::KeyEncoding;
use umbo_api::row::{CONTENT_FIELD_EXPECTED, RowFieldError, is_content_field};
use umbo_control::NamespaceEntry;
use umbo_store::{Change, Condition, Mutation};
use umbo_types::{Key, Timestamp, Value, Version, limits};

use crate::fields::{EXPIRES_AT_EXPECTED, EXPIRES_AT_MS, parse_number};
use crate::json_body::json_object;
use crate::request_error::RequestError;

/// Reads the lines of a batch; blank lines do not count.
pub fn parse(
    body: &Bytes,
    namespace: &NamespaceEntry,
    now: Timestamp,
) -> Result<Vec<Result<Mutation, RequestError>>, RequestError> {
    let mut rows = Vec::new();
    let mut rest = &body[..];
    while !rest.is_empty() {
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let line = rest[..end].trim_ascii();
        rest = rest.get(end + 1..).unwrap_or_default();
        if line.is_empty() {
            continue;
        }
        if rows.len() == limits::BATCH_ROWS_MAX {
            return Err(RequestError::BatchTooLarge {
                what: "rows",
                max: limits::BATCH_ROWS_MAX,
            });
        }
        rows.push(mutation(line, body, namespace, now));
    }
    Ok(rows)
}

fn mutation(
    line: &[u8],
    body: &Bytes,
    namespace: &NamespaceEntry,
    now: Timestamp,
) -> Result<Mutation, RequestError> {
    let line: WriteLine<'_> = json_object(line)?;
    let condition = condition(line.if_match.as_ref(), line.if_none_match.as_ref())?;
    let expires_at = expiry(line.ttl, line.expires_at, now)?;
    let field = |error: RowFieldError| RequestError::BadBody(error.to_string());
    let partition = pair("pk", line.pk, line.pk64, body)
        .and_then(|found| found.ok_or(RowFieldError::Neither("pk")))
        .map_err(field)?;
    let sort = pair("sk", line.sk, line.sk64, body)
        .map_err(field)?
        .unwrap_or_default();
    let bytes = pair("v", line.v, line.v64, body).map_err(field)?;
    let key = Key::new(partition, sort)?;
    let change = match (line.op, bytes) {
        (WriteOp::Put, Some(bytes)) => {
            let text =
                |text: Option<Text<'_>>| text.map_or_else(Bytes::new, |text| own(text, body));
            let content_type = content_field(text(line.content_type))?;
            let content_encoding = content_field(text(line.content_encoding))?;
            let value = Value::new(bytes, content_type, content_encoding)?;
            if expires_at.is_some_and(|at| at <= now) {
                return Err(RequestError::RowExpired);
            }
            let expires_at = expires_at.or_else(|| namespace.default_expiry(now));
            Change::Put { value, expires_at }
        }
        (WriteOp::Put, None) => return Err(field(RowFieldError::Neither("v"))),
        (WriteOp::Del, None) if expires_at.is_none() => Change::Delete,
        (WriteOp::Del, _) => {
            return Err(RequestError::BadBody(
                "a 'del' has no value and no expiry".to_owned(),
            ));
        }
    };
    Ok(Mutation {
        key,
        change,
        condition,
    })
}

/// Refuses content types and encodings that could not be header values again.
fn content_field(bytes: Bytes) -> Result<Bytes, RequestError> {
    if is_content_field(&bytes) {
        return Ok(bytes);
    }
    Err(RequestError::BadBody(format!(
        "a content type or encoding is {CONTENT_FIELD_EXPECTED}"
    )))
}

fn pair(
    name: &'static str,
    text: Option<Text<'_>>,
    base64: Option<Text<'_>>,
    body: &Bytes,
) -> Result<Option<Bytes>, RowFieldError> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(RowFieldError::Both(name)),
        (Some(text), None) => Ok(Some(own(text, body))),
        (None, Some(encoded)) => KeyEncoding::Base64Url
            .decode(encoded.0.as_bytes())
            .map(|bytes| Some(bytes.into()))
            .map_err(|_| RowFieldError::BadBase64(name)),
        (None, None) => Ok(None),
    }
}

/// Keeps a text: as a slice of the body it was read from, where it lies there.
fn own(text: Text<'_>, body: &Bytes) -> Bytes {
    match text.0 {
        Cow::Borrowed(text) => body.slice_ref(text.as_bytes()),
        Cow::Owned(text) => text.into(),
    }
}

fn expiry(
    ttl: Option<u64>,
    expires_at: Option<u64>,
    now: Timestamp,
) -> Result<Option<Timestamp>, RequestError> {
    let bad = |name, value: u64, expected| RequestError::BadParameter {
        name,
        value: value.to_string(),
        expected,
    };
    match (ttl, expires_at) {
        (Some(_), Some(_)) => Err(RequestError::Contradiction {
            one: "ttl",
            other: "expires_at",
        }),
        (None, Some(at)) if !EXPIRES_AT_MS.contains(&at) => {
            Err(bad("expires_at", at, EXPIRES_AT_EXPECTED))
        }
        (Some(ttl), None) => Ok(Some(now.saturating_add(Duration::from_secs(ttl)))),
        (None, Some(at)) => Ok(Some(Timestamp::from_millis(at))),
        (None, None) => Ok(None),
    }
}

fn condition(
    if_match: Option<&MatchField>,
    if_none_match: Option<&MatchField>,
) -> Result<Condition, RequestError> {
    let bad = |name, field: &MatchField, expected| RequestError::BadParameter {
        name,
        value: match field {
            MatchField::Version(version) => version.to_string(),
            MatchField::Text(text) => text.chars().take(64).collect(),
        },
        expected,
    };
    match (if_match, if_none_match) {
        (None, None) => Ok(Condition::Always),
        (Some(_), Some(_)) => Err(RequestError::Contradiction {
            one: "if_match",
            other: "if_none_match",
        }),
        (Some(MatchField::Version(version)), None) => {
            Ok(Condition::VersionIn(vec![Version(*version)]))
        }
        (Some(MatchField::Text(text)), None) if text == "*" => Ok(Condition::Present),
        (Some(field @ MatchField::Text(text)), None) => {
            let tag = text
                .strip_prefix('"')
                .and_then(|rest| rest.strip_suffix('"'));
            let version = tag.and_then(parse_number).map(Version);
            let version =
                version.ok_or_else(|| bad("if_match", field, "a version, an ETag or \"*\""))?;
            Ok(Condition::VersionIn(vec![version]))
        }
        (None, Some(MatchField::Text(text))) if text == "*" => Ok(Condition::Absent),
        (None, Some(field)) => Err(bad("if_none_match", field, "\"*\"")),
    }
}
