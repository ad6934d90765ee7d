//! Output of commands on stdout. A reader that closes the pipe (`| head`) ends the program quietly: every
//! write goes through this module, and a broken pipe is a [`CliError`] that is not reported.

mod listing;
pub(crate) mod rows;
pub(crate) mod table;

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, SystemTime};

use clap::ValueEnum;
use serde::Serialize;
use umbo_api::{json_line, key_text};

pub(crate) use self::listing::Listing;
use crate::cli_error::CliError;

/// Form of the output of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Columns for people and awk: a header line, then fields separated by two or more spaces
    Table,
    /// One JSON document
    Json,
    /// One JSON object a line
    Ndjson,
}

impl Format {
    /// Returns a table for a terminal, lines for a pipe or file.
    pub(crate) fn for_rows() -> Self {
        if std::io::stdout().is_terminal() {
            Self::Table
        } else {
            Self::Ndjson
        }
    }
}

/// Writes bytes as they are.
pub(crate) fn write_bytes(bytes: &[u8]) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(bytes)
        .and_then(|()| stdout.flush())
        .map_err(CliError::from_output)
}

/// Writes one JSON document and a newline.
pub(crate) fn write_json(document: &impl Serialize) -> Result<(), CliError> {
    write_bytes(&json_line(document)?)
}

/// Writes items as one JSON array, as one line each, or as a table of the given cells below a header line.
pub(crate) fn write_list<T: Serialize>(
    format: Format,
    list: &[T],
    header: &str,
    cells: impl Fn(&T) -> Vec<String>,
) -> Result<(), CliError> {
    match format {
        Format::Json => write_json(&list),
        Format::Ndjson => {
            let lines: Result<Vec<_>, _> = list.iter().map(json_line).collect();
            write_bytes(&lines?.concat())
        }
        Format::Table => write_bytes(table::of(header, list, cells).as_bytes()),
    }
}

/// Writes a report: as JSON, or by a function as text for people.
pub(crate) fn write_report(
    format: Format,
    report: &impl Serialize,
    as_text: impl FnOnce() -> Result<(), CliError>,
) -> Result<(), CliError> {
    match format {
        Format::Table => as_text(),
        Format::Json | Format::Ndjson => write_json(report),
    }
}

/// Returns a JSON document and a newline.
pub(crate) fn json_line(document: &impl Serialize) -> Result<Vec<u8>, CliError> {
    let mut line = Vec::new();
    json_line::write(&mut line, document).map_err(|error| CliError::Output(error.into()))?;
    line.push(b'\n');
    Ok(line)
}

/// Prints a note for people on stderr, with a text as for `format!`.
macro_rules! note {
    ($($text:tt)+) => {
        $crate::output::print_note(&format!($($text)+))
    };
}
pub(crate) use note;

/// Prints a note for people on stderr.
pub(crate) fn print_note(line: &str) {
    // Without stderr there is nowhere to report an error.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Notes the dispatchers that did not answer, each with the reason.
pub(crate) fn note_unreached(unreached: &[String]) {
    for one in unreached {
        note!("no answer from {one}");
    }
}

/// Returns an amount with at most three decimals.
pub(crate) fn amount(amount: f64) -> String {
    let text = format!("{amount:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0" } else { text }.to_owned()
}

/// Returns a rate with a suitable number of digits.
pub(crate) fn rate(rate: f64) -> String {
    if rate == 0.0 || rate >= 10.0 {
        format!("{rate:.0}")
    } else {
        format!("{rate:.1}")
    }
}

/// Returns a number of bytes with its unit: `1.5 MiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    bytesize::ByteSize(bytes).display().iec().to_string()
}

/// Returns a part of a key as text, empty if the server sent it in a form that cannot be read.
pub(crate) fn key<E>(bytes: Result<Vec<u8>, E>) -> String {
    key_text::format(&bytes.unwrap_or_default())
}

/// Returns a value as text, empty for none.
pub(crate) fn or_empty(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Returns items as text with commas between them.
pub(crate) fn joined(items: &[impl ToString]) -> String {
    let items: Vec<_> = items.iter().map(ToString::to_string).collect();
    items.join(",")
}

/// Returns a time span in one word: `1h30m`.
pub(crate) fn span(span: Duration) -> String {
    humantime::format_duration(span)
        .to_string()
        .replace(' ', "")
}

/// Returns a number with its noun: `1 row`, `2 rows`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Returns milliseconds since the Unix epoch as a date and time in UTC, `-` for none.
pub(crate) fn instant(millis: Option<u64>) -> String {
    // The calendar of the format ends with the year 9999.
    const LAST_MS: u64 = 253_402_300_799_999;
    match millis {
        None => "-".to_owned(),
        Some(millis) if millis > LAST_MS => format!("{millis}ms"),
        Some(millis) => {
            let instant = SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
            humantime::format_rfc3339_millis(instant).to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_short() {
        let texts = [0.0, -0.0001, 1.5, 1_000.0, -2.123_456, 1e9].map(amount);
        assert_eq!(texts, ["0", "0", "1.5", "1000", "-2.123", "1000000000"]);
    }

    #[test]
    fn rates_have_the_digits_they_deserve() {
        let texts = [0.0, 0.04, 9.94, 10.0, 12_345.6].map(rate);
        assert_eq!(texts, ["0", "0.0", "9.9", "10", "12346"]);
    }

    #[test]
    fn one_is_not_many() {
        let texts = [0, 1, 2].map(|number| counted(number, "row"));
        assert_eq!(texts, ["0 rows", "1 row", "2 rows"]);
    }

    #[test]
    fn instants_are_dates_as_far_as_there_are_dates() {
        assert_eq!(instant(None), "-");
        assert_eq!(instant(Some(1_500)), "1970-01-01T00:00:01.500Z");
        assert_eq!(
            instant(Some(253_402_300_799_999)),
            "9999-12-31T23:59:59.999Z"
        );
        assert_eq!(instant(Some(u64::MAX)), format!("{}ms", u64::MAX));
    }
}
