//! The rows of a pipe or file as lines of NDJSON, for the lane. Read on a separate thread.
//!
//! Lines that are not rows are refused here, with their number and the reason. From a file of failed rows, only the
//! rows of the namespace are read. End lines of exports are not rows; they tell whether the input is complete.

use std::io::Read;
use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc::Sender;
use tokio::sync::oneshot;
use umbo_rows::{
    EndCheck, Expiry, InputChange, LineChange, ParsedLine, RawLines, RejectReason, RowReader,
    RowsError, StreamPart, line,
};
use umbo_types::{Key, Namespace, Value};

use super::source::{ImportInput, not_rows};
use crate::cli_error::CliError;
use crate::command::kv::file_name::rows_failure;

const INCREMENT: &str =
    "an increment is not imported, because a line may be sent twice: send it with 'umbo kv batch'";
const LONG_CONDITION: &str =
    "a row with a large value (more than 1 MiB) is imported without a condition only";

/// A row to send.
#[derive(Debug)]
pub(super) struct ImportLine {
    /// Number of the line in its file, from 1.
    pub(super) number: u64,
    /// The line, without its newline.
    pub(super) text: Bytes,
    /// Key of the row.
    pub(super) key: Key,
    /// Whether the row has a condition.
    pub(super) has_condition: bool,
    /// A value that is too long for a batch.
    pub(super) long: Option<LongValue>,
    /// Dropped when the lane takes the line: only one line with a long value is read ahead.
    pub(super) waiting: Option<oneshot::Sender<()>>,
}

/// A value that is sent by itself.
#[derive(Debug)]
pub(super) struct LongValue {
    pub(super) value: Value,
    pub(super) expiry: Option<Expiry>,
}

/// A line that is not a row.
#[derive(Debug)]
pub(super) struct RefusedLine {
    /// Number of the line in its file, from 1.
    pub(super) number: u64,
    /// The line, or its first bytes.
    pub(super) text: Bytes,
    /// Why it is not a row.
    pub(super) detail: String,
}

/// A line that was read.
pub(super) type ReadLine = Result<ImportLine, RefusedLine>;

/// Why reading has ended early; `None` if the lane takes no more lines.
pub(super) type ReadEnd = Option<CliError>;

/// Reads lines.
pub(super) struct LineReader {
    namespace: Namespace,
    /// Name of the file, for errors.
    path: PathBuf,
    lines: Sender<ReadLine>,
    number: u64,
    has_row: bool,
    end: EndCheck,
    read: ReadInput,
}

/// Findings about an input that was read to its end.
#[derive(Debug, Default)]
pub(super) struct ReadInput {
    /// Why the input is incomplete, if it is.
    pub(super) incomplete: Option<String>,
    /// Rows that failed in other namespaces, which are left out.
    pub(super) others: u64,
    /// Whether it has no line, not even a blank one. A byte order mark is no line.
    pub(super) is_empty: bool,
}

impl LineReader {
    /// Makes a reader of rows of a namespace from a file.
    pub(super) fn new(namespace: Namespace, path: PathBuf, lines: Sender<ReadLine>) -> Self {
        Self {
            namespace,
            path,
            lines,
            number: 0,
            has_row: false,
            end: EndCheck::default(),
            read: ReadInput::default(),
        }
    }

    /// Reads to the end.
    pub(super) fn run(mut self, input: ImportInput) -> Result<ReadInput, ReadEnd> {
        match input {
            ImportInput::Lines(source) => self.read_lines(source)?,
            ImportInput::Table(rows) => self.read_table(rows)?,
        }
        self.read.incomplete = self.read.incomplete.or_else(|| self.end.missing());
        Ok(self.read)
    }

    fn read_lines(&mut self, source: Box<dyn Read + Send>) -> Result<(), ReadEnd> {
        let mut lines = RawLines::new(source).map_err(|error| self.failure(error))?;
        while let Some(line) = lines.next_line().map_err(|error| self.failure(error))? {
            self.number = lines.number();
            match line {
                Ok(line) => self.line(&line)?,
                Err(excerpt) => self.refuse(excerpt, RejectReason::TooLong.to_string())?,
            }
        }
        self.read.is_empty = lines.number() == 0;
        Ok(())
    }

    fn read_table(&mut self, mut rows: RowReader) -> Result<(), ReadEnd> {
        let mut text = BytesMut::new();
        while let Some(row) = rows.next() {
            self.number = rows.line();
            match row.map_err(|error| self.failure(error))? {
                Ok(row) => {
                    line::write(&row, &mut text);
                    let text = text.split().freeze();
                    let text = text.slice_ref(text.trim_ascii());
                    self.send(&text, row.key, row.change, false)?;
                }
                Err(rejected) => self.refuse(rejected.bytes, rejected.reason.to_string())?,
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &Bytes) -> Result<(), ReadEnd> {
        if !std::mem::replace(&mut self.has_row, true) && !line.starts_with(b"{") {
            return Err(Some(not_rows(self.number, line)));
        }
        match self.end.take(self.number, line) {
            StreamPart::Row => self.row(line),
            StreamPart::End => Ok(()),
            StreamPart::Incomplete(how) => {
                self.read.incomplete.get_or_insert(how);
                Ok(())
            }
        }
    }

    fn row(&mut self, text: &Bytes) -> Result<(), ReadEnd> {
        let inner = if starts_as_entry(text) {
            match entry_row(text, &self.namespace) {
                Ok(Some(inner)) => inner,
                Ok(None) => {
                    self.read.others += 1;
                    return Ok(());
                }
                Err(detail) => return self.refuse(text.clone(), detail),
            }
        } else {
            text.clone()
        };
        match line::parse(&inner, &inner) {
            Ok(ParsedLine {
                key,
                change: LineChange::Row(change),
                if_match,
                if_none_match,
                ..
            }) => {
                let has_condition = if_match.is_some() || if_none_match.is_some();
                self.send(&inner, key, change, has_condition)
            }
            Ok(_) => self.refuse(inner, INCREMENT.to_owned()),
            // Refuses the line and not the entry, which would grow with every attempt.
            Err(error) => self.refuse(inner, error.to_string()),
        }
    }

    fn send(
        &self,
        text: &Bytes,
        key: Key,
        change: InputChange,
        has_condition: bool,
    ) -> Result<(), ReadEnd> {
        let (number, text) = (self.number, text.clone());
        let (waiting, taken) = oneshot::channel();
        let long = match change {
            InputChange::Put { value, .. } if value.is_long() && has_condition => {
                return self.refuse(text, LONG_CONDITION.to_owned());
            }
            InputChange::Put { value, expiry } if value.is_long() => {
                Some(LongValue { value, expiry })
            }
            _ => None,
        };
        let waiting = long.is_some().then_some(waiting);
        self.pass(Ok(ImportLine {
            number,
            text,
            key,
            has_condition,
            long,
            waiting,
        }))?;
        // Waits until the lane drops the other end. Without a long value, the other end is already dropped.
        let _ = taken.blocking_recv();
        Ok(())
    }

    fn refuse(&self, text: Bytes, detail: String) -> Result<(), ReadEnd> {
        let number = self.number;
        self.pass(Err(RefusedLine {
            number,
            text,
            detail,
        }))
    }

    fn pass(&self, line: ReadLine) -> Result<(), ReadEnd> {
        self.lines.blocking_send(line).map_err(|_| None)
    }

    fn failure(&self, error: impl Into<RowsError>) -> CliError {
        rows_failure(&self.path, error.into())
    }
}

/// An entry of a file of failed rows.
#[derive(Deserialize)]
struct FailedLineEntry<'a> {
    failed: EntryReason,
    #[serde(borrow)]
    row: Option<&'a RawValue>,
    text: Option<String>,
}

#[derive(Deserialize)]
struct EntryReason {
    namespace: Option<String>,
}

fn starts_as_entry(text: &[u8]) -> bool {
    let inside = text.strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
    inside.is_some_and(|inside| inside.starts_with(b"\"failed\""))
}

/// Returns the row of an entry of a file of failed rows, or `None` if the row belongs to another namespace.
fn entry_row(text: &[u8], namespace: &Namespace) -> Result<Option<Bytes>, String> {
    let entry: FailedLineEntry<'_> =
        serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let of = entry.failed.namespace;
    if of.is_some_and(|of| of != namespace.as_str()) {
        return Ok(None);
    }
    match (entry.row, entry.text) {
        (Some(row), _) => Ok(Some(Bytes::copy_from_slice(row.get().as_bytes()))),
        (None, Some(text)) => Ok(Some(Bytes::copy_from_slice(text.trim().as_bytes()))),
        (None, None) => Err("an entry of a file of failed rows has 'row' or 'text'".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<ReadLine>, ReadInput) {
        let (sender, mut lines) = tokio::sync::mpsc::channel(100);
        let reader = LineReader::new(Namespace::new("n").unwrap(), "f".into(), sender);
        let source = Box::new(std::io::Cursor::new(text.to_owned().into_bytes()));
        let read = reader.run(ImportInput::Lines(source)).ok().unwrap();
        (std::iter::from_fn(|| lines.try_recv().ok()).collect(), read)
    }

    #[test]
    fn rows_are_told_from_what_is_none() {
        let text = "\u{feff}{\"pk\":\"a\",\"v\":\"1\"}\n\n{\"pk\":\n{\"pk\":\"a\",\"op\":\"inc\",\"by\":1}\n\
                    {\"pk\":\"b\",\"v\":\"2\",\"if_match\":\"*\"}";
        let (lines, read) = read(text);
        assert_eq!((read.incomplete, read.others), (None, 0));
        let told = lines.iter().map(|line| match line {
            Ok(row) => (row.number, row.has_condition, String::new()),
            Err(refused) => (refused.number, false, refused.detail.clone()),
        });
        let told: Vec<_> = told.collect();
        assert_eq!((told[0].0, told[0].1, &*told[0].2), (1, false, ""));
        assert_eq!((told[1].0, told[1].2.is_empty()), (3, false));
        assert_eq!((told[2].0, &*told[2].2), (4, INCREMENT));
        assert_eq!((told[3].0, told[3].1), (5, true));
    }

    #[test]
    fn the_row_of_an_entry_comes_back_as_it_was() {
        let entry = |namespace: &str, rest: &str| {
            format!("{{\"failed\":{{\"namespace\":\"{namespace}\",\"line\":3}},{rest}}}\n")
        };
        let row = "{\"pk\":\"a\", \"v\":\"x\"}";
        let text = [
            entry("n", &format!("\"row\":{row}")),
            entry(
                "n",
                "\"text\":\"{\\\"pk\\\":\\\"a\\\",\\\"v\\\":\\\"\\\"}\"",
            ),
            entry("m", &format!("\"row\":{row}")),
            entry("n", "\"odd\":1"),
        ];
        let (lines, read) = read(&text.concat());
        assert_eq!(read.others, 1);
        assert_eq!(lines[0].as_ref().unwrap().text, row);
        assert_eq!(lines[1].as_ref().unwrap().text, "{\"pk\":\"a\",\"v\":\"\"}");
        assert!(
            lines[2]
                .as_ref()
                .unwrap_err()
                .detail
                .contains("'row' or 'text'")
        );
    }

    #[test]
    fn an_export_that_was_cut_off_is_noticed() {
        let (lines, read) = read("{\"pk\":\"a\",\"v\":\"1\",\"version\":7}\n");
        assert!(lines.len() == 1 && read.incomplete.unwrap().contains("no end line"));
    }
}
