//! Reads files of failed rows: entry by entry, and as a summary. Sends nothing.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::source;
use crate::cli_error::CliError;
use crate::command::kv::file_name::read_failure;

/// Longest line that is read: a row of the longest request, and the reason of its failure.
const LINE_LEN_MAX: u64 = 20 << 20;

/// Kind of a line of such a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DeadLetterLine {
    /// A row that failed, or a text in place of one.
    Entry(FailureReason),
    /// A row as import takes it, without a failure.
    Row,
    /// Neither.
    Malformed,
}

/// The reason in an entry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(super) struct FailureReason {
    #[serde(default)]
    pub(super) namespace: Option<String>,
    #[serde(default)]
    pub(super) status: u16,
    #[serde(default, rename = "type")]
    type_uri: String,
    #[serde(default)]
    detail: String,
    /// Who gave the row up; empty in files of earlier versions.
    #[serde(default)]
    reason: String,
}

impl FailureReason {
    /// Returns the name of the code, the last part of its URI; empty if there was no answer.
    pub(super) fn code(&self) -> &str {
        self.type_uri.rsplit('/').next().unwrap_or_default()
    }
}

/// Returns the kind of a line.
pub(super) fn read_letter(line: &[u8]) -> DeadLetterLine {
    #[derive(Deserialize)]
    struct Envelope {
        failed: Option<FailureReason>,
    }
    match serde_json::from_slice(line) {
        Ok(Envelope {
            failed: Some(failed),
        }) => DeadLetterLine::Entry(failed),
        Ok(Envelope { failed: None }) => DeadLetterLine::Row,
        Err(_) => DeadLetterLine::Malformed,
    }
}

/// The non-blank lines of a file, with their numbers from 1.
pub(super) struct LetterLines<'a> {
    path: &'a Path,
    input: BufReader<Box<dyn std::io::Read + Send>>,
    number: u64,
}

impl<'a> LetterLines<'a> {
    /// Opens a file, plain or compressed; `-` for stdin.
    pub(super) fn open(path: &'a Path) -> Result<Self, CliError> {
        let source = source::open(path).map_err(|error| read_failure(path, error))?;
        Ok(Self {
            path,
            input: BufReader::with_capacity(256 << 10, source.reader),
            number: 0,
        })
    }

    /// Appends the next line without its newline and returns its number; none at the end.
    pub(super) fn next(&mut self, line: &mut Vec<u8>) -> Result<Option<u64>, CliError> {
        loop {
            let start = line.len();
            let mut bounded = (&mut self.input).take(LINE_LEN_MAX);
            let read = bounded.read_until(b'\n', line);
            let len = read.map_err(|error| read_failure(self.path, error))?;
            if len == 0 {
                return Ok(None);
            }
            self.number += 1;
            if len as u64 == LINE_LEN_MAX {
                let (path, number) = (self.path.display(), self.number);
                return Err(CliError::Usage(format!(
                    "line {number} of {path} is longer than any entry of a file of failed rows"
                )));
            }
            let end = start + line[start..].trim_ascii_end().len();
            line.truncate(end);
            if end > start {
                return Ok(Some(self.number));
            }
        }
    }
}

/// Number of the dead letters with the same namespace, reason, status and code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(in crate::command) struct FailureCount {
    /// Namespace of the entries; absent if they have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::command) namespace: Option<String>,
    /// Who gave them up: `given-up` or `malformed` here, `refused` by the server, or `unanswered`; empty if that is not known.
    pub(in crate::command) reason: String,
    /// HTTP status; 0 if there was no answer.
    pub(in crate::command) status: u16,
    /// Name of the error code; empty if there was no answer.
    #[serde(rename = "type")]
    pub(in crate::command) code: String,
    /// Number of entries.
    pub(in crate::command) rows: u64,
    /// Detail of the first of them.
    pub(in crate::command) example: String,
}

/// Namespace, reason, status and code of an entry.
type FailureGroup = (Option<String>, String, u16, String);

/// Counts the entries of a file by namespace and reason, the most frequent first.
pub(in crate::command) fn census(path: &Path) -> Result<Vec<FailureCount>, CliError> {
    let (mut lines, mut line) = (LetterLines::open(path)?, Vec::new());
    let mut kinds: BTreeMap<FailureGroup, (u64, String)> = BTreeMap::new();
    while lines.next(&mut line)?.is_some() {
        let other = |kind: &str, detail: &str| FailureReason {
            type_uri: kind.to_owned(),
            detail: detail.to_owned(),
            ..FailureReason::default()
        };
        let failed = match read_letter(&line) {
            DeadLetterLine::Entry(failed) => failed,
            DeadLetterLine::Row => other("(row)", "has not failed yet"),
            DeadLetterLine::Malformed => {
                other("(malformed)", "not an entry of a file of failed rows")
            }
        };
        let code = failed.code().to_owned();
        let kind = kinds.entry((failed.namespace, failed.reason, failed.status, code));
        kind.or_insert((0, failed.detail)).0 += 1;
        line.clear();
    }
    let mut kinds: Vec<FailureCount> = kinds
        .into_iter()
        .map(
            |((namespace, reason, status, code), (rows, example))| FailureCount {
                namespace,
                reason,
                status,
                code,
                rows,
                example,
            },
        )
        .collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.rows));
    Ok(kinds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_entry_a_row_or_neither() {
        let entry = br#"{"failed":{"namespace":"n","line":3,"status":429,"type":"/v1/errors/quota-exceeded","detail":"d","attempts":4},"row":{"pk":"a"}}"#;
        let DeadLetterLine::Entry(failed) = read_letter(entry) else {
            panic!("not an entry");
        };
        assert_eq!(failed.namespace.as_deref(), Some("n"));
        assert_eq!((failed.status, failed.code()), (429, "quota-exceeded"));
        let of_before = read_letter(br#"{"failed":{"line":3,"status":0,"detail":"d"},"text":"{"}"#);
        assert!(matches!(
            of_before,
            DeadLetterLine::Entry(FailureReason {
                namespace: None,
                ..
            })
        ));
        assert_eq!(read_letter(br#"{"pk":"a","v":"1"}"#), DeadLetterLine::Row);
        for line in [&b"{"[..], b"7", b"{\"failed\":7}"] {
            assert_eq!(read_letter(line), DeadLetterLine::Malformed);
        }
    }

    #[test]
    fn lines_keep_their_numbers_over_blank_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "\n{}\r\n\n  \n7").unwrap();
        let (mut lines, mut found, mut line) = (LetterLines::open(&path).unwrap(), vec![], vec![]);
        while let Some(number) = lines.next(&mut line).unwrap() {
            found.push((number, std::mem::take(&mut line)));
        }
        assert_eq!(found, [(2, b"{}".to_vec()), (5, b"7".to_vec())]);
    }

    #[test]
    fn a_census_counts_by_namespace_and_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let entry = |namespace: &str, code: &str, detail: &str| {
            format!(
                "{{\"failed\":{{\"namespace\":\"{namespace}\",\"status\":429,\
                 \"type\":\"/v1/errors/{code}\",\"detail\":\"{detail}\"}},\"row\":{{}}}}\n"
            )
        };
        let text = [
            entry("a", "x", "1"),
            entry("b", "x", "2"),
            entry("b", "x", "3"),
            "odd\n".to_owned(),
        ];
        std::fs::write(&path, text.concat()).unwrap();
        let kinds = census(&path).unwrap();
        assert_eq!((kinds[0].rows, kinds[0].example.as_str()), (2, "2"));
        assert_eq!(kinds[0].namespace.as_deref(), Some("b"));
        assert_eq!(kinds.iter().map(|kind| kind.rows).sum::<u64>(), 4);
        assert_eq!(kinds.len(), 3);
    }
}
