//! How the bytes of a file or part are laid out: its format, its coding, and the use of its columns.

use std::fmt;

use umbo_api::columns::TableColumns;

use crate::dialect::{Dialect, DialectError};

/// First bytes of gzip (RFC 1952) and of a frame of zstd (RFC 8878).
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// A format of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowFormat {
    /// NDJSON: a row a line, as batches and exports have them.
    Lines,
    /// CSV.
    Csv(Csv),
    /// Parquet.
    Parquet(Columns),
}

/// The use of the columns of CSV, and its dialect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Csv {
    /// The use of the columns.
    pub columns: Columns,
    /// The dialect.
    pub dialect: Dialect,
}

impl From<Columns> for Csv {
    fn from(columns: Columns) -> Self {
        Self {
            columns,
            dialect: Dialect::default(),
        }
    }
}

/// A format cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// An unknown media type.
    #[error("'{0}' is not one of {MEDIA_TYPES}")]
    UnknownMediaType(String),
    /// An invalid dialect of CSV.
    #[error(transparent)]
    Dialect(#[from] DialectError),
    /// An unknown content coding.
    #[error("'{0}' is not one of gzip, zstd and identity")]
    UnknownCoding(String),
}

/// The media types of the formats.
pub const MEDIA_TYPES: &str = "application/x-ndjson, text/csv and application/vnd.apache.parquet";

impl RowFormat {
    /// Returns the format of a media type. Its parameters give the dialect of CSV. `columns` are the columns of CSV
    /// and Parquet.
    pub fn from_content_type(media_type: &str, columns: &Columns) -> Result<Self, FormatError> {
        let (essence, parameters) = media_type.split_once(';').unwrap_or((media_type, ""));
        let essence = essence.trim();
        match essence.to_ascii_lowercase().as_str() {
            "application/x-ndjson" | "application/ndjson" | "application/jsonl" => Ok(Self::Lines),
            "text/csv" => Ok(Self::Csv(Csv {
                columns: columns.clone(),
                dialect: Dialect::from_parameters(parameters)?,
            })),
            "application/vnd.apache.parquet" => Ok(Self::Parquet(columns.clone())),
            _ => Err(FormatError::UnknownMediaType(essence.to_owned())),
        }
    }

    /// Returns whether its rows are read from the first byte of a file to the last one.
    pub const fn is_read_in_order(&self) -> bool {
        match self {
            Self::Lines | Self::Csv(_) => true,
            Self::Parquet(_) => false,
        }
    }

    /// Returns the media type, with the dialect of CSV.
    pub fn content_type(&self) -> String {
        match self {
            Self::Lines => "application/x-ndjson".to_owned(),
            Self::Csv(csv) => format!("text/csv{}", csv.dialect.parameters()),
            Self::Parquet(_) => "application/vnd.apache.parquet".to_owned(),
        }
    }
}

/// The use of the columns of CSV and Parquet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Columns {
    /// Columns are named as the fields of NDJSON rows (`pk`, `pk64`, `sk`, `sk64`, `v`, `v64`, `op`, `ttl`,
    /// `expires_at`, `content_type`, `content_encoding`, `version`), and any other one is refused.
    #[default]
    Fields,
    /// Only the named columns are read. If the sort key is not named, it is the column `sk`, or empty if there is no
    /// such column.
    Named(TableColumns),
}

impl From<Option<TableColumns>> for Columns {
    fn from(columns: Option<TableColumns>) -> Self {
        columns.map_or(Self::Fields, Self::Named)
    }
}

/// How the bytes of a file or part are compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Coding {
    /// Not at all.
    #[default]
    Identity,
    /// gzip, of one member or more.
    Gzip,
    /// zstd, of one frame or more.
    Zstd,
}

impl Coding {
    /// Most bytes that [`Self::of_first_bytes`] needs.
    pub const FIRST_BYTES_LEN: usize = ZSTD_MAGIC.len();

    /// Returns the coding of a `Content-Encoding`; empty is the identity.
    pub fn from_content_encoding(name: &str) -> Result<Self, FormatError> {
        match name.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Ok(Self::Identity),
            "gzip" | "x-gzip" => Ok(Self::Gzip),
            "zstd" => Ok(Self::Zstd),
            _ => Err(FormatError::UnknownCoding(name.to_owned())),
        }
    }

    /// Returns the coding of a file, by its first bytes.
    pub fn of_first_bytes(bytes: &[u8]) -> Self {
        if bytes.starts_with(GZIP_MAGIC) {
            Self::Gzip
        } else if bytes.starts_with(ZSTD_MAGIC) {
            Self::Zstd
        } else {
            Self::Identity
        }
    }

    /// Returns the name in `Content-Encoding`, or `None` for the identity, which has no field.
    pub const fn content_encoding(self) -> Option<&'static str> {
        match self {
            Self::Identity => None,
            Self::Gzip => Some("gzip"),
            Self::Zstd => Some("zstd"),
        }
    }
}

impl fmt::Display for Coding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.content_encoding().unwrap_or("identity"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types_and_codings_have_their_names() {
        let columns = Columns::default();
        let of = |media_type| RowFormat::from_content_type(media_type, &columns);
        assert_eq!(of("application/x-ndjson"), Ok(RowFormat::Lines));
        assert_eq!(
            of("Text/CSV; charset=utf-8"),
            Ok(RowFormat::Csv(Csv::default()))
        );
        let unknown = of("text/plain").unwrap_err().to_string();
        assert!(
            unknown.contains("'text/plain'") && unknown.contains("text/csv"),
            "{unknown}"
        );
        for (media_type, canonical) in [
            ("text/csv;delimiter=\";\"", "text/csv; delimiter=\";\""),
            (
                "text/csv; header=present; delimiter=tab",
                "text/csv; delimiter=\"tab\"",
            ),
            (
                "text/csv; null=\\N; header=absent; columns=\"pk,v\"",
                "text/csv; null=\"\\\\N\"; columns=\"pk,v\"",
            ),
            ("text/csv; null=\"\"", "text/csv; null=\"\""),
            (
                "text/csv; null=\"a;\\\"b\"; x=y",
                "text/csv; null=\"a;\\\"b\"",
            ),
        ] {
            let format = of(media_type).unwrap();
            assert_eq!(format.content_type(), canonical);
            assert_eq!(of(canonical), Ok(format), "{canonical}");
        }
        for (media_type, says) in [
            ("text/csv; charset=latin1", "'latin1'"),
            ("text/csv; header=absent", "names of its columns"),
            ("text/csv; delimiter=x", "is 'x', expected"),
            ("text/csv; delimiter=\"\\\"\"", "is '\"', expected"),
            ("text/csv; delimiter=", "is '', expected"),
        ] {
            let error = of(media_type).unwrap_err().to_string();
            assert!(error.contains(says), "{media_type}: {error}");
        }
        for coding in [Coding::Identity, Coding::Gzip, Coding::Zstd] {
            assert_eq!(
                Coding::from_content_encoding(&coding.to_string()),
                Ok(coding)
            );
        }
        assert!(Coding::from_content_encoding("br").is_err());
    }
}
