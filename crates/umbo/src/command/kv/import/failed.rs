//! The file of failed rows of an import. Each line is one JSON object with the reason of a
//! failure, the namespace, and the line itself:
//!
//! ```text
//! {"failed":{"namespace":"a","at":1795259286247,"line":3,"status":400,"type":"/v1/errors/invalid-body","detail":"…"},
//!  "row":{…}}
//! {"failed":{"namespace":"a","line":9,"status":429,"type":"/v1/errors/quota-exceeded","detail":"…",
//!  "attempts":7},"row":{…}}
//! {"failed":{"namespace":"a","line":12,"status":400,"type":"/v1/errors/invalid-body","detail":"…"},"text":"{\"pk"}
//! ```
//!
//! `row` is the original line, `text` replaces it if the line is not a JSON object, `attempts` is the number
//! of times that it was sent, if more than once. Such a file can be imported: correct the content of `row` (or
//! replace `text` by a `row`). It is created with the first failed row.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use umbo_api::ErrorCode;
use umbo_client::{DeadLetterReason, Error, failed_entry};

use crate::cli_error::CliError;
use crate::clock::millis_ago;

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
    /// Why the row was given up.
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

    /// Makes the reason of a line whose request failed as a whole.
    pub(super) fn of(line: u64, error: &Error, attempts: u32) -> Self {
        let (type_uri, detail) = match error.problem() {
            Some(problem) => (problem.type_uri.clone(), problem.detail.clone()),
            None => (String::new(), error.to_string()),
        };
        // If the client gave up itself, the reason is the last answer of the server.
        let (status, type_uri) = match error {
            Error::GivenUp { status: 503, .. } => (503, type_uri),
            Error::GivenUp { status, .. } => (*status, ErrorCode::QuotaExceeded.type_uri()),
            _ => (error.status().unwrap_or_default(), type_uri),
        };
        Self {
            line,
            status,
            type_uri,
            detail,
            given_up: DeadLetterReason::of(error),
            attempts,
        }
    }
}

#[derive(Serialize)]
struct FailedEntry<'a> {
    namespace: &'a str,
    /// When it failed, in milliseconds since the Unix epoch: rows written later are newer.
    at: u64,
    #[serde(flatten)]
    reason: &'a LineFailure,
}

/// The file of failed rows. The first failed row creates the file, or replaces an existing one.
#[derive(Debug)]
pub(super) struct FailedFile {
    path: PathBuf,
    out: Option<BufWriter<File>>,
}

impl FailedFile {
    /// Sets the file's name; nothing is written yet.
    pub(super) const fn new(path: PathBuf) -> Self {
        Self { path, out: None }
    }

    /// Returns its name.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a line with its namespace.
    pub(super) fn push(
        &mut self,
        namespace: &str,
        line: &[u8],
        reason: &LineFailure,
    ) -> Result<(), CliError> {
        let added = self.write(entry(namespace, line, reason).as_bytes());
        added.map_err(|error| self.failure(error))
    }

    /// Writes out buffered entries.
    pub(super) fn flush(&mut self) -> Result<(), CliError> {
        match &mut self.out {
            None => Ok(()),
            Some(out) => out.flush().map_err(|error| self.failure(error)),
        }
    }

    fn write(&mut self, entry: &[u8]) -> io::Result<()> {
        let out = match &mut self.out {
            Some(out) => out,
            None => self.out.insert(BufWriter::new(File::create(&self.path)?)),
        };
        out.write_all(entry)
    }

    fn failure(&self, source: io::Error) -> CliError {
        CliError::file("write", &self.path)(source)
    }
}

fn entry(namespace: &str, line: &[u8], reason: &LineFailure) -> String {
    let failed = FailedEntry {
        namespace,
        at: millis_ago(Duration::ZERO),
        reason,
    };
    failed_entry(&failed, line) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason() -> LineFailure {
        LineFailure::malformed(7, "a \"detail\"".to_owned())
    }

    #[test]
    fn a_row_stands_as_it_was_and_what_is_none_as_text() {
        let line = r#" {"pk":"a", "v":{"x":1}} "#;
        let of_row = entry("n", line.as_bytes(), &reason());
        assert!(of_row.contains(line.trim()));
        let json: serde_json::Value = serde_json::from_str(&of_row).unwrap();
        assert_eq!(json["failed"]["namespace"], "n");
        assert_eq!(json["failed"]["line"], 7);
        assert_eq!(json["failed"]["attempts"], serde_json::Value::Null);
        assert_eq!(json["failed"]["status"], 400);
        for line in [&b"{\"pk\":"[..], b"7", b"\xff\x00", &[b'x'; 9_999]] {
            let entry = entry("n", line, &reason());
            let json: serde_json::Value = serde_json::from_str(&entry).unwrap();
            let text = json["text"].as_str().unwrap();
            assert_eq!(text, String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn no_failed_row_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.failed.ndjson");
        let mut file = FailedFile::new(path.clone());
        file.flush().unwrap();
        assert!(!path.exists());
        file.push("n", b"{}", &reason()).unwrap();
        file.flush().unwrap();
        assert!(path.exists());
    }
}
