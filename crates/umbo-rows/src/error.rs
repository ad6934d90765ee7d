//! Why a file or part cannot be read as a whole.

use std::io;

use crate::format::Coding;
use crate::row::RejectReason;

/// Why a file or part cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// Bytes of the file or part cannot be read or written: the disk or the connection failed. The bytes
    /// themselves may be right.
    #[error("{0}")]
    Read(#[source] io::Error),
    /// The file or part is not compressed with its coding, or is cut off.
    #[error("it is not {coding} or is cut off: {reason}")]
    Coding {
        /// The coding.
        coding: Coding,
        /// The message of the decoder.
        reason: String,
    },
    /// CSV without a line.
    #[error("it is empty: CSV begins with a line that names the columns")]
    NoHeader,
    /// The header is not CSV.
    #[error("its first line names no columns: {0}")]
    Header(#[source] RejectReason),
    /// The columns are not divided by the delimiter.
    #[error(
        "its columns look divided by {0}, which is not the delimiter: name it with --delimiter (over \
         HTTP: text/csv; delimiter=…)"
    )]
    Delimiter(&'static str),
    /// Text in UTF-16.
    #[error(
        "it looks like UTF-16, and rows are read in UTF-8: convert it with iconv -f utf-16 -t utf-8 FILE"
    )]
    Utf16,
    /// The first line of NDJSON is something else.
    #[error("line {line} is not a JSON object: '{shown}'. It looks like {kind}")]
    NotRows {
        /// The line.
        line: u64,
        /// Its first bytes.
        shown: String,
        /// Format that the line looks like, with what to do.
        kind: &'static str,
    },
    /// Rows are missing at the end of NDJSON or within.
    #[error("it is incomplete: {0}")]
    CutOff(String),
    /// The header is not text.
    #[error("its first line is not UTF-8, and so names no columns")]
    HeaderNotText,
    /// More columns than a table has, or longer names.
    #[error(
        "it has more than {} columns, or their names have more than {} KiB",
        crate::row::COLUMNS_MAX,
        crate::row::NAMES_LEN_MAX >> 10
    )]
    TooManyColumns,
    /// A column is missing.
    #[error("it has no column '{name}'; its columns are {found}")]
    NoColumn {
        /// The name.
        name: String,
        /// The columns that there are.
        found: String,
    },
    /// A column stands twice.
    #[error("it has two columns '{0}'")]
    ColumnTwice(String),
    /// A column that no field of a row takes.
    #[error("column '{name}' is not a field ({FIELDS}): {}", meant_by(name))]
    UnknownColumn {
        /// The name.
        name: String,
    },
    /// A line without an end.
    #[error("it has a line of more than {} MiB", crate::row::LINE_MIB_MAX)]
    LineTooLong,
    /// The source of CSV ends within a quote.
    #[error("a quote in the record that begins in line {line} is not closed")]
    UnclosedQuote {
        /// First line of the record.
        line: u64,
    },
    /// A record of CSV is longer than any row.
    #[error("the record that begins in line {line} has more than {max} MiB: a quote is not closed", max = crate::row::LINE_MIB_MAX)]
    RecordTooLong {
        /// First line of the record.
        line: u64,
    },
    /// Not Parquet, or broken.
    #[error("it cannot be read as Parquet: {0}")]
    Parquet(String),
    /// A needed column has a type that has no bytes.
    #[error("column '{column}' has the type {found}, which {role} cannot have: {expected}")]
    UnsupportedType {
        /// The column.
        column: String,
        /// Type of the column.
        found: String,
        /// Use of the column.
        role: &'static str,
        /// Types that have this use.
        expected: &'static str,
    },
    /// Parquet compressed as a whole.
    #[error("Parquet is read without a content coding (its columns are compressed); this is {0}")]
    CodedParquet(Coding),
    /// Parquet from a source that cannot be read from its end.
    #[error("Parquet is read from a file, not from a stream")]
    NeedsSeek,
}

/// The fields of a row, which columns are named after.
pub(crate) const FIELDS: &str =
    "pk, pk64, sk, sk64, v, v64, op, ttl, expires_at, content_type, content_encoding, version";

/// How columns are named, over HTTP and at the command line.
const NAMED_BY: &str = "over HTTP 'columns'; at the command line --pk, --sk, --value, --value-rest";

/// Suggests what an unknown column was meant to be.
fn meant_by(name: &str) -> String {
    let plain = name.trim().to_lowercase();
    if FIELDS.split(", ").any(|field| field == plain) {
        format!(
            "write '{plain}', without spaces and in small letters, or say what it is ({NAMED_BY})"
        )
    } else {
        format!(
            "name the columns of keys and value, or make the value a JSON object of the rest ({NAMED_BY})"
        )
    }
}

/// Bytes that are shown of a line which is no row.
const SHOWN_LEN: usize = 60;

/// Returns the format that a line other than an object looks like, with what to do.
pub(crate) fn looks_like(line: &[u8]) -> &'static str {
    let shown = &line[..line.len().min(SHOWN_LEN)];
    let has = |byte| shown.contains(&byte);
    match line.first() {
        Some(b'[') => "a JSON array; convert it with: jq -c '.[]' FILE",
        _ if std::str::from_utf8(shown).is_err_and(|error| error.error_len().is_some()) => {
            "binary data"
        }
        _ if has(b';') || has(b'\t') => {
            "CSV with semicolons or tabs; name its format with --format csv and --delimiter"
        }
        _ if has(b',') => "CSV; name its format with --format csv (over HTTP: text/csv)",
        _ => "text",
    }
}

impl RowsError {
    /// Makes the error of a file whose first line is no object, with the format it looks like.
    pub fn not_rows(line: u64, bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_LEN)]);
        Self::NotRows {
            line,
            shown: text.chars().filter(|one| !one.is_control()).collect(),
            kind: looks_like(bytes),
        }
    }

    /// Makes the error of missing rows.
    pub(crate) const fn cut_off<T>(how: String) -> Result<T, Self> {
        Err(Self::CutOff(how))
    }

    /// Returns whether the content of the file or part is wrong, so that reading it again changes nothing.
    pub const fn is_of_content(&self) -> bool {
        !matches!(self, Self::Read(_))
    }
}

/// A decoder has failed, and its source has not.
#[derive(Debug, thiserror::Error)]
#[error("it is not {coding} or is cut off: {reason}")]
pub(crate) struct CodingError {
    pub(crate) coding: Coding,
    pub(crate) reason: String,
}

impl From<io::Error> for RowsError {
    fn from(error: io::Error) -> Self {
        match error.downcast::<CodingError>() {
            Ok(CodingError { coding, reason }) => Self::Coding { coding, reason },
            Err(error) => Self::Read(error),
        }
    }
}

impl From<RowsError> for io::Error {
    fn from(error: RowsError) -> Self {
        match error {
            RowsError::Read(error) => error,
            other => Self::new(io::ErrorKind::InvalidData, other),
        }
    }
}
