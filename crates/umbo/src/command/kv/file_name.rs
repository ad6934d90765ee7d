//! Files of bulk work: names and documents of the files that a command keeps next to another one, and errors of files
//! that cannot be read.

use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use umbo_rows::RowsError;

use crate::cli_error::{CliError, usage};
use crate::command::location::{self, ObjectReader};

/// Appends a suffix to the name of a file. The files of an object are in the working folder, and their names begin with
/// its address as one word.
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
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(CliError::file("read", path)(error)),
        }
    } else if !path.is_file() {
        return Ok(());
    }
    let name = path.display();
    Err(usage!("{name} exists already; --overwrite replaces it"))
}

/// Reads a document that a command keeps next to a file; `None` if the document does not exist. `what` is its name in
/// words.
pub(in crate::command) fn read_document<T: DeserializeOwned>(
    path: &Path,
    what: &str,
) -> Result<Option<T>, CliError> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(CliError::file("read", path)(error)),
    };
    serde_json::from_slice(&text).map(Some).map_err(|error| {
        let path = path.display();
        usage!("{path} is not {what} ({error}); remove it to begin anew")
    })
}

/// Writes a document that a command keeps next to a file.
pub(in crate::command) fn write_document(path: &Path, document: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(document)?;
    text.push(b'\n');
    write_whole(path, &text)
}

/// Replaces a file atomically. The file is on the disk when this returns.
pub(in crate::command) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let part = with_suffix(path, ".part");
    let mut file = File::create(&part)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(part, path)
}

/// Removes a file, unless it is gone already.
pub(in crate::command) fn remove_file(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes the error of a file whose rows cannot be read.
pub(in crate::command) fn rows_failure(path: &Path, error: RowsError) -> CliError {
    match error {
        RowsError::Read(source) => CliError::file("read", path)(source),
        error @ RowsError::CutOff(_) => {
            CliError::Incomplete(format!("{}: {error}", path.display()))
        }
        error => usage!("{}: {error}", path.display()),
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
