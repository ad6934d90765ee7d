//! Rows as files have them: to be stored or removed, or rejected.

use std::time::Duration;

use bytes::Bytes;
use umbo_api::row::RowFieldError;
use umbo_types::{Key, KeyError, RowError, Timestamp, Value, Version};

use crate::line_error::LineError;

/// Most bytes of a rejected row that are kept.
pub const EXCERPT_LEN_MAX: usize = 4 << 10;
/// Longest line or record, in bytes: with its newline it fills a batch request as the only row.
pub const LINE_LEN_MAX: usize = umbo_types::limits::BATCH_BODY_LEN_MAX - 1;
/// The same with its newline, in MiB, for messages.
pub(crate) const LINE_MIB_MAX: usize = (LINE_LEN_MAX + 1) >> 20;
/// Most columns of a table: each row has a cell for each of them, and other stores have no wider tables.
pub(crate) const COLUMNS_MAX: usize = 4_096;
/// Longest names of all columns together, in bytes. A value made of the rest of a row repeats them, so a row of 4 KiB
/// becomes no longer than this.
pub(crate) const NAMES_LEN_MAX: usize = 256 << 10;

/// Returns a number with its noun, in the plural unless it is 1.
fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// A row to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputRow {
    /// Key of the row.
    pub key: Key,
    /// The change of the row with this key.
    pub change: InputChange,
    /// The version of an exported row. Only a load that keeps row versions reads it.
    pub version: Option<Version>,
}

/// The change of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputChange {
    /// The row is stored.
    Put {
        /// Value of the row.
        value: Value,
        /// The expiry in the row, or `None` if the row has none.
        expiry: Option<Expiry>,
    },
    /// The row is removed.
    Delete,
}

/// When a row expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// At an instant.
    At(Timestamp),
    /// This long after it was stored: 1 second to ten years.
    After(Duration),
}

impl Expiry {
    /// Returns the instant, for a row that is stored at `now`.
    pub fn instant(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::After(time) => now.saturating_add(time),
        }
    }
}

/// A rejected row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedRow {
    /// Line of the row, from 1; for CSV the first line of its record (the header is usually line 1); for Parquet the
    /// row number, from 1.
    pub line: u64,
    /// Why it is rejected.
    pub reason: RejectReason,
    /// Bytes of the row, at most 4 KiB; for Parquet its cells as CSV.
    pub bytes: Bytes,
}

/// A row as it was read: a row to load, or a rejected row.
pub type ReadRow = Result<InputRow, RejectedRow>;

/// Why a row is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RejectReason {
    /// A line of NDJSON that is no row.
    #[error(transparent)]
    Line(LineError),
    /// A line of more than 16 MiB.
    #[error("with its newline, the line is longer than {LINE_MIB_MAX} MiB")]
    TooLong,
    /// A record that is not CSV as in RFC 4180.
    #[error(
        "cell {cell} is not CSV: {what} (put a cell with quotes in quotes, and double each quote within)"
    )]
    Quotes {
        /// Number of the cell, from 1.
        cell: usize,
        /// Rule that the cell breaks.
        what: &'static str,
    },
    /// A row with a condition.
    #[error("a row of a load cannot have a condition")]
    Condition,
    /// A record of CSV that has another number of cells than the header.
    #[error("it has {}, but the header has {}", counted(*found, "cell"), counted(*expected, "column"))]
    Ragged {
        /// Columns of the header.
        expected: usize,
        /// Cells of the record.
        found: usize,
    },
    /// A cell of CSV that is not UTF-8.
    #[error("column '{0}' is not UTF-8 (write other bytes as base64url, in pk64, sk64 or v64)")]
    NotText(String),
    /// A cell that is invalid in its column.
    #[error("column '{column}': expected {expected}")]
    BadCell {
        /// Name of the column.
        column: String,
        /// The values that the column can have.
        expected: &'static str,
    },
}

impl From<LineError> for RejectReason {
    fn from(error: LineError) -> Self {
        Self::Line(error)
    }
}

impl From<RowFieldError> for RejectReason {
    fn from(error: RowFieldError) -> Self {
        Self::Line(LineError::Field(error))
    }
}

impl From<KeyError> for RejectReason {
    fn from(error: KeyError) -> Self {
        Self::Line(LineError::Key(error))
    }
}

impl From<RowError> for RejectReason {
    fn from(error: RowError) -> Self {
        Self::Line(LineError::Value(error))
    }
}
