//! The rows of a batch write, lines of JSON or CSV: each a mutation, or refused by its number.
//!
//! Values that need no unescaping are slices of the request body.

use bytes::{Buf as _, Bytes};
use umbo_api::batch::MatchField;
use umbo_control::NamespaceEntry;
use umbo_rows::source::BYTE_ORDER_MARK;
use umbo_rows::{
    Expiry, InputChange, InputRow, LineChange, LineError, RejectReason, RowFormat, RowReader,
    RowsError, line,
};
use umbo_store::{Change, Condition, Mutation};
use umbo_types::{Key, PartitionKey, RowError, Timestamp, Version, limits};

use crate::fields::version_of;
use crate::request_error::RequestError;

/// Reads the rows of a batch; blank lines do not count. `lives_from` returns the begin of the life of rows in a
/// partition.
pub fn parse(
    body: &Bytes,
    format: &RowFormat,
    namespace: &NamespaceEntry,
    mut lives_from: impl FnMut(&PartitionKey) -> Timestamp,
) -> Result<Vec<Result<Mutation, RequestError>>, RequestError> {
    if *format != RowFormat::Lines {
        let bad = |error: RowsError| RequestError::BadBody(error.to_string());
        let records = RowReader::decoded(format, Box::new(body.clone().reader())).map_err(bad)?;
        let mut rows = Vec::new();
        for row in records {
            check_count(rows.len())?;
            rows.push(match row.map_err(bad)? {
                Ok(InputRow { key, change, .. }) => {
                    let change = LineChange::Row(change);
                    mutation(key, change, Condition::Always, namespace, &mut lives_from)
                }
                Err(rejected) => Err(match rejected.reason {
                    RejectReason::Line(error) => error.into(),
                    reason => RequestError::BadBody(reason.to_string()),
                }),
            });
        }
        return Ok(rows);
    }
    let mut rows = Vec::new();
    let mut rest = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    if rest.trim_ascii_start().first() == Some(&b'[') {
        let reason = "a batch is one JSON object per line, not a JSON array";
        return Err(RequestError::BadBody(reason.to_owned()));
    }
    while !rest.is_empty() {
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let line = rest[..end].trim_ascii();
        rest = rest.get(end + 1..).unwrap_or_default();
        if line.is_empty() {
            continue;
        }
        check_count(rows.len())?;
        rows.push(parse_line(line, body, namespace, &mut lives_from));
    }
    Ok(rows)
}

/// Refuses a row beyond the limit of a batch.
fn check_count(rows_before: usize) -> Result<(), RequestError> {
    let (what, max) = ("rows", limits::BATCH_ROWS_MAX);
    if rows_before < max {
        return Ok(());
    }
    Err(RequestError::BatchTooLarge { what, max })
}

fn parse_line(
    line: &[u8],
    body: &Bytes,
    namespace: &NamespaceEntry,
    lives_from: impl FnMut(&PartitionKey) -> Timestamp,
) -> Result<Mutation, RequestError> {
    let line = line::parse(line, body)?;
    let condition = condition(line.if_match.as_ref(), line.if_none_match.as_ref());
    mutation(line.key, line.change, condition?, namespace, lives_from)
}

fn mutation(
    key: Key,
    change: LineChange,
    condition: Condition,
    namespace: &NamespaceEntry,
    mut lives_from: impl FnMut(&PartitionKey) -> Timestamp,
) -> Result<Mutation, RequestError> {
    let default = namespace.default_ttl().map(Expiry::After);
    let mut instant = |expiry: Option<Expiry>| {
        let Some(expiry) = expiry else {
            return Ok(None);
        };
        let now = lives_from(&key.partition);
        let expires_at = expiry.instant(now);
        if expires_at <= now {
            return Err(RequestError::RowExpired);
        }
        Ok(Some(expires_at))
    };
    let change = match change {
        // A batch is answered row by row, and its rows wait for no upload.
        LineChange::Row(InputChange::Put { value, .. }) if value.is_long() => {
            return Err(RowError::ValueTooLarge(value.bytes.len()).into());
        }
        LineChange::Row(InputChange::Put { value, expiry }) => Change::Put {
            value,
            expires_at: instant(expiry.or(default))?,
        },
        LineChange::Row(InputChange::Delete) => Change::Delete,
        LineChange::Increment { by, expiry } => Change::Increment {
            by,
            expires_at: instant(expiry)?,
            default_expiry: instant(default)?,
        },
    };
    Ok(Mutation {
        key,
        change,
        condition,
    })
}

impl From<LineError> for RequestError {
    fn from(error: LineError) -> Self {
        match error {
            LineError::Key(error) => error.into(),
            LineError::Value(error) => error.into(),
            LineError::LongValue(len) => RowError::ValueTooLarge(len).into(),
            LineError::ExpiresAt(_)
            | LineError::TwoExpiries
            | LineError::Json(_)
            | LineError::NotText { .. }
            | LineError::TwoObjects
            | LineError::Field(_)
            | LineError::ContentField
            | LineError::DeleteWithValue
            | LineError::ByWithoutIncrement
            | LineError::IncrementWithoutBy
            | LineError::IncrementWithValue
            | LineError::IncrementAmongRows => Self::BadBody(error.to_string()),
        }
    }
}

fn condition(
    if_match: Option<&MatchField>,
    if_none_match: Option<&MatchField>,
) -> Result<Condition, RequestError> {
    let bad = |name, field: &MatchField, expected| {
        let value = match field {
            MatchField::Version(version) => version.to_string(),
            MatchField::Text(text) => text.chars().take(64).collect(),
        };
        RequestError::BadBody(format!("'{name}' is '{value}', expected {expected}"))
    };
    match (if_match, if_none_match) {
        (None, None) => Ok(Condition::Always),
        (Some(_), Some(_)) => Err(RequestError::BadBody(
            "'if_match' and 'if_none_match' cannot both be given".to_owned(),
        )),
        (Some(MatchField::Version(version)), None) => {
            Ok(Condition::VersionIn(vec![Version(*version)]))
        }
        (Some(MatchField::Text(text)), None) if text == "*" => Ok(Condition::Present),
        (Some(field @ MatchField::Text(text)), None) => {
            let tag = text
                .strip_prefix('"')
                .and_then(|rest| rest.strip_suffix('"'));
            let version = tag.and_then(version_of);
            let version =
                version.ok_or_else(|| bad("if_match", field, "a version, an ETag or \"*\""))?;
            Ok(Condition::VersionIn(vec![version]))
        }
        (None, Some(MatchField::Text(text))) if text == "*" => Ok(Condition::Absent),
        (None, Some(field)) => Err(bad("if_none_match", field, "\"*\"")),
    }
}
