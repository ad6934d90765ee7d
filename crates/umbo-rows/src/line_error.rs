//! Why a line of NDJSON, or the cells of a record, are not a row: in a batch, an import and a load alike.

use umbo_api::row::{CONTENT_FIELD_EXPECTED, EXPIRES_AT_EXPECTED, RowFieldError};
use umbo_types::limits::BATCH_BODY_LEN_MAX;
use umbo_types::{KeyError, RowError};

/// Why a line is no write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Not a JSON object of the fields of a row.
    #[error("{0}")]
    Json(String),
    /// A text field that is not text.
    #[error(
        "'{name}' is {is}, expected text{}",
        if *name == "v" { ": JSON is stored as a string, as in \"v\":\"{\\\"x\\\":1}\"" } else { "" }
    )]
    NotText {
        /// The field.
        name: &'static str,
        /// The type of its value.
        is: &'static str,
    },
    /// More than one object in a line.
    #[error(
        "something follows the object: write one row on each line (curl -d takes line ends away, --data-binary keeps them)"
    )]
    TwoObjects,
    /// Keys or value in two forms or none.
    #[error(transparent)]
    Field(RowFieldError),
    /// A key of an invalid length.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A value or content field of an invalid length.
    #[error(transparent)]
    Value(#[from] RowError),
    /// A value of this many bytes, longer than a line.
    #[error("a value in a file has less than {BATCH_BODY_LEN_MAX} bytes, this one has {0}")]
    LongValue(usize),
    /// A content type or encoding that is no header value.
    #[error("a content type or encoding is {CONTENT_FIELD_EXPECTED}")]
    ContentField,
    /// An expiry out of bounds.
    #[error("'expires_at' is '{0}', expected {EXPIRES_AT_EXPECTED}")]
    ExpiresAt(u64),
    /// An expiry in both forms.
    #[error("'ttl' and 'expires_at' cannot both be given")]
    TwoExpiries,
    /// A removal that also stores something.
    #[error("a 'del' has no value and no expiry")]
    DeleteWithValue,
    /// A number to add in a line that adds nothing.
    #[error("only an 'inc' has 'by'")]
    ByWithoutIncrement,
    /// An increment that does not say by how much.
    #[error("an 'inc' needs 'by', the number to add")]
    IncrementWithoutBy,
    /// An increment that also stores something.
    #[error("an 'inc' has no value, content type or encoding")]
    IncrementWithValue,
    /// An increment among rows that are stored as they are.
    #[error("an 'inc' cannot be in a file, which may be sent twice; send it in a batch")]
    IncrementAmongRows,
}
