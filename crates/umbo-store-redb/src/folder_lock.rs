//! The lock on a data folder: one process at a time.
//!
//! Owns the lock file, which contains the process id of the holder, for the message to a process that is
//! refused. The invariant: while a [`FolderLock`] lives, no other process and no other store of this process
//! holds one for the same folder. The system releases it when the process dies.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use crate::error::OpenError;

const FILE_NAME: &str = "umbo.lock";
/// Longest text that is read back from a lock file.
const HOLDER_LEN_MAX: u64 = 20;

/// Holds the lock until it is dropped.
#[derive(Debug)]
pub(crate) struct FolderLock {
    file: File,
}

impl FolderLock {
    /// Takes the lock without waiting.
    pub(crate) fn take(folder: &Path) -> Result<Self, OpenError> {
        let path = folder.join(FILE_NAME);
        let failed = |action| {
            let path = path.clone();
            move |source| OpenError::Folder {
                action,
                path,
                source,
            }
        };
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed("write"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse {
                    folder: folder.to_owned(),
                    holder: holder(&mut file),
                });
            }
            Err(TryLockError::Error(source)) => return Err(failed("lock")(source)),
        }
        // The process id is optional: on a full disk the lock holds without it.
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        if let Err(error) = written {
            tracing::debug!(path = %path.display(), %error, "lock file without process id");
        }
        Ok(Self { file })
    }
}

impl Drop for FolderLock {
    /// Closing the file would release the lock only once no child that was just forked has the file any more.
    fn drop(&mut self) {
        drop(self.file.unlock());
    }
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.take(HOLDER_LEN_MAX).read_to_string(&mut text);
    match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(pid)) => format!("the process with id {pid}"),
        _ => "another process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_is_refused_and_names_the_holder() {
        let folder = tempfile::tempdir().unwrap();
        let held = FolderLock::take(folder.path()).unwrap();
        let message = FolderLock::take(folder.path()).unwrap_err().to_string();
        assert!(message.contains(&folder.path().display().to_string()));
        assert!(message.contains(&std::process::id().to_string()));
        drop(held);
        FolderLock::take(folder.path()).unwrap();
    }

    #[test]
    fn a_lock_ends_with_its_holder_whoever_else_has_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let held = FolderLock::take(folder.path()).unwrap();
        // As a child has it between fork and exec.
        let _inherited = held.file.try_clone().unwrap();
        drop(held);
        FolderLock::take(folder.path()).unwrap();
    }
}
