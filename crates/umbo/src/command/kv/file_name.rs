//! Files of bulk work: names of those that stand beside another one, and the error of one that cannot be read.

use std::path::{Path, PathBuf};

use crate::cli_error::CliError;

/// Appends to the name of a file.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.to_owned().into_os_string();
    path.push(suffix);
    path.into()
}

/// Makes the error of a file that cannot be read.
pub(super) fn read_failure(path: &Path, source: std::io::Error) -> CliError {
    CliError::File {
        verb: "read",
        path: path.to_owned(),
        source,
    }
}
