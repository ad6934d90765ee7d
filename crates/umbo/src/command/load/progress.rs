//! The load that a push feeds, in a file next to its first input: `FILE.load`, one JSON object.
//!
//! The server knows which parts it has; this file has the identity of the load, and how the input is cut into parts. It
//! is written before the load is created, and removed once the load is sealed and nothing is left to do.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use umbo_api::loads::LoadSpec;
use umbo_rows::RowFormat;
use umbo_types::Namespace;

use crate::cli_error::{CliError, usage};
use crate::command::kv::file_name::{read_document, remove_file, with_suffix, write_document};
use crate::command::kv::format::{FileFormat, FormatOptions};
use crate::command::location::{ObjectReader, is_object};

/// The input and the options of a push. They are the same in each run that continues a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::command) struct Pushed {
    /// Namespace.
    pub(in crate::command) namespace: String,
    /// The load as it is requested from the server.
    pub(in crate::command) spec: LoadSpec,
    /// The files, in the order of their parts.
    pub(in crate::command) files: Vec<PushedFile>,
    /// Bytes of a part before compression, of NDJSON and CSV.
    pub(in crate::command) part_bytes: u64,
    /// Media type of CSV, with the parameters of its dialect.
    #[serde(default = "plain_csv")]
    pub(in crate::command) csv: String,
}

impl Pushed {
    /// Describes a push, with the length of its parts in MiB and the options of its files.
    pub(in crate::command) fn new(
        ns: &Namespace,
        spec: LoadSpec,
        files: Vec<PushedFile>,
        (part_mib, format): (u32, &FormatOptions),
    ) -> Result<Self, CliError> {
        Ok(Self {
            namespace: ns.as_str().to_owned(),
            spec,
            files,
            part_bytes: u64::from(part_mib) << 20,
            csv: RowFormat::Csv(format.csv()?).content_type(),
        })
    }
}

fn plain_csv() -> String {
    "text/csv".to_owned()
}

/// A file, as it was when the push began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::command) struct PushedFile {
    /// Name of the file.
    pub(in crate::command) path: PathBuf,
    /// Format of the file.
    pub(in crate::command) format: FileFormat,
    /// Length of the file, in bytes.
    pub(in crate::command) bytes: u64,
    /// When it was changed last, in milliseconds since the Unix epoch.
    modified_ms: u64,
    /// Tag of an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
}

impl PushedFile {
    /// Describes a file or object.
    pub(in crate::command) fn of(path: &Path, format: FileFormat) -> Result<Self, CliError> {
        let failed = CliError::file("read", path);
        if is_object(path) {
            let meta = ObjectReader::open(path).map_err(&failed)?.meta;
            return Ok(Self {
                path: path.to_owned(),
                format,
                bytes: meta.size,
                modified_ms: u64::try_from(meta.last_modified.timestamp_millis()).unwrap_or(0),
                etag: meta.e_tag,
            });
        }
        let metadata = std::fs::metadata(path).map_err(&failed)?;
        if !metadata.is_file() {
            return Err(usage!(
                "{} is no file that can be read twice; 'umbo kv import' reads pipes",
                path.display()
            ));
        }
        let modified = metadata.modified().map_err(&failed)?;
        let modified = modified.duration_since(SystemTime::UNIX_EPOCH);
        let modified_ms = modified.unwrap_or_default().as_millis();
        Ok(Self {
            path: path.to_owned(),
            format,
            bytes: metadata.len(),
            modified_ms: u64::try_from(modified_ms).unwrap_or(u64::MAX),
            etag: None,
        })
    }
}

/// A push that has begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::command) struct PushProgress {
    /// The idempotency key that its load is created with: a push that was broken off finds the load by it.
    pub(in crate::command) key: String,
    /// The input and the options of the push.
    pub(in crate::command) pushed: Pushed,
}

impl PushProgress {
    /// Returns the name of the file for an input.
    pub(in crate::command) fn path(file: &Path) -> PathBuf {
        with_suffix(file, ".load")
    }

    fn read(file: &Path) -> Result<Option<Self>, CliError> {
        read_document(&Self::path(file), "the progress of a push")
    }

    /// Loads the progress of the same push, or returns `None` if the file does not exist. The progress of another push
    /// is refused.
    pub(in crate::command) fn load(file: &Path, pushed: &Pushed) -> Result<Option<Self>, CliError> {
        let Some(begun) = Self::read(file)? else {
            return Ok(None);
        };
        let of = &begun.pushed;
        let differences = [
            (of.namespace != pushed.namespace, "in another namespace"),
            (
                of.files != pushed.files,
                "with other files, or one of them has changed since",
            ),
            (of != pushed, "with other options"),
        ];
        let name = Self::path(file);
        match differences.into_iter().find(|(is_so, _)| *is_so) {
            None => Ok(Some(begun)),
            Some((_, how)) => Err(usage!(
                "a load was begun {how}; name the same again, or abort it and remove {}",
                name.display()
            )),
        }
    }

    /// Loads the progress of a different push, or returns `None` if the file does not exist or is about the same push.
    pub(in crate::command) fn other(
        file: &Path,
        pushed: &Pushed,
    ) -> Result<Option<Self>, CliError> {
        let begun = Self::read(file)?;
        Ok(begun.filter(|begun| begun.pushed != *pushed))
    }

    /// Saves the progress. It is on the disk when this returns.
    pub(in crate::command) fn save(&self, file: &Path) -> Result<(), CliError> {
        let path = Self::path(file);
        write_document(&path, self).map_err(CliError::file("write", path))
    }

    /// Removes the progress.
    pub(in crate::command) fn remove(file: &Path) -> Result<(), CliError> {
        let path = Self::path(file);
        remove_file(&path).map_err(CliError::file("remove", path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_goes_on_only_with_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.csv");
        std::fs::write(&file, "pk,v\n").unwrap();
        let pushed = || Pushed {
            namespace: "n".to_owned(),
            spec: LoadSpec::default(),
            files: vec![PushedFile::of(&file, FileFormat::Csv).unwrap()],
            part_bytes: 7,
            csv: plain_csv(),
        };
        assert_eq!(PushProgress::load(&file, &pushed()).unwrap(), None);
        let begun = PushProgress {
            key: "7f".to_owned(),
            pushed: pushed(),
        };
        begun.save(&file).unwrap();
        assert_eq!(PushProgress::load(&file, &pushed()).unwrap(), Some(begun));
        let says = |pushed: &Pushed| PushProgress::load(&file, pushed).unwrap_err().to_string();
        let mut other = pushed();
        other.namespace = "m".to_owned();
        assert!(says(&other).contains("in another namespace"));
        let mut other = pushed();
        other.spec.force = true;
        assert!(says(&other).contains("with other options"));
        std::fs::write(&file, "pk,v\na,1\n").unwrap();
        assert!(says(&pushed()).contains("has changed since"));
        std::fs::write(PushProgress::path(&file), "{").unwrap();
        assert!(says(&pushed()).contains("remove it to begin anew"));
        PushProgress::remove(&file).unwrap();
        PushProgress::remove(&file).unwrap();
        assert_eq!(PushProgress::load(&file, &pushed()).unwrap(), None);
    }
}
