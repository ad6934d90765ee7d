//! The folder that a calibration writes to, which goes with it; and its files, dropped from the system's page cache.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::cli_error::CliError;

/// A new folder; removed when it is dropped.
#[derive(Debug)]
pub(super) struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// Creates a folder below `parent`, which has to exist.
    pub(super) fn create(parent: &Path) -> Result<Self, CliError> {
        // Said of the folder that the operator has named, and not of the one within.
        std::fs::read_dir(parent).map_err(|source| CliError::File {
            verb: "use",
            path: parent.to_owned(),
            source,
        })?;
        let path = parent.join(format!(".umbo-calibrate-{}", std::process::id()));
        let created = std::fs::create_dir(&path).map_err(|source| CliError::File {
            verb: "create",
            path: path.clone(),
            source,
        });
        created.map(|()| Self(path))
    }

    /// Returns its path.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Opens the files of all shards of a folder of data.
pub(super) fn open_files(folder: &Path) -> Result<Vec<File>, CliError> {
    let failed = |source| CliError::File {
        verb: "read",
        path: folder.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "redb")
        {
            files.push(File::open(path).map_err(failed)?);
        }
    }
    Ok(files)
}

/// Asks the system to drop the pages of files from its page cache, and returns whether their first pages are gone then.
#[cfg(target_os = "linux")]
pub(super) fn evict(files: &[File]) -> bool {
    use std::io::IoSliceMut;

    use rustix::fs::{Advice, fadvise};
    use rustix::io::{Errno, ReadWriteFlags, preadv2};

    let mut is_gone = true;
    for file in files {
        // Advice: a file system may ignore it.
        let _ = fadvise(file, 0, None, Advice::DontNeed);
        let byte = &mut [0];
        let read = preadv2(
            file,
            &mut [IoSliceMut::new(byte)],
            0,
            ReadWriteFlags::NOWAIT,
        );
        is_gone &= matches!(read, Ok(0) | Err(Errno::AGAIN));
    }
    is_gone
}

/// Other systems have no such advice.
#[cfg(not(target_os = "linux"))]
pub(super) fn evict(_files: &[File]) -> bool {
    false
}
