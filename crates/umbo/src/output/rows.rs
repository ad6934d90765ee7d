//! Rows of a range or scan, printed as they arrive, in constant memory. NDJSON rows are the rows of the wire with their
//! partition key, so that `umbo kv import` accepts them unchanged.

use std::io::{BufWriter, Stdout, Write as _};

use bytes::BytesMut;
use umbo_api::key_text;
use umbo_api::row::{JsonRow, RowFieldError, RowFields};
use umbo_client::PageReader;

use crate::cli_error::CliError;
use crate::output::table::{self, TextTable};
use crate::output::{Format, instant, or_empty};

/// Columns of a value that a table shows, before the mark of a cut.
const SHOWN_MAX: usize = 60;
/// Rows that a table collects before it fixes its column widths.
const WIDTH_ROWS: usize = 200;

/// Prints rows.
pub(crate) struct RowPrinter {
    out: BufWriter<Stdout>,
    format: Format,
    partition: Vec<u8>,
    prefix: Vec<u8>,
    table: TextTable,
    rows: u64,
}

impl RowPrinter {
    /// Makes a printer for the rows of a namespace, or of one partition, whose rows do not contain its key.
    pub(crate) fn new(format: Format, partition: Option<&[u8]>) -> Self {
        let prefix = partition.map(partition_prefix).unwrap_or_default();
        Self {
            out: BufWriter::with_capacity(64 << 10, std::io::stdout()),
            format,
            partition: partition.unwrap_or_default().to_vec(),
            prefix,
            table: TextTable::new(&["PK", "SK", "VERSION", "EXPIRES", "BYTES", "VALUE"]),
            rows: 0,
        }
    }

    /// Prints all rows of a reader.
    pub(crate) async fn print(mut self, mut reader: PageReader) -> Result<(), CliError> {
        while let Some(block) = reader.next_block().await? {
            for line in block.split(|&byte| byte == b'\n') {
                if !line.trim_ascii().is_empty() {
                    self.row(line.trim_ascii())?;
                }
            }
            // The first rows are shown before the last ones have arrived.
            self.flush_table(WIDTH_ROWS)?;
        }
        self.flush_table(0)?;
        self.end().map_err(CliError::from_output)
    }

    fn row(&mut self, line: &[u8]) -> Result<(), CliError> {
        self.rows += 1;
        if self.format == Format::Table {
            let row: JsonRow = serde_json::from_slice(line).map_err(CliError::malformed)?;
            let cells = self.cells(&row).map_err(CliError::malformed)?;
            self.table.push(cells);
            return Ok(());
        }
        self.json(line).map_err(CliError::from_output)
    }

    fn json(&mut self, line: &[u8]) -> std::io::Result<()> {
        if self.format == Format::Json {
            let separator: &[u8] = if self.rows == 1 { b"[" } else { b",\n" };
            self.out.write_all(separator)?;
        }
        match line.strip_prefix(b"{") {
            Some(inside) if !self.prefix.is_empty() => {
                self.out.write_all(&self.prefix)?;
                self.out.write_all(inside)?;
            }
            _ => self.out.write_all(line)?,
        }
        if self.format == Format::Ndjson {
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }

    fn end(&mut self) -> std::io::Result<()> {
        if self.format == Format::Json {
            let end: &[u8] = if self.rows == 0 { b"[]\n" } else { b"]\n" };
            self.out.write_all(end)?;
        }
        self.out.flush()
    }

    fn flush_table(&mut self, at_least: usize) -> Result<(), CliError> {
        if self.format == Format::Table && self.table.pending() > at_least {
            let lines = self.table.take();
            self.out
                .write_all(lines.as_bytes())
                .map_err(CliError::from_output)?;
        }
        Ok(())
    }

    fn cells(&self, row: &JsonRow) -> Result<Vec<String>, RowFieldError> {
        let partition = row.partition()?;
        let value = row.value()?;
        let len = row.bytes.or(value.as_ref().map(|value| value.len() as u64));
        Ok(vec![
            key_text::format(partition.as_deref().unwrap_or(&self.partition)),
            key_text::format(&row.sort()?),
            or_empty(row.version),
            instant(row.expires_at),
            or_empty(len),
            value.as_deref().map_or_else(String::new, shown),
        ])
    }
}

/// Returns `{"pk":"…",`, which turns a row of a partition into a row of its namespace.
fn partition_prefix(partition: &[u8]) -> Vec<u8> {
    let mut row = BytesMut::new();
    RowFields {
        partition: Some(partition),
        ..RowFields::default()
    }
    .write_line(&mut row);
    let end = memchr::memmem::rfind(&row, b"\"sk\"").unwrap_or(row.len());
    row.truncate(end);
    row.to_vec()
}

/// Returns the beginning of a value as text on one line.
pub(crate) fn shown(value: &[u8]) -> String {
    let text = key_text::format(&value[..value.len().min(4 * SHOWN_MAX)]);
    let text = if value.len() > 4 * SHOWN_MAX && text.starts_with("0x") {
        // The cut may have split a character of a text.
        String::from_utf8_lossy(&value[..4 * SHOWN_MAX])
            .chars()
            .map(|shown| if shown.is_control() { ' ' } else { shown })
            .collect()
    } else {
        text
    };
    table::cut(&text, SHOWN_MAX + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_makes_a_whole_row() {
        assert_eq!(partition_prefix(b"US"), b"{\"pk\":\"US\",");
        assert_eq!(partition_prefix(b"\"sk\""), b"{\"pk\":\"\\\"sk\\\"\",");
        assert_eq!(partition_prefix(b"\xff"), b"{\"pk64\":\"_w\",");
    }

    #[test]
    fn long_values_are_cut() {
        assert_eq!(shown(b"a b"), "a b");
        assert_eq!(shown("é".repeat(300).as_bytes()).chars().count(), 61);
        assert_eq!(shown(&[0xff; 10]), "0xffffffffffffffffffff");
    }
}
