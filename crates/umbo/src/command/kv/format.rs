//! Formats of files of rows, and the options that assign their columns. By default the name of a file determines its
//! format.

use std::path::Path;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use umbo_api::columns::{TableColumns, TableValue};
use umbo_rows::{Columns, Csv, Dialect, RowFormat};

use crate::cli_error::{CliError, usage};

/// A format of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(in crate::command) enum FileFormat {
    /// One row per line, as JSON
    #[default]
    Ndjson,
    /// CSV with a header line
    Csv,
    /// Parquet
    Parquet,
}

impl FileFormat {
    /// Returns the format by the name of a file, regardless of an extension for its compression. NDJSON is the default.
    pub(in crate::command) fn of_name(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_ascii_lowercase();
        let inner = [".gz", ".zst"]
            .iter()
            .find_map(|end| name.strip_suffix(end));
        let extension = inner.unwrap_or(&name).rsplit_once('.').map(|(_, end)| end);
        match extension {
            Some("csv") => Self::Csv,
            Some("parquet") => Self::Parquet,
            _ => Self::Ndjson,
        }
    }

    /// Returns the media type.
    pub(in crate::command) const fn content_type(self) -> &'static str {
        match self {
            Self::Ndjson => "application/x-ndjson",
            Self::Csv => "text/csv",
            Self::Parquet => "application/vnd.apache.parquet",
        }
    }
}

/// The format of a file, and the use of its columns.
#[derive(Debug, Clone, Args)]
pub(in crate::command) struct FormatOptions {
    /// Format of the file [default: by its name: .csv, .parquet, otherwise NDJSON]
    #[arg(long, value_enum)]
    format: Option<FileFormat>,
    /// Column of the partition key, in CSV and Parquet [default: pk]
    #[arg(long, value_name = "COLUMN")]
    pk: Option<String>,
    /// Column of the sort key [default: sk, or empty keys without this column]
    #[arg(long, value_name = "COLUMN")]
    sk: Option<String>,
    /// Column of the value [default: v]
    #[arg(long, value_name = "COLUMN")]
    value: Option<String>,
    /// Make the value a JSON object of all columns but the keys
    #[arg(long, conflicts_with = "value")]
    value_rest: bool,
    /// Make the value a JSON object of these columns
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = ["value", "value_rest"])]
    value_columns: Option<Vec<String>>,
    /// Separator of cells in CSV: a character, tab or space [default: a comma]
    #[arg(long, value_name = "CHARACTER")]
    delimiter: Option<String>,
    /// Unquoted cell that stands for no value in CSV, like NULL
    #[arg(long, value_name = "TEXT")]
    null: Option<String>,
    /// Names of the columns of CSV without a header line, like pk,sk,v
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Option<Vec<String>>,
}

impl FormatOptions {
    /// Returns the format of a file. Named columns are refused for NDJSON.
    pub(in crate::command) fn of_file(&self, path: &Path) -> Result<FileFormat, CliError> {
        let format = self.format.unwrap_or_else(|| FileFormat::of_name(path));
        if format == FileFormat::Ndjson && self.columns().is_some() {
            let path = path.display();
            return Err(usage!(
                "{path} is NDJSON, which has fields and no columns; name its format with --format"
            ));
        }
        if format != FileFormat::Csv && self.dialect()? != Dialect::default() {
            let path = path.display();
            return Err(usage!(
                "{path} is no CSV, whose --delimiter, --null and --columns are; name its format with --format csv"
            ));
        }
        Ok(format)
    }

    /// Returns the named columns, or `None` if no column is named.
    pub(in crate::command) fn columns(&self) -> Option<TableColumns> {
        let rest = self.value_rest.then_some(TableValue::Rest);
        let columns = self.value_columns.clone().map(TableValue::Columns);
        let value = self.value.clone().map(TableValue::Column);
        let value = rest.or(columns).or(value);
        if self.pk.is_none() && self.sk.is_none() && value.is_none() {
            return None;
        }
        let default = TableColumns::default();
        Some(TableColumns {
            pk: self.pk.clone().unwrap_or(default.pk),
            sk: self.sk.clone(),
            value: value.unwrap_or(default.value),
        })
    }

    fn dialect(&self) -> Result<Dialect, CliError> {
        let columns = self.columns.clone();
        Dialect::new(self.delimiter.as_deref(), self.null.clone(), columns)
            .map_err(|error| usage!("{error}"))
    }

    /// Returns the options for reading CSV.
    pub(in crate::command) fn csv(&self) -> Result<Csv, CliError> {
        Ok(Csv {
            columns: Columns::from(self.columns()),
            dialect: self.dialect()?,
        })
    }

    /// Returns the options for reading a file.
    pub(in crate::command) fn row_format(&self, path: &Path) -> Result<RowFormat, CliError> {
        let columns = Columns::from(self.columns());
        match self.of_file(path)? {
            FileFormat::Ndjson => Ok(RowFormat::Lines),
            FileFormat::Csv => self.csv().map(RowFormat::Csv),
            FileFormat::Parquet => Ok(RowFormat::Parquet(columns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_say_their_format() {
        for (name, format) in [
            ("a.csv", FileFormat::Csv),
            ("/x/A.CSV.gz", FileFormat::Csv),
            ("a.parquet", FileFormat::Parquet),
            ("a.ndjson.zst", FileFormat::Ndjson),
            ("csv", FileFormat::Ndjson),
            ("-", FileFormat::Ndjson),
        ] {
            assert_eq!(FileFormat::of_name(Path::new(name)), format, "{name}");
        }
    }
}
