//! Progress of an import or a redrive, in a file beside its input: `FILE.progress`, one JSON object.
//!
//! The invariant: every line up to the recorded one was written to its namespace, is in the recorded first
//! bytes of the file of failed rows, or waits in one of the recorded files of held rows. The checkpoint is
//! replaced atomically.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::end_lines::EndCheck;
use super::held::HeldPart;
use super::progress::ImportState;
use crate::cli_error::CliError;
use crate::command::kv::file_name::{read_failure, with_suffix};

/// Shortest time between two checkpoints.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);

/// Progress of an import or a redrive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Checkpoint {
    /// Length of the input file, to detect a change of it.
    file_bytes: u64,
    /// Lines of it that are finished.
    pub(super) lines: u64,
    /// Rows written.
    pub(super) rows: u64,
    /// File of the rows that failed again.
    pub(super) failed_file: PathBuf,
    /// Valid bytes of it.
    pub(super) failed_bytes: u64,
    /// Entries among them.
    pub(super) failed: u64,
    /// Entries among them that were not sent.
    pub(super) kept: u64,
    /// Entries among them for which newer rows are there.
    #[serde(default)]
    pub(super) left: u64,
    /// Rows that wait to be sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) held: Vec<HeldPart>,
    /// What the lines so far say of their number.
    #[serde(default)]
    pub(super) end: EndCheck,
    #[serde(skip)]
    path: PathBuf,
}

impl Checkpoint {
    /// Loads the progress of the last redrive of a file, or begins one that writes failed rows into a file that
    /// does not exist yet.
    pub(super) fn load_or_begin(file: &Path, failed_file: PathBuf) -> Result<Self, CliError> {
        if let Some(loaded) = Self::load(file)? {
            loaded.check(file, &failed_file)?;
            return Ok(loaded);
        }
        if failed_file.exists() {
            let name = failed_file.display();
            return Err(CliError::Usage(format!(
                "{name} exists already; name another file with --failed"
            )));
        }
        let begun = Self::begin(file, failed_file)?;
        begun.save()?;
        Ok(begun)
    }

    /// Begins at the first line; nothing is saved yet.
    pub(super) fn begin(file: &Path, failed_file: PathBuf) -> Result<Self, CliError> {
        Ok(Self {
            file_bytes: len(file)?,
            lines: 0,
            rows: 0,
            failed_file,
            failed_bytes: 0,
            failed: 0,
            kept: 0,
            left: 0,
            held: Vec::new(),
            end: EndCheck::default(),
            path: with_suffix(file, ".progress"),
        })
    }

    /// Loads the progress of the last run over a file; none if there is none.
    pub(super) fn load(file: &Path) -> Result<Option<Self>, CliError> {
        let path = with_suffix(file, ".progress");
        match std::fs::read(&path) {
            Ok(bytes) => Self::parse(&bytes, &path).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(read_failure(&path, error)),
        }
    }

    fn parse(bytes: &[u8], path: &Path) -> Result<Self, CliError> {
        let parsed = serde_json::from_slice::<Self>(bytes);
        let loaded = parsed.map_err(|error| {
            let name = path.display();
            CliError::Usage(format!(
                "{name} is not the progress of an import or redrive ({error}); remove it to begin anew"
            ))
        })?;
        Ok(Self {
            path: path.to_owned(),
            ..loaded
        })
    }

    /// Checks that the files are still those of the last run.
    pub(super) fn check(&self, file: &Path, failed_file: &Path) -> Result<(), CliError> {
        let (name, progress) = (file.display(), self.path.display());
        let failed = self.failed_file.display();
        if self.file_bytes != len(file)? {
            return Err(CliError::Usage(format!(
                "{name} was sent in part and has changed since; remove {progress} to begin anew"
            )));
        }
        if self.failed_file != failed_file {
            return Err(CliError::Usage(format!(
                "{name} was sent in part, with what failed in {failed}; name that with --failed, or \
                 remove {progress} to begin anew"
            )));
        }
        if self.failed_bytes > 0 && len(&self.failed_file)? < self.failed_bytes {
            return Err(CliError::Usage(format!(
                "{failed} has lost lines since {name} was sent in part; remove {progress} to begin anew"
            )));
        }
        Ok(())
    }

    /// Saves it. It is on the disk when this returns.
    pub(super) fn save(&self) -> Result<(), CliError> {
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

    /// Returns whether it is on the disk.
    pub(super) fn is_saved(&self) -> bool {
        self.path.exists()
    }

    /// Removes the files of rows that wait.
    pub(super) fn remove_held(&self) {
        for part in &self.held {
            // A file that is left says nothing wrong: no checkpoint names it.
            let _ = std::fs::remove_file(part.path());
        }
    }

    /// Removes it after everything was sent.
    pub(super) fn remove(&self) -> Result<(), CliError> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(self.failure(error)),
            _ => Ok(()),
        }
    }

    fn failure(&self, source: std::io::Error) -> CliError {
        CliError::File {
            verb: "write",
            path: self.path.clone(),
            source,
        }
    }
}

/// A place in the input: the number of a line, and what the lines up to it say of their number.
#[derive(Debug, Clone, Default)]
pub(super) struct InputPosition {
    pub(super) lines: u64,
    pub(super) end: EndCheck,
}

/// Records how far an import is.
#[derive(Debug)]
pub(super) struct Checkpoints {
    checkpoint: Checkpoint,
    rows_before: u64,
    saved_at: Instant,
}

impl Checkpoints {
    /// Continues after a checkpoint.
    pub(super) fn after(checkpoint: Checkpoint) -> Self {
        Self {
            rows_before: checkpoint.rows,
            saved_at: Instant::now(),
            checkpoint,
        }
    }

    /// Returns whether the last one is old enough for another.
    pub(super) fn is_due(&self) -> bool {
        self.saved_at.elapsed() >= CHECKPOINT_INTERVAL
    }

    /// Saves one for a place before which every line is done.
    pub(super) fn save(
        &mut self,
        place: InputPosition,
        shared: &ImportState,
    ) -> Result<(), CliError> {
        let checkpoint = &mut self.checkpoint;
        checkpoint.held = match shared.held() {
            Some(mut held) => held.sync()?,
            None => Vec::new(),
        };
        (checkpoint.failed_bytes, checkpoint.failed) = shared.sync_failed()?;
        // Rows that waited are sent before any line is read.
        (checkpoint.lines, checkpoint.end) = (checkpoint.lines.max(place.lines), place.end);
        checkpoint.rows = self.rows_before + shared.written();
        self.saved_at = Instant::now();
        checkpoint.save()
    }
}

fn len(path: &Path) -> Result<u64, CliError> {
    let metadata = std::fs::metadata(path).map_err(|error| read_failure(path, error))?;
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
        again.remove().unwrap();
    }
}
