//! The file of failed rows, the dead letters of an import. Each line is one JSON object with the reason of a
//! failure, the namespace, and the line itself:
//!
//! ```text
//! {"failed":{"namespace":"a","at":1795259286247,"line":3,"status":400,"type":"/v1/errors/invalid-body","detail":"…"},"row":{…}}
//! {"failed":{"namespace":"a","line":9,"status":429,"type":"/v1/errors/quota-exceeded","detail":"…",
//!  "attempts":7},"row":{…}}
//! {"failed":{"namespace":"a","line":12,"status":400,"type":"/v1/errors/invalid-body","detail":"…"},"text":"{\"pk"}
//! ```
//!
//! `row` is the original line, `text` replaces it if the line is not a JSON object, `attempts` is the number
//! of times that it was sent, if more than once. Such a file can be sent again as it is: correct the content
//! of `row` (or replace `text` by a `row`). The file is created with the first failed row; sending it again
//! never removes a line from it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde::de::IgnoredAny;
use umbo_api::ErrorCode;
use umbo_client::DeadLetterReason;

use crate::cli_error::CliError;

/// Why a line failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct LineFailure {
    /// Number of the line in its file, from 1.
    pub(super) line: u64,
    /// HTTP status of the row, or of its batch; 0 if there was no answer.
    pub(super) status: u16,
    /// Code, as in a problem.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub(super) type_uri: String,
    /// What happened.
    pub(super) detail: String,
    /// Who gave the row up.
    #[serde(rename = "reason")]
    pub(super) given_up: DeadLetterReason,
    /// How often the row was sent; 0 if it was not.
    #[serde(skip_serializing_if = "is_at_most_one")]
    pub(super) attempts: u32,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
const fn is_at_most_one(attempts: &u32) -> bool {
    *attempts <= 1
}

impl LineFailure {
    /// Makes the reason of a line that is malformed before it is sent.
    pub(super) fn malformed(line: u64, detail: String) -> Self {
        Self {
            line,
            status: ErrorCode::InvalidBody.status(),
            type_uri: ErrorCode::InvalidBody.type_uri(),
            detail,
            given_up: DeadLetterReason::Malformed,
            attempts: 0,
        }
    }
}

#[derive(Serialize)]
struct EntryHead<'a> {
    failed: FailedEntry<'a>,
}

#[derive(Serialize)]
struct FailedEntry<'a> {
    namespace: &'a str,
    /// When it failed, in milliseconds since the Unix epoch: rows written later are newer.
    at: u64,
    #[serde(flatten)]
    reason: &'a LineFailure,
}

/// What to do with an existing file before the first failed row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Existing {
    /// Overwrite it: its rows are tried again.
    Replace,
    /// Continue after this many bytes; the rows after them are tried again.
    Continue(u64),
}

/// The file, created with the first failed row.
#[derive(Debug)]
pub(super) struct FailedFile {
    path: PathBuf,
    existing: Existing,
    out: Option<BufWriter<File>>,
    rows: u64,
    bytes: u64,
}

impl FailedFile {
    /// Sets the file's name; nothing is written yet.
    pub(super) fn new(path: PathBuf, existing: Existing) -> Self {
        let bytes = match existing {
            Existing::Replace => 0,
            Existing::Continue(bytes) => bytes,
        };
        Self {
            path,
            existing,
            out: None,
            rows: 0,
            bytes,
        }
    }

    /// Returns the number of rows added to it.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Counts rows that an earlier run has added.
    pub(super) fn count_before(&mut self, rows: u64) {
        self.rows += rows;
    }

    /// Returns its name.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Truncates a continued file to its valid bytes, if it exists.
    pub(super) fn cut(&mut self) -> Result<(), CliError> {
        if self.out.is_none() && self.path.exists() {
            let opened = open(&self.path, self.existing);
            let file = opened.map_err(|error| self.failure(error))?;
            self.out = Some(BufWriter::new(file));
        }
        Ok(())
    }

    /// Adds a line with its namespace.
    pub(super) fn push(
        &mut self,
        namespace: &str,
        line: &[u8],
        reason: &LineFailure,
    ) -> Result<(), CliError> {
        let added = entry(namespace, line, reason).and_then(|entry| self.write(&entry));
        added.map_err(|error| self.failure(error))
    }

    /// Adds an entry of another such file unchanged, without its newline.
    pub(super) fn push_entry(&mut self, entry: &[u8]) -> Result<(), CliError> {
        let added = self.write(&[entry, b"\n"].concat());
        added.map_err(|error| self.failure(error))
    }

    /// Writes out buffered entries.
    pub(super) fn flush(&mut self) -> Result<(), CliError> {
        match &mut self.out {
            None => Ok(()),
            Some(out) => out.flush().map_err(|error| self.failure(error)),
        }
    }

    /// Syncs the file to the disk, and returns its length.
    pub(super) fn sync(&mut self) -> Result<u64, CliError> {
        self.flush()?;
        if let Some(out) = &self.out {
            let synced = out.get_ref().sync_all();
            synced.map_err(|error| self.failure(error))?;
        }
        Ok(self.bytes)
    }

    fn write(&mut self, entry: &[u8]) -> io::Result<()> {
        let out = match &mut self.out {
            Some(out) => out,
            None => self
                .out
                .insert(BufWriter::new(open(&self.path, self.existing)?)),
        };
        out.write_all(entry)?;
        self.rows += 1;
        self.bytes += entry.len() as u64;
        Ok(())
    }

    fn failure(&self, source: io::Error) -> CliError {
        CliError::File {
            verb: "write",
            path: self.path.clone(),
            source,
        }
    }
}

fn open(path: &Path, existing: Existing) -> io::Result<File> {
    match existing {
        Existing::Replace => File::create(path),
        Existing::Continue(bytes) => {
            let mut options = OpenOptions::new();
            let mut file = options
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?;
            file.set_len(bytes)?;
            file.seek(SeekFrom::Start(bytes))?;
            Ok(file)
        }
    }
}

fn entry(namespace: &str, line: &[u8], reason: &LineFailure) -> io::Result<Vec<u8>> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let at = since.map_or(0, |since| since.as_millis() as u64);
    let failed = FailedEntry {
        namespace,
        at,
        reason,
    };
    let mut entry = serde_json::to_vec(&EntryHead { failed })?;
    entry.pop();
    let line = line.trim_ascii();
    let is_object = line.starts_with(b"{") && serde_json::from_slice::<IgnoredAny>(line).is_ok();
    if is_object {
        entry.extend_from_slice(b",\"row\":");
        entry.extend_from_slice(line);
    } else {
        entry.extend_from_slice(b",\"text\":");
        serde_json::to_writer(&mut entry, &String::from_utf8_lossy(line))?;
    }
    entry.extend_from_slice(b"}\n");
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::kv::import::line::{LineKind, read};

    fn reason() -> LineFailure {
        LineFailure::malformed(7, "a \"detail\"".to_owned())
    }

    #[test]
    fn a_row_comes_back_as_it_was() {
        let line = r#" {"pk":"a", "v":{"x":1}} "#;
        let entry = entry("n", line.as_bytes(), &reason()).unwrap();
        let Ok(LineKind::Failed(range)) = read(&entry, &mut Vec::new()) else {
            panic!("{entry:?}");
        };
        assert_eq!(&entry[range], line.trim().as_bytes());
        let json: serde_json::Value = serde_json::from_slice(&entry).unwrap();
        assert_eq!(json["failed"]["namespace"], "n");
        assert_eq!(json["failed"]["line"], 7);
        assert_eq!(json["failed"]["attempts"], serde_json::Value::Null);
        assert_eq!(json["failed"]["status"], 400);
    }

    #[test]
    fn what_is_no_object_comes_back_as_text() {
        for line in [&b"{\"pk\":"[..], b"7", b"\xff\x00", &[b'x'; 9_999]] {
            let entry = entry("n", line, &reason()).unwrap();
            let json: serde_json::Value = serde_json::from_slice(&entry).unwrap();
            let text = json["text"].as_str().unwrap();
            assert_eq!(text, String::from_utf8_lossy(line));
            assert!(matches!(
                read(&entry, &mut Vec::new()),
                Ok(LineKind::FailedText(_))
            ));
        }
    }

    #[test]
    fn no_failed_row_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.failed.ndjson");
        let mut file = FailedFile::new(path.clone(), Existing::Replace);
        file.flush().unwrap();
        assert_eq!(file.sync().unwrap(), 0);
        assert!(!path.exists());
        file.push("n", b"{}", &reason()).unwrap();
        file.flush().unwrap();
        assert!(path.exists() && file.rows() == 1);
    }

    #[test]
    fn a_file_that_is_there_is_replaced_or_continued() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let add = |existing, entry: &str| {
            let mut file = FailedFile::new(path.clone(), existing);
            file.push_entry(entry.as_bytes()).and_then(|()| file.sync())
        };
        assert_eq!(add(Existing::Continue(0), "a").unwrap(), 2);
        assert_eq!(add(Existing::Continue(2), "c").unwrap(), 4);
        assert_eq!(add(Existing::Continue(2), "d").unwrap(), 4);
        assert_eq!(std::fs::read(&path).unwrap(), b"a\nd\n");
        let mut file = FailedFile::new(path.clone(), Existing::Continue(2));
        file.cut().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"a\n");
        assert_eq!(add(Existing::Replace, "e").unwrap(), 2);
        assert_eq!(std::fs::read(&path).unwrap(), b"e\n");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(add(Existing::Continue(0), "f").unwrap(), 2);
    }
}
