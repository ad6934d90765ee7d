//! The lines that end a stream of rows: an export ends with one, as every range and scan over HTTP does. Rows of
//! Umbo are recognised by their versions; if such rows are not followed by an end line with their number, the
//! file was cut off. Pure.

use serde::{Deserialize, Serialize};
use umbo_api::stream::ErrorLine;

/// Counts the rows since the last end line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndCheck {
    rows: u64,
    /// Whether the first of them has a version.
    needs_end: bool,
    /// Whether the last end line says that more rows follow.
    has_more: bool,
}

/// The kind of a line in its stream.
#[derive(Debug, PartialEq, Eq)]
pub enum StreamPart {
    /// A row, or what should be one.
    Row,
    /// An end line that is right.
    End,
    /// A line which says that rows are missing, with the reason.
    Incomplete(String),
}

/// An end line: nothing else stands in it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OnlyEnd {
    end: CountedRows,
}

/// The parts of an end that count here.
#[derive(Deserialize)]
struct CountedRows {
    rows: u64,
    #[serde(default)]
    more: bool,
}

impl EndCheck {
    /// Takes a line, which is not blank.
    pub fn take(&mut self, number: u64, line: &[u8]) -> StreamPart {
        if starts_with_member(line, b"end")
            && let Ok(OnlyEnd { end }) = serde_json::from_slice(line)
        {
            let rows = self.rows;
            *self = Self {
                has_more: end.more,
                ..Self::default()
            };
            return if end.rows == rows {
                StreamPart::End
            } else {
                let said = end.rows;
                StreamPart::Incomplete(format!(
                    "the end line, line {number}, counts {said} rows, and {rows} precede it"
                ))
            };
        }
        if starts_with_member(line, b"error")
            && let Ok(ErrorLine { error, .. }) = serde_json::from_slice(line)
        {
            *self = Self::default();
            return StreamPart::Incomplete(format!(
                "line {number} is the error with which its stream ended: {}: {}",
                error.title, error.detail
            ));
        }
        if self.rows == 0 {
            self.needs_end = has_version(line);
        }
        self.rows += 1;
        StreamPart::Row
    }

    /// Returns why rows are missing at the end of the input, or `None` if the input is complete.
    pub fn missing(&self) -> Option<String> {
        if self.rows > 0 && self.needs_end {
            return Some(
                "there is no end line after its last row; exported rows (with a 'version') end with one"
                    .to_owned(),
            );
        }
        (self.rows == 0 && self.has_more)
            .then(|| "its last end line says that more rows follow".to_owned())
    }

    /// Returns the end line, with its newline, that the rows so far need; empty if they need none.
    pub(crate) fn end_line(&self) -> String {
        if self.needs_end {
            format!("{{\"end\":{{\"rows\":{}}}}}\n", self.rows)
        } else {
            String::new()
        }
    }
}

fn starts_with_member(line: &[u8], name: &[u8]) -> bool {
    let inside = line.strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
    let rest = inside.and_then(|inside| inside.strip_prefix(b"\""));
    rest.and_then(|rest| rest.strip_prefix(name))
        .is_some_and(|rest| rest.starts_with(b"\""))
}

fn has_version(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Versioned {
        version: Option<u64>,
    }
    serde_json::from_slice::<Versioned>(line).is_ok_and(|row| row.version.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = r#"{"pk":"a","version":7,"v":"x"}"#;

    fn end(more: bool, rows: u64) -> String {
        format!(r#"{{"end":{{"more":{more},"why":"done","rows":{rows},"bytes":9,"ru":1}}}}"#)
    }

    fn check(lines: &[&str]) -> Result<(), String> {
        let mut check = EndCheck::default();
        for (number, line) in (1..).zip(lines) {
            if let StreamPart::Incomplete(how) = check.take(number, line.as_bytes()) {
                return Err(how);
            }
        }
        check.missing().map_or(Ok(()), Err)
    }

    #[test]
    fn an_export_that_was_cut_off_is_noticed() {
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[&end(false, 0)]), Ok(()));
        assert_eq!(check(&[ROW, ROW, &end(false, 2)]), Ok(()));
        assert!(check(&[ROW, ROW]).unwrap_err().contains("no end line"));
        assert!(
            check(&[ROW, r#"{"pk":"b","ver"#])
                .unwrap_err()
                .contains("no end line")
        );
        assert!(
            check(&[ROW, &end(false, 2)])
                .unwrap_err()
                .contains("counts 2 rows, and 1 precede")
        );
        assert!(
            check(&[ROW, &end(true, 1)])
                .unwrap_err()
                .contains("more rows follow")
        );
        let pages = [ROW, &end(true, 1), ROW, ROW, &end(false, 2)];
        assert_eq!(check(&pages), Ok(()));
        let error = r#"{"error":{"type":"t","title":"Shed","status":503,"detail":"d","retry":{"safe":true}},"ru":1}"#;
        assert!(check(&[ROW, error]).unwrap_err().contains("Shed: d"));
    }

    #[test]
    fn an_end_line_stands_alone() {
        for line in [
            r#"{"end":"2026-01-01","pk":"a","v":"1"}"#,
            r#"{"end":{"rows":0},"pk":"a","v":"1"}"#,
            r#"{"end":{}}"#,
            r#"{"error":{},"pk":"a"}"#,
        ] {
            let part = EndCheck::default().take(1, line.as_bytes());
            assert_eq!(part, StreamPart::Row, "{line}");
        }
    }

    #[test]
    fn rows_that_are_not_of_umbo_need_no_end() {
        let own = r#"{"pk":"a","v":"{\"version\":1}"}"#;
        assert_eq!(check(&[own, own]), Ok(()));
        assert_eq!(
            check(&[r#"{"failed":{},"row":{"pk":"a","version":1}}"#]),
            Ok(())
        );
        assert_eq!(
            check(&[r#"{"end":1}"#]),
            Ok(()),
            "a malformed row is none of its business"
        );
    }
}
