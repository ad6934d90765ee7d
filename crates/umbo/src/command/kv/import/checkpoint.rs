//! How far a redrive is, in a file beside the one that is sent: `FILE.progress`, one JSON object.
//!
//! The invariant: every line before the one it names was written to its namespace or stands in the
//! first bytes of the new file that it names. It is replaced as a whole or not at all.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{file_failure, with_suffix};
use crate::failure::Failure;

/// How far a redrive is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Checkpoint {
    /// Length of the file that is sent, by which a change of it is noticed.
    file_bytes: u64,
    /// Lines of it that are done with.
    pub(super) lines: u64,
    /// Rows written.
    pub(super) rows: u64,
    /// File of what failed again.
    pub(super) failed_file: PathBuf,
    /// Bytes of it that count.
    pub(super) failed_bytes: u64,
    /// Entries among them.
    pub(super) failed: u64,
    /// Those of them that were not sent.
    pub(super) kept: u64,
    #[serde(skip)]
    path: PathBuf,
}

impl Checkpoint {
    /// Loads how far the last run over a file was, or begins one that puts what fails into a file
    /// that is not there yet.
    pub(super) fn load_or_begin(file: &Path, failed_file: PathBuf) -> Result<Self, Failure> {
        let path = with_suffix(file, ".progress");
        let file_bytes = len(file)?;
        match std::fs::read(&path) {
            Ok(bytes) => {
                let loaded = Self::parse(&bytes, &path)?;
                loaded.check(file, file_bytes, &failed_file)?;
                Ok(loaded)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                if failed_file.exists() {
                    let name = failed_file.display();
                    return Err(Failure::Usage(format!(
                        "{name} exists already; name another file with --failed"
                    )));
                }
                let begun = Self {
                    file_bytes,
                    lines: 0,
                    rows: 0,
                    failed_file,
                    failed_bytes: 0,
                    failed: 0,
                    kept: 0,
                    path,
                };
                begun.save()?;
                Ok(begun)
            }
            Err(error) => Err(file_failure(&path, error)),
        }
    }

    fn parse(bytes: &[u8], path: &Path) -> Result<Self, Failure> {
        let parsed = serde_json::from_slice::<Self>(bytes);
        let loaded = parsed.map_err(|error| {
            let name = path.display();
            Failure::Usage(format!(
                "{name} says not how far a redrive is ({error}); remove it to begin anew"
            ))
        })?;
        Ok(Self {
            path: path.to_owned(),
            ..loaded
        })
    }

    /// Finds out whether the files are still those of the last run.
    fn check(&self, file: &Path, file_bytes: u64, failed_file: &Path) -> Result<(), Failure> {
        let (name, progress) = (file.display(), self.path.display());
        let failed = self.failed_file.display();
        if self.file_bytes != file_bytes {
            return Err(Failure::Usage(format!(
                "{name} was redriven in part and has changed since; remove {progress} to begin anew"
            )));
        }
        if self.failed_file != failed_file {
            return Err(Failure::Usage(format!(
                "{name} was redriven in part, with what failed in {failed}; name that with \
                 --failed, or remove {progress} to begin anew"
            )));
        }
        if self.failed_bytes > 0 && len(&self.failed_file)? < self.failed_bytes {
            return Err(Failure::Usage(format!(
                "{failed} has lost lines since {name} was redriven in part; remove {progress} to \
                 begin anew"
            )));
        }
        Ok(())
    }

    /// Writes it down, on the disk before this returns.
    pub(super) fn save(&self) -> Result<(), Failure> {
        let part = with_suffix(&self.path, ".part");
        let write = || {
            let mut file = File::create(&part)?;
            serde_json::to_writer(&mut file, self)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            std::fs::rename(&part, &self.path)
        };
        write().map_err(|error| self.failure(error))
    }

    /// Removes it, because all is sent.
    pub(super) fn remove(&self) -> Result<(), Failure> {
        std::fs::remove_file(&self.path).map_err(|error| self.failure(error))
    }

    fn failure(&self, source: std::io::Error) -> Failure {
        Failure::File {
            verb: "write",
            path: self.path.clone(),
            source,
        }
    }
}

fn len(path: &Path) -> Result<u64, Failure> {
    let metadata = std::fs::metadata(path).map_err(|error| file_failure(path, error))?;
    Ok(metadata.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_goes_on_where_the_last_one_was() {
        let folder = tempfile::tempdir().unwrap();
        let [file, failed] = ["x", "y"].map(|name| folder.path().join(name));
        std::fs::write(&file, "1234").unwrap();
        let mut first = Checkpoint::load_or_begin(&file, failed.clone()).unwrap();
        std::fs::write(&failed, "ab").unwrap();
        (first.lines, first.failed_bytes) = (7, 2);
        first.save().unwrap();
        let again = Checkpoint::load_or_begin(&file, failed.clone()).unwrap();
        assert_eq!(again, first);
        let says = |failed: &Path| {
            let refused = Checkpoint::load_or_begin(&file, failed.to_owned());
            refused.unwrap_err().to_string()
        };
        assert!(says(&folder.path().join("z")).contains("--failed"));
        std::fs::write(&failed, "a").unwrap();
        assert!(says(&failed).contains("has lost lines"));
        std::fs::write(&failed, "abc").unwrap();
        std::fs::write(&file, "12345").unwrap();
        assert!(says(&failed).contains("has changed since"));
        std::fs::write(folder.path().join("x.progress"), "{").unwrap();
        assert!(says(&failed).contains("remove it to begin anew"));
        again.remove().unwrap();
        assert!(says(&failed).contains("exists already"));
    }
}
