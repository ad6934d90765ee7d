//! Plain tables for terminals: a header line, then one line per row, fields separated by at least two spaces. The rows at hand when
//! the first line is written determine the widths; later rows never change them.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// A table in progress.
#[derive(Debug)]
pub(crate) struct TextTable {
    pending: Vec<Vec<String>>,
    widths: Vec<usize>,
}

impl TextTable {
    /// Begins a table.
    pub(crate) fn new(header: &[&str]) -> Self {
        Self {
            pending: vec![header.iter().map(|&cell| cell.to_owned()).collect()],
            widths: Vec::new(),
        }
    }

    /// Adds a row. An empty cell becomes `-`, so that columns can be counted.
    pub(crate) fn push(&mut self, cells: Vec<String>) {
        let is_blank = |cell: &String| cell.trim().is_empty();
        let cells = cells.into_iter().map(|cell| {
            if is_blank(&cell) {
                "-".to_owned()
            } else {
                cell
            }
        });
        self.pending.push(cells.collect());
    }

    /// Returns the number of lines that were not taken yet.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Takes the lines added since the last time.
    pub(crate) fn take(&mut self) -> String {
        if self.widths.is_empty() {
            self.widths = widths(&self.pending);
        }
        let mut text = String::new();
        for cells in self.pending.drain(..) {
            let last = cells.len().saturating_sub(1);
            for (at, cell) in cells.iter().enumerate() {
                text.push_str(cell);
                if at < last {
                    let width = self.widths.get(at).copied().unwrap_or_default();
                    let spaces = width.saturating_sub(cell.width()) + 2;
                    text.extend(std::iter::repeat_n(' ', spaces));
                }
            }
            text.push('\n');
        }
        text
    }

    /// Takes the remaining lines.
    pub(crate) fn finish(mut self) -> String {
        self.take()
    }
}

/// Returns the columns of a header line: their names with two spaces between them.
pub(crate) fn columns(header: &str) -> Vec<&str> {
    header.split("  ").collect()
}

/// Returns a table of rows.
pub(crate) fn of<T>(header: &str, rows: &[T], cells: impl Fn(&T) -> Vec<String>) -> String {
    let mut table = TextTable::new(&columns(header));
    for row in rows {
        table.push(cells(row));
    }
    table.finish()
}

/// Returns the lines of a table of the first rows, and of the number of further ones.
pub(crate) fn first<T>(
    header: &str,
    rows: &[T],
    shown: usize,
    cells: impl Fn(&T) -> Vec<String>,
) -> Vec<String> {
    let first = of(header, &rows[..shown.min(rows.len())], cells);
    let mut lines: Vec<String> = first.lines().map(str::to_owned).collect();
    if shown < rows.len() {
        lines.push(format!("and {} more", rows.len() - shown));
    }
    lines
}

fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.width()).max().unwrap_or(0)
    };
    (0..columns).map(width).collect()
}

/// Returns the part of a text that fits into so many columns of a terminal; wide characters take two.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut rest = columns.saturating_sub(1);
    let fits = |letter: &char| {
        let left = rest.checked_sub(letter.width().unwrap_or(0));
        rest = left.unwrap_or(0);
        left.is_some()
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_under_each_other_apart_by_two_spaces() {
        let mut table = TextTable::new(&["NAME", "ROWS"]);
        table.push(vec!["listing".to_owned(), "1".to_owned()]);
        table.push(vec!["é".to_owned(), String::new()]);
        assert_eq!(table.take(), "NAME     ROWS\nlisting  1\né        -\n");
        table.push(vec!["longer than any".to_owned(), "2".to_owned()]);
        assert_eq!(table.finish(), "longer than any  2\n");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let mut table = TextTable::new(&["NAME", "ROWS"]);
        table.push(vec!["東京都".to_owned(), "1".to_owned()]);
        table.push(vec!["e\u{301}".to_owned(), "2".to_owned()]);
        assert_eq!(
            table.finish(),
            "NAME    ROWS\n東京都  1\ne\u{301}       2\n"
        );
        for (columns, shown) in [(6, "東京都"), (5, "東京…"), (4, "東…"), (1, "…")] {
            assert_eq!(cut("東京都", columns), shown);
        }
    }
}
