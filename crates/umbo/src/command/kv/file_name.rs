//! Files of bulk work: names of those that stand beside another one, and the error of one that cannot be read.

use std::path::{Path, PathBuf};

use umbo_rows::RowsError;

use crate::cli_error::CliError;

/// Appends to the name of a file.
pub(in crate::command) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.to_owned().into_os_string();
    path.push(suffix);
    path.into()
}

/// Refuses to write a regular file that exists, unless it is to be replaced. Devices and pipes are written.
pub(super) fn check_new(path: &Path, is_replaced: bool) -> Result<(), CliError> {
    if is_replaced || !path.is_file() {
        return Ok(());
    }
    let name = path.display();
    Err(CliError::Usage(format!(
        "{name} exists already; --overwrite replaces it"
    )))
}

/// Makes the error of a file that cannot be read.
pub(in crate::command) fn read_failure(path: &Path, source: std::io::Error) -> CliError {
    CliError::File {
        verb: "read",
        path: path.to_owned(),
        source,
    }
}

/// Makes the error of a file whose rows cannot be read.
pub(in crate::command) fn rows_failure(path: &Path, error: RowsError) -> CliError {
    match error {
        RowsError::Read(source) => read_failure(path, source),
        error @ RowsError::CutOff(_) => {
            CliError::Incomplete(format!("{}: {error}", path.display()))
        }
        error => CliError::NotRows(format!("{}: {error}", path.display())),
    }
}
