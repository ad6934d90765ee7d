//! The file of failed rows. Each line is one JSON object: why a line failed, and the line itself:
//!
//! ```text
//! {"failed":{"line":3,"status":400,"type":"/v1/errors/invalid-body","detail":"…"},"row":{…}}
//! {"failed":{"line":9,"status":400,"type":"/v1/errors/invalid-body","detail":"…"},"text":"{\"pk"}
//! ```
//!
//! `row` is the line as it was, `text` stands for a line that is no JSON object. Import takes such
//! a file as it is: put right what stands in `row` (or put a `row` in the place of `text`), and
//! import the file. The file is made with the first failed row.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::IgnoredAny;
use umbo_api::ErrorCode;

use crate::failure::Failure;

/// Most bytes of a line too long to be written that are kept.
const EXCERPT_LEN_MAX: usize = 4 << 10;

/// Why a line failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Reason {
    /// Number of the line in its file, from 1.
    pub(super) line: u64,
    /// HTTP status of the row, or of its batch; 0 where there was no answer.
    pub(super) status: u16,
    /// Code, as in a problem.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub(super) type_uri: String,
    /// What happened.
    pub(super) detail: String,
}

impl Reason {
    /// A line that need not be sent to know that it is malformed.
    pub(super) fn malformed(line: u64, detail: String) -> Self {
        Self {
            line,
            status: ErrorCode::InvalidBody.status(),
            type_uri: ErrorCode::InvalidBody.type_uri(),
            detail,
        }
    }
}

#[derive(Serialize)]
struct Head<'a> {
    failed: &'a Reason,
}

/// The file, once there is a failed row.
#[derive(Debug)]
pub(super) struct FailedFile {
    path: PathBuf,
    out: Option<BufWriter<File>>,
    rows: u64,
}

impl FailedFile {
    /// Names the file; nothing is written yet.
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            out: None,
            rows: 0,
        }
    }

    /// Returns the number of rows in it.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns its name.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a line.
    pub(super) fn push(&mut self, line: &[u8], reason: &Reason) -> Result<(), Failure> {
        self.rows += 1;
        self.write(line, reason)
            .map_err(|error| self.failure(error))
    }

    /// Writes out what is still in memory.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        match &mut self.out {
            None => Ok(()),
            Some(out) => out.flush().map_err(|error| self.failure(error)),
        }
    }

    fn write(&mut self, line: &[u8], reason: &Reason) -> io::Result<()> {
        let out = match &mut self.out {
            Some(out) => out,
            None => self.out.insert(BufWriter::new(File::create(&self.path)?)),
        };
        out.write_all(&entry(line, reason)?)
    }

    fn failure(&self, source: io::Error) -> Failure {
        Failure::File {
            verb: "write",
            path: self.path.clone(),
            source,
        }
    }
}

fn entry(line: &[u8], reason: &Reason) -> io::Result<Vec<u8>> {
    let mut entry = serde_json::to_vec(&Head { failed: reason })?;
    entry.pop();
    let line = line.trim_ascii();
    let is_object = line.starts_with(b"{") && serde_json::from_slice::<IgnoredAny>(line).is_ok();
    if is_object {
        entry.extend_from_slice(b",\"row\":");
        entry.extend_from_slice(line);
    } else {
        entry.extend_from_slice(b",\"text\":");
        let excerpt = &line[..line.len().min(EXCERPT_LEN_MAX)];
        serde_json::to_writer(&mut entry, &String::from_utf8_lossy(excerpt))?;
    }
    entry.extend_from_slice(b"}\n");
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::kv::import::line::{Line, read};

    fn reason() -> Reason {
        Reason::malformed(7, "a \"detail\"".to_owned())
    }

    #[test]
    fn a_row_comes_back_as_it_was() {
        let line = r#" {"pk":"a", "v":{"x":1}} "#;
        let entry = entry(line.as_bytes(), &reason()).unwrap();
        let Ok(Line::Failed(range)) = read(&entry, &mut Vec::new()) else {
            panic!("{entry:?}");
        };
        assert_eq!(&entry[range], line.trim().as_bytes());
        let json: serde_json::Value = serde_json::from_slice(&entry).unwrap();
        assert_eq!(json["failed"]["line"], 7);
        assert_eq!(json["failed"]["status"], 400);
    }

    #[test]
    fn what_is_no_object_comes_back_as_text() {
        for line in [&b"{\"pk\":"[..], b"7", b"\xff\x00", &[b'x'; 9_999]] {
            let entry = entry(line, &reason()).unwrap();
            let json: serde_json::Value = serde_json::from_slice(&entry).unwrap();
            let text = json["text"].as_str().unwrap();
            assert!(text.len() <= EXCERPT_LEN_MAX && !text.is_empty());
            assert!(matches!(
                read(&entry, &mut Vec::new()),
                Ok(Line::FailedText(_))
            ));
        }
    }

    #[test]
    fn no_failed_row_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.failed.ndjson");
        let mut file = FailedFile::new(path.clone());
        file.flush().unwrap();
        assert!(!path.exists());
        file.push(b"{}", &reason()).unwrap();
        file.flush().unwrap();
        assert!(path.exists() && file.rows() == 1);
    }
}
