//! Bodies of multi-get, batch write, scan and delete range.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::problem::{Outcome, Problem, Retry};
use crate::row::{JsonRow, RowFieldError, pair_bytes};
use crate::ru::Ru;
use crate::time_to_live::{self, TimeToLive};
use crate::whole_number;

/// Body of a multi-get.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MultiGetBody {
    /// Up to 1,000 keys.
    #[schema(max_items = 1000)]
    pub keys: Vec<KeyFields>,
}

/// A key in a body: with exactly one of `pk` and `pk64`, and at most one of `sk` and `sk64`.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyFields {
    /// Partition key as text.
    pub pk: Option<String>,
    /// Partition key as base64url.
    pub pk64: Option<String>,
    /// Sort key as text; empty if absent.
    pub sk: Option<String>,
    /// Sort key as base64url.
    pub sk64: Option<String>,
}

impl KeyFields {
    /// Makes the fields of a key. Bytes that are UTF-8 become text, others base64url.
    pub fn of(partition: &[u8], sort: &[u8]) -> Self {
        let split = |bytes: &[u8]| match std::str::from_utf8(bytes) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(crate::path::base64url(bytes))),
        };
        let ((pk, pk64), (sk, sk64)) = (split(partition), split(sort));
        Self { pk, pk64, sk, sk64 }
    }

    /// Returns partition and sort key.
    pub fn key(&self) -> Result<(Vec<u8>, Vec<u8>), RowFieldError> {
        let partition = pair_bytes("pk", self.pk.as_deref(), self.pk64.as_deref())?
            .ok_or(RowFieldError::Neither("pk"))?;
        let sort = pair_bytes("sk", self.sk.as_deref(), self.sk64.as_deref())?.unwrap_or_default();
        Ok((partition, sort))
    }
}

/// A line of the answer to a multi-get.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MultiGetRow {
    /// Index of the key in the request.
    pub i: u32,
    /// 200, 404 if no visible row has this key, or the status of `error`.
    pub status: u16,
    /// The row. Only its key if the status is not 200.
    #[serde(flatten)]
    pub row: JsonRow,
    /// What happened, if the status is neither 200 nor 404.
    pub error: Option<Problem>,
}

/// Text borrowed from its line, unless it contains escapes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LineText<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// What a line of a batch write does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WriteOp {
    /// Stores a value; the default.
    #[default]
    Put,
    /// Removes the row.
    Del,
    /// Adds `by` to the number that the row holds.
    Inc,
}

/// A condition in a line: a version, or `"*"` for any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum MatchField {
    /// A version.
    Version(u64),
    /// `*`, or an `ETag` with its quotes.
    Text(String),
}

/// A line of a batch write, as read. [`WriteLineSchema`] documents it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteLine<'a> {
    /// What to do.
    #[serde(default)]
    pub op: WriteOp,
    /// Partition key as text.
    #[serde(default, borrow)]
    pub pk: Option<LineText<'a>>,
    /// Partition key as base64url.
    #[serde(default, borrow)]
    pub pk64: Option<LineText<'a>>,
    /// Sort key as text.
    #[serde(default, borrow)]
    pub sk: Option<LineText<'a>>,
    /// Sort key as base64url.
    #[serde(default, borrow)]
    pub sk64: Option<LineText<'a>>,
    /// Value as text.
    #[serde(default, borrow)]
    pub v: Option<LineText<'a>>,
    /// Value as base64url.
    #[serde(default, borrow)]
    pub v64: Option<LineText<'a>>,
    /// Time to live, in seconds.
    #[serde(default, deserialize_with = "time_to_live::nullable")]
    pub ttl: Option<u64>,
    /// Expiry, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub expires_at: Option<u64>,
    /// Media type.
    #[serde(default, borrow)]
    pub content_type: Option<LineText<'a>>,
    /// Content encoding.
    #[serde(default, borrow)]
    pub content_encoding: Option<LineText<'a>>,
    /// Number that an `inc` adds.
    #[serde(default)]
    pub by: Option<i64>,
    /// Condition on the current version.
    #[serde(default)]
    pub if_match: Option<MatchField>,
    /// `"*"`: the write is applied only if the row is absent.
    #[serde(default)]
    pub if_none_match: Option<MatchField>,
    /// Version of an exported row. Ignored: a write gets a new version.
    #[serde(default)]
    pub version: Option<u64>,
}

/// A line of a batch write. Exported rows are such lines.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = WriteLine)]
pub struct WriteLineSchema {
    /// What to do. Default: `put`.
    pub op: Option<WriteOp>,
    /// Partition key as text.
    pub pk: Option<String>,
    /// Partition key as base64url.
    pub pk64: Option<String>,
    /// Sort key as text; empty if absent.
    pub sk: Option<String>,
    /// Sort key as base64url.
    pub sk64: Option<String>,
    /// Value as text.
    pub v: Option<String>,
    /// Value as base64url.
    pub v64: Option<String>,
    /// Time to live.
    #[schema(value_type = Option<TimeToLive>)]
    pub ttl: Option<u64>,
    /// Expiry, in milliseconds since the Unix epoch. An expired row is skipped; in an atomic batch, it causes the whole
    /// batch to be refused.
    #[schema(minimum = 1_000_000_000_000_u64, maximum = 253_402_300_799_999_u64)]
    pub expires_at: Option<u64>,
    /// Media type.
    pub content_type: Option<String>,
    /// Content encoding.
    pub content_encoding: Option<String>,
    /// Number that an `inc` adds. An absent row counts as 0.
    pub by: Option<i64>,
    /// Condition on the current version.
    pub if_match: Option<MatchField>,
    /// `"*"`: the write is applied only if the row is absent.
    pub if_none_match: Option<MatchField>,
    /// Version of an exported row. Ignored: a write gets a new version.
    pub version: Option<u64>,
}

/// A line of the answer to a batch write.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WriteRow {
    /// Index of the line in the request, from 0; blank lines do not count.
    pub i: u32,
    /// 201: created; 204: replaced, incremented or removed; 200: not written, see `skipped`; otherwise the status of
    /// `error`.
    pub status: u16,
    /// Why nothing was written without a failure.
    pub skipped: Option<Skipped>,
    /// Version given to the write.
    pub version: Option<u64>,
    /// The new number after an `inc`.
    pub number: Option<i64>,
    /// Whether the answer repeats that to an earlier request with the same idempotency key, and nothing was applied
    /// now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replayed: bool,
    /// What happened, if the write was not applied.
    pub error: Option<WriteRowError>,
}

/// Why a line of a batch write was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Skipped {
    /// Its row has expired already.
    Expired,
}

/// Why a line of a batch write was not applied.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WriteRowError {
    /// As in a problem.
    #[serde(rename = "type")]
    pub type_uri: String,
    /// What happened.
    pub detail: String,
    /// Number of the shard concerned.
    pub shard: Option<u16>,
    /// Current `ETag` of the row, on a failed condition.
    pub etag: Option<String>,
    /// Whether the write took effect.
    pub outcome: Outcome,
    /// Whether and when to repeat.
    pub retry: Retry,
}

/// How a batch ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BatchEnd {
    /// Rows answered, in all.
    pub rows: u64,
    /// Rows that failed.
    pub failed: u64,
    /// Rows skipped because they had expired. Absent if 0.
    #[serde(default, skip_serializing_if = "whole_number::is_zero")]
    pub skipped: u64,
    /// Request units charged, the same as in `Umbo-RU`.
    #[serde(default)]
    #[schema(required, value_type = f64, minimum = 0)]
    pub ru: Ru,
}

/// The last line of the answer to a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BatchEndLine {
    /// How the batch ended.
    pub end: BatchEnd,
}

/// Body of a scan; every field may be absent, and so may the body.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScanBody {
    /// Number of segments of the namespace, for parallel readers. Default: 1.
    #[serde(default, deserialize_with = "whole_number::optional")]
    #[schema(minimum = 1, maximum = 4096)]
    pub segments: Option<u32>,
    /// Index of the segment to read: from 0, below `segments`. Default: 0.
    #[serde(default, deserialize_with = "whole_number::optional")]
    #[schema(maximum = 4095)]
    pub segment: Option<u32>,
    /// Maximum number of rows of this page. Unlimited if absent.
    #[serde(default, deserialize_with = "whole_number::optional")]
    #[schema(minimum = 1)]
    pub limit: Option<u64>,
    /// The page ends with the row that reaches this many bytes. Default: 2 MiB; at most 1 GiB.
    #[serde(default, deserialize_with = "whole_number::optional")]
    #[schema(minimum = 1, maximum = 1_073_741_824)]
    pub max_bytes: Option<u64>,
    /// Cursor of the previous page; `segments` and `segment` must be absent or the same as before.
    pub cursor: Option<String>,
    /// Leave the values out.
    pub keys_only: Option<bool>,
    /// Number of the version to read: it is live, kept or ready. Default: the version of the cursor, or else the live
    /// one.
    #[serde(default, deserialize_with = "whole_number::optional")]
    #[schema(minimum = 1)]
    pub version: Option<u32>,
}

/// Answer to a delete of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeleteRangeAnswer {
    /// Rows removed, or rows that a dry run would remove.
    pub rows: u64,
    /// Bytes of their sort keys and values.
    pub bytes: u64,
    /// Whether nothing was removed because it was a dry run.
    pub dry_run: bool,
}
