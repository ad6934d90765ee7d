//! The last line of a streamed answer. A stream without its `end` line is a failed stream.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::problem::Problem;
use crate::row::JsonRow;
use crate::ru::Ru;
use crate::whole_number;

/// Why a page ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EndReason {
    /// There are no more rows.
    Done,
    /// The row limit was reached.
    Limit,
    /// The byte limit was reached.
    Bytes,
    /// The deadline came near.
    Deadline,
}

/// Why a page ended before its bounds were reached. Its `why` is then `limit`: clients of earlier versions know this
/// reason, and continue with the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EndCause {
    /// The cost of the page has reached `server.request_ru_max`.
    Cost,
}

/// How a page ended.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct End {
    /// Whether more rows may follow.
    pub more: bool,
    /// Where to continue. Present if and only if `more` is true.
    pub cursor: Option<String>,
    /// Why the page ended.
    pub why: EndReason,
    /// Why the page ended before its bounds were reached.
    pub cause: Option<EndCause>,
    /// Rows in this page.
    pub rows: u64,
    /// Expired rows: they were read and charged, and are not in this page.
    #[serde(default, skip_serializing_if = "whole_number::is_zero")]
    #[schema(required = false)]
    pub expired: u64,
    /// Bytes of keys and values in this page.
    pub bytes: u64,
    /// Request units charged for the whole page. If the page has more than one chunk, `Umbo-RU` holds only the units
    /// charged before the head of the answer was sent.
    #[serde(default)]
    #[schema(required, value_type = f64, minimum = 0)]
    pub ru: Ru,
}

/// The line that ends a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EndLine {
    /// How the page ended.
    pub end: End,
}

/// The line that ends a page that failed half-way; the connection is aborted after it.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorLine {
    /// What happened.
    pub error: Problem,
    /// Where to continue: after the rows before this line.
    pub cursor: Option<String>,
    /// Request units charged for the part of the page that was read.
    #[serde(default)]
    #[schema(required, value_type = f64, minimum = 0)]
    pub ru: Ru,
}

/// Any line of a range or scan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum StreamLine {
    /// The last line.
    End(EndLine),
    /// The last line of a failed stream.
    Error(Box<ErrorLine>),
    /// A row.
    Row(JsonRow),
}
