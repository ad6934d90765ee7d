//! How the bytes of a file or part are laid out: its format, its coding, and which columns are what.

use std::fmt;

use umbo_api::loads::LoadColumns;

/// First bytes of gzip (RFC 1952) and of a frame of zstd (RFC 8878).
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// A format of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowFormat {
    /// NDJSON: a row a line, as batches and exports have them.
    Lines,
    /// CSV (RFC 4180) with a header line.
    Csv(Columns),
    /// Parquet.
    #[cfg(feature = "parquet")]
    Parquet(Columns),
}

/// A format cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// A media type of no format.
    #[error("'{0}' is none of {MEDIA_TYPES}")]
    UnknownMediaType(String),
    /// The program was built without the feature `parquet`.
    #[error("this program is built without Parquet: convert the file to CSV or NDJSON")]
    ParquetNotBuilt,
    /// A content coding of no decoder.
    #[error("'{0}' is none of gzip, zstd and identity")]
    UnknownCoding(String),
}

/// The media types of the formats.
pub const MEDIA_TYPES: &str = "application/x-ndjson, text/csv and application/vnd.apache.parquet";

impl RowFormat {
    /// Returns the format of a media type; parameters do not count. `columns` are those of CSV and Parquet.
    pub fn from_content_type(media_type: &str, columns: &Columns) -> Result<Self, FormatError> {
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        match essence.to_ascii_lowercase().as_str() {
            "application/x-ndjson" | "application/ndjson" | "application/jsonl" => Ok(Self::Lines),
            "text/csv" => Ok(Self::Csv(columns.clone())),
            "application/vnd.apache.parquet" => Self::parquet(columns),
            _ => Err(FormatError::UnknownMediaType(essence.to_owned())),
        }
    }

    /// Returns Parquet, where it is built in.
    #[cfg(feature = "parquet")]
    pub fn parquet(columns: &Columns) -> Result<Self, FormatError> {
        Ok(Self::Parquet(columns.clone()))
    }

    /// Returns Parquet, where it is built in.
    #[cfg(not(feature = "parquet"))]
    pub fn parquet(_: &Columns) -> Result<Self, FormatError> {
        Err(FormatError::ParquetNotBuilt)
    }

    /// Returns whether its rows are read from the first byte of a file to the last one.
    pub const fn is_read_in_order(&self) -> bool {
        match self {
            Self::Lines | Self::Csv(_) => true,
            #[cfg(feature = "parquet")]
            Self::Parquet(_) => false,
        }
    }

    /// Returns the media type.
    pub const fn content_type(&self) -> &'static str {
        match self {
            Self::Lines => "application/x-ndjson",
            Self::Csv(_) => "text/csv",
            #[cfg(feature = "parquet")]
            Self::Parquet(_) => "application/vnd.apache.parquet",
        }
    }
}

/// Which columns of CSV and Parquet are what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Columns {
    /// Columns are named as the fields of NDJSON rows (`pk`, `pk64`, `sk`, `sk64`, `v`, `v64`, `op`, `ttl`,
    /// `expires_at`, `content_type`, `content_encoding`, `version`), and any other one is refused.
    #[default]
    Fields,
    /// Only the named columns are read. Where the sort key is not named it is the column `sk`, and empty where there
    /// is no such column.
    Named(LoadColumns),
}

impl From<Option<LoadColumns>> for Columns {
    fn from(columns: Option<LoadColumns>) -> Self {
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

    /// Returns the name in `Content-Encoding`; none for the identity, which has no field.
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
            Ok(RowFormat::Csv(columns.clone()))
        );
        let unknown = of("text/plain").unwrap_err().to_string();
        assert!(
            unknown.contains("'text/plain'") && unknown.contains("text/csv"),
            "{unknown}"
        );
        for coding in [Coding::Identity, Coding::Gzip, Coding::Zstd] {
            assert_eq!(
                Coding::from_content_encoding(&coding.to_string()),
                Ok(coding)
            );
        }
        assert!(Coding::from_content_encoding("br").is_err());
    }
}
