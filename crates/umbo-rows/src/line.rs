//! A line of NDJSON as a write, for batches, imports and loads alike, with the same limits and the same error
//! texts.
//!
//! Bytes that need no unescaping are slices of the buffer that holds the line. `scan.rs` reads the usual lines,
//! and `serde_json` reads the unusual ones. `scan.rs` accepts no line that `serde_json` refuses.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::Value as Json;
use umbo_api::batch::{LineText, MatchField, WriteLine, WriteOp};
use umbo_api::path::KeyEncoding;
use umbo_api::row::{EXPIRES_AT_MS, RowFieldError, RowFields, ValueField, is_content_field};
use umbo_types::{Key, Timestamp, Value, Version};

use crate::error::looks_like;
use crate::line_error::LineError;
use crate::row::{Expiry, InputChange, InputRow, LINE_LEN_MAX};
use crate::scan;

/// A line of NDJSON that is a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedLine {
    /// Key of the row.
    pub key: Key,
    /// The change of the row.
    pub change: LineChange,
    /// Condition on the current version.
    pub if_match: Option<MatchField>,
    /// Condition that there is no row.
    pub if_none_match: Option<MatchField>,
    /// The version of an exported row.
    pub version: Option<Version>,
}

/// The change that a line makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineChange {
    /// A change that a load can make too.
    Row(InputChange),
    /// Adds to the number that is stored.
    Increment {
        /// The number to add.
        by: i64,
        /// When the row expires, if the line says it.
        expiry: Option<Expiry>,
    },
}

/// Reads a line. `owner` holds it, and the row keeps slices of it. The value may be a large one.
pub fn parse(line: &[u8], owner: &Bytes) -> Result<ParsedLine, LineError> {
    let line = read(line)?;
    let expiry = expiry(line.ttl, line.expires_at)?;
    let partition = pair("pk", line.pk, line.pk64, owner)?
        .ok_or(LineError::Field(RowFieldError::Neither("pk")))?;
    let sort = pair("sk", line.sk, line.sk64, owner)?.unwrap_or_default();
    let bytes = pair("v", line.v, line.v64, owner)?;
    let key = Key::new(partition, sort)?;
    let field = |text: Option<LineText<'_>>| text.map_or_else(Bytes::new, |text| own(text, owner));
    let (content_type, content_encoding) = (field(line.content_type), field(line.content_encoding));
    let change = match (line.op, line.by) {
        (WriteOp::Inc, Some(by)) => {
            if bytes.is_some() || !content_type.is_empty() || !content_encoding.is_empty() {
                return Err(LineError::IncrementWithValue);
            }
            LineChange::Increment { by, expiry }
        }
        (WriteOp::Inc, None) => return Err(LineError::IncrementWithoutBy),
        (_, Some(_)) => return Err(LineError::ByWithoutIncrement),
        (op, None) => LineChange::Row(change(op, bytes, [content_type, content_encoding], expiry)?),
    };
    Ok(ParsedLine {
        key,
        change,
        if_match: line.if_match,
        if_none_match: line.if_none_match,
        version: line.version.map(Version),
    })
}

/// Reads the fields of a line.
pub(crate) fn read(line: &[u8]) -> Result<WriteLine<'_>, LineError> {
    if let Some(line) = scan::write_line(line) {
        return Ok(line);
    }
    // An array of the same values is not a row, although serde would accept it.
    let begin = line.trim_ascii_start();
    if begin.first().is_some_and(|&byte| byte != b'{') {
        let kind = looks_like(begin);
        return Err(LineError::Json(format!(
            "expected an object, but it looks like {kind}"
        )));
    }
    serde_json::from_slice(line).map_err(|error| refusal(line, &error))
}

/// Fields that are text.
const TEXT_FIELDS: [&str; 8] = [
    "pk",
    "pk64",
    "sk",
    "sk64",
    "v",
    "v64",
    "content_type",
    "content_encoding",
];

/// Explains why serde refuses a line, in terms of rows if possible.
fn refusal(line: &[u8], error: &serde_json::Error) -> LineError {
    let fields = serde_json::from_slice::<BTreeMap<Cow<'_, str>, Json>>(line).unwrap_or_default();
    let other = TEXT_FIELDS.into_iter().find_map(|name| {
        let is = match fields.get(name)? {
            Json::Bool(_) => "a truth value",
            Json::Number(_) => "a number",
            Json::Array(_) => "a list",
            Json::Object(_) => "an object",
            Json::Null | Json::String(_) => return None,
        };
        Some(LineError::NotText { name, is })
    });
    if let Some(other) = other {
        return other;
    }
    let text = json_problem(error);
    if text.starts_with("trailing characters") {
        return LineError::TwoObjects;
    }
    // Messages show the line's number in the file elsewhere; here it is always the first.
    LineError::Json(text.replace(" at line 1 column ", " at column "))
}

/// How texts of serde begin, and the words for them in JSON.
const JSON_WORDS: [(&str, &str); 14] = [
    ("map", "an object"),
    ("sequence", "a list"),
    ("integer ", "the number "),
    ("floating point ", "the number "),
    ("boolean ", ""),
    ("string ", "the text "),
    ("struct ", "an object"),
    ("a map", "an object"),
    ("a sequence", "a list"),
    ("a string", "text"),
    ("a boolean", "true or false"),
    ("u32", "a whole number of 0 or more"),
    ("u64", "a whole number of 0 or more"),
    ("usize", "a whole number of 0 or more"),
];

/// Explains in words of JSON why serde refuses a text.
#[must_use]
pub fn json_problem(error: &serde_json::Error) -> String {
    let text = error.to_string();
    if let Some(within) = text.strip_prefix("EOF while parsing ") {
        return format!("the text ends within {within}");
    }
    let odd = text
        .strip_prefix("invalid type: ")
        .or_else(|| text.strip_prefix("invalid value: "));
    let Some((found, rest)) = odd.and_then(|odd| odd.rsplit_once(", expected ")) else {
        return text;
    };
    let (expected, place) = rest.split_at(rest.rfind(" at line ").unwrap_or(rest.len()));
    let (found, expected) = (in_words(found), in_words(expected));
    format!("expected {expected}{place}, not {found}")
}

fn in_words(text: &str) -> Cow<'_, str> {
    let mut words = JSON_WORDS.iter();
    let known = words.find_map(|(serde, json)| Some((json, text.strip_prefix(serde)?)));
    match known {
        // The rest is the value.
        Some((json, rest)) if json.is_empty() || json.ends_with(' ') => {
            format!("{json}{rest}").into()
        }
        Some((json, _)) => (*json).into(),
        None => text.into(),
    }
}

/// Checks and makes the change of a row.
pub(crate) fn change(
    op: WriteOp,
    bytes: Option<Bytes>,
    [content_type, content_encoding]: [Bytes; 2],
    expiry: Option<Expiry>,
) -> Result<InputChange, LineError> {
    match (op, bytes) {
        (WriteOp::Put, Some(bytes)) => {
            if !is_content_field(&content_type) || !is_content_field(&content_encoding) {
                return Err(LineError::ContentField);
            }
            if bytes.len() > LINE_LEN_MAX {
                return Err(LineError::LongValue(bytes.len()));
            }
            let value = Value::unbounded(bytes, content_type, content_encoding)?;
            Ok(InputChange::Put { value, expiry })
        }
        (WriteOp::Put, None) => Err(LineError::Field(RowFieldError::Neither("v"))),
        (WriteOp::Del, None) if expiry.is_none() => Ok(InputChange::Delete),
        (WriteOp::Del, _) => Err(LineError::DeleteWithValue),
        (WriteOp::Inc, _) => Err(LineError::IncrementAmongRows),
    }
}

/// Checks and makes an expiry.
pub(crate) fn expiry(
    ttl: Option<u64>,
    expires_at: Option<u64>,
) -> Result<Option<Expiry>, LineError> {
    match (ttl, expires_at) {
        (Some(_), Some(_)) => Err(LineError::TwoExpiries),
        (None, Some(at)) if !EXPIRES_AT_MS.contains(&at) => Err(LineError::ExpiresAt(at)),
        (None, Some(at)) => Ok(Some(Expiry::At(Timestamp::from_millis(at)))),
        (Some(seconds), None) => Ok(Some(Expiry::After(Duration::from_secs(seconds)))),
        (None, None) => Ok(None),
    }
}

fn pair(
    name: &'static str,
    text: Option<LineText<'_>>,
    base64: Option<LineText<'_>>,
    owner: &Bytes,
) -> Result<Option<Bytes>, LineError> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(LineError::Field(RowFieldError::Both(name))),
        (Some(text), None) => Ok(Some(own(text, owner))),
        (None, Some(encoded)) => KeyEncoding::Base64Url
            .decode(encoded.0.as_bytes())
            .map(|bytes| Some(bytes.into()))
            .map_err(|_| LineError::Field(RowFieldError::BadBase64(name))),
        (None, None) => Ok(None),
    }
}

/// Keeps a text: as a slice of `owner` if it lies there.
fn own(text: LineText<'_>, owner: &Bytes) -> Bytes {
    match text.0 {
        Cow::Borrowed("") => Bytes::new(),
        Cow::Borrowed(text) => owner.slice_ref(text.as_bytes()),
        Cow::Owned(text) => text.into(),
    }
}

/// Writes a row as a line of NDJSON, with its newline.
pub fn write(row: &InputRow, out: &mut BytesMut) {
    let mut fields = RowFields {
        partition: Some(row.key.partition.as_bytes()),
        sort: row.key.sort.as_bytes(),
        ..RowFields::default()
    };
    match &row.change {
        InputChange::Delete => {
            out.put_slice(b"{\"op\":\"del\",");
            fields.write(out);
        }
        InputChange::Put { value, expiry } => {
            fields.content_type = &value.content_type;
            fields.content_encoding = &value.content_encoding;
            fields.value = ValueField::Bytes(&value.bytes);
            out.put_u8(b'{');
            match expiry {
                Some(Expiry::At(at)) => fields.expires_at = Some(at.as_millis()),
                Some(Expiry::After(time)) => {
                    out.put_slice(format!("\"ttl\":{},", time.as_secs()).as_bytes());
                }
                None => {}
            }
            fields.write(out);
        }
    }
    out.put_slice(b"}\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(line: &str) -> Result<ParsedLine, LineError> {
        let owner = Bytes::copy_from_slice(line.as_bytes());
        parse(&owner.clone(), &owner)
    }

    #[test]
    fn problems_are_told_in_words_of_json() {
        for (text, says) in [
            (
                "5",
                "expected an object at line 1 column 1, not the number `5`",
            ),
            (
                r#"{"a":"x"}"#,
                "expected a whole number of 0 or more at line 1 column 8, not the text \"x\"",
            ),
            (
                r#"{"a":true}"#,
                "expected a whole number of 0 or more at line 1 column 9, not `true`",
            ),
            (
                r#"{"a":-1}"#,
                "expected a whole number of 0 or more at line 1 column 7, not the number `-1`",
            ),
            (
                r#"{"a":null}"#,
                "expected a whole number of 0 or more at line 1 column 9, not null",
            ),
            (
                r#"{"a":"#,
                "the text ends within a value at line 1 column 5",
            ),
            (r#"{"a" 1}"#, "expected `:` at line 1 column 6"),
        ] {
            let error = serde_json::from_str::<BTreeMap<String, u64>>(text).unwrap_err();
            assert_eq!(json_problem(&error), says);
        }
    }

    #[test]
    fn what_is_wrong_with_a_line_is_named() {
        for (line, says) in [
            ("[]", "a JSON array"),
            ("{", "the text ends within an object at column 1"),
            (r#"{"pk":"a","v":"x","w":1}"#, "unknown field `w`"),
            (r#"{"pk":"a","pk":"b","v":"x"}"#, "duplicate field `pk`"),
            (r#"{"v":"x"}"#, "a row needs 'pk' or 'pk64'"),
            (r#"{"pk":"a"}"#, "a row needs 'v' or 'v64'"),
            (r#"{"pk":"a","v":"x","v64":"eA"}"#, "'v' or 'v64', not both"),
            (
                r#"{"pk64":"=","v":"x"}"#,
                "'pk64' is not unpadded base64url",
            ),
            (r#"{"pk":"","v":"x"}"#, "at least one byte"),
            (r#"{"op":"del","pk":"a","v":"x"}"#, "a 'del' has no value"),
            (r#"{"op":"del","pk":"a","ttl":5}"#, "a 'del' has no value"),
            (r#"{"pk":"a","v":"x","expires_at":7}"#, "milliseconds"),
            (r#"{"pk":"a","v":"x","ttl":0}"#, "a time to live"),
            (
                r#"{"pk":"a","v":"x","ttl":5,"expires_at":1800000000000}"#,
                "cannot both",
            ),
            (r#"{"pk":"a","v":"x","content_type":" a"}"#, "visible ASCII"),
            (r#"{"op":"inc","pk":"a"}"#, "an 'inc' needs 'by'"),
            (
                r#"{"op":"inc","pk":"a","by":1,"v":"x"}"#,
                "an 'inc' has no value",
            ),
            (r#"{"pk":"a","v":"x","by":1}"#, "only an 'inc' has 'by'"),
        ] {
            let error = parsed(line).unwrap_err().to_string();
            assert!(error.contains(says), "{line}: {error}");
        }
        let long = format!(r#"{{"pk":"a","v":"{}"}}"#, "x".repeat(LINE_LEN_MAX + 1));
        assert!(matches!(parsed(&long), Err(LineError::LongValue(_))));
    }

    proptest! {
        #[test]
        fn a_row_that_is_written_reads_back(
            pk in prop::collection::vec(any::<u8>(), 1..9), sk in "[\\PC\"\\\\\n\u{0}]{0,9}",
            v in prop::option::of(prop::collection::vec(any::<u8>(), 0..20)),
            ttl in prop::option::of(1_u64..9), at in prop::option::of(1_600_000_000_000_u64..1_900_000_000_000),
        ) {
            let expiry = match (ttl, at) {
                (Some(seconds), _) => Some(Expiry::After(Duration::from_secs(seconds))),
                (None, at) => at.map(|at| Expiry::At(Timestamp::from_millis(at))),
            };
            let change = match v {
                Some(v) => InputChange::Put {
                    value: Value::new(v, "text/plain", "").unwrap(), expiry,
                },
                None => InputChange::Delete,
            };
            let row = InputRow { key: Key::new(pk, sk).unwrap(), change, version: None };
            let mut out = BytesMut::new();
            write(&row, &mut out);
            let line = out.freeze();
            let parsed = parse(line.trim_ascii(), &line).unwrap();
            prop_assert_eq!((parsed.key, parsed.change), (row.key, LineChange::Row(row.change)));
        }
    }
}
