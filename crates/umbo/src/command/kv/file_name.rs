//! Files of bulk work: names of those that stand beside another one, and the error of one that cannot be read.

use std::path::{Path, PathBuf};

use umbo_rows::RowsError;

use crate::cli_error::CliError;
use crate::command::location::{self, ObjectReader};

/// Appends to the name of a file. An object has its files in the working folder, under its address in one word.
pub(in crate::command) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.to_owned().into_os_string();
    if location::is_object(Path::new(&path)) {
        let address = path.to_string_lossy().replace("://", "-");
        path = address.replace('/', "-").into();
    }
    path.push(suffix);
    path.into()
}

/// Refuses to write a regular file or object that exists, unless it is to be replaced. Devices and pipes are written.
pub(super) fn check_new(path: &Path, is_replaced: bool) -> Result<(), CliError> {
    if is_replaced {
        return Ok(());
    }
    if location::is_object(path) {
        match ObjectReader::open(path) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(read_failure(path, error)),
        }
    } else if !path.is_file() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_beside_an_object_are_in_the_working_folder() {
        let beside = |name: &str| with_suffix(Path::new(name), ".load");
        assert_eq!(beside("a/b.csv"), Path::new("a/b.csv.load"));
        assert_eq!(beside("s3://b/a/c.csv"), Path::new("s3-b-a-c.csv.load"));
    }
}
