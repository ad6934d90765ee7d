//! Listings: items as JSON, or as a table whose columns are named after the fields of that JSON.
//!
//! `FILE-BYTES` shows the field `file_bytes` of the item or of an object in it; `CREATED`, if there is no field
//! `created`, the instant `created_at`; `RU/S` the rate `ru_rate`. A number with a fraction has up to three digits
//! after the point, a list has commas, an object `name=value` pairs, an absent field is empty. A column that shows anything else has a function.

use serde::Serialize;
use serde_json::Value;

use super::{Format, amount, instant, rate, table, write_json, write_list};
use crate::cli_error::CliError;

/// The columns of a listing, and what fills them.
#[derive(Debug)]
pub(crate) struct Listing<T> {
    header: &'static str,
    own: Vec<OwnCell<T>>,
}

/// A column, and the function that fills it.
type OwnCell<T> = (&'static str, fn(&T) -> String);

impl<T: Serialize> Listing<T> {
    /// Begins with a header line: names of columns with two spaces between them.
    pub(crate) const fn new(header: &'static str) -> Self {
        Self {
            header,
            own: Vec::new(),
        }
    }

    /// Fills a column by a function.
    pub(crate) fn with(mut self, column: &'static str, cell: fn(&T) -> String) -> Self {
        self.own.push((column, cell));
        self
    }

    /// Writes items: as one JSON array, as a line of JSON each, or as a table.
    pub(crate) fn write(&self, format: Format, items: &[T]) -> Result<(), CliError> {
        write_list(format, items, self.header, |item| self.cells(item))
    }

    /// Writes one item: as JSON, or as a table of one line.
    pub(crate) fn write_one(&self, format: Format, item: &T) -> Result<(), CliError> {
        match format {
            Format::Table => self.write(format, std::slice::from_ref(item)),
            Format::Json | Format::Ndjson => write_json(item),
        }
    }

    /// Returns a table of items.
    pub(crate) fn table(&self, items: &[T]) -> String {
        table::of(self.header, items, |item| self.cells(item))
    }

    /// Returns the cells of items.
    pub(crate) fn rows(&self, items: &[T]) -> Vec<Vec<String>> {
        items.iter().map(|item| self.cells(item)).collect()
    }

    /// Returns the cells of an item.
    pub(crate) fn cells(&self, item: &T) -> Vec<String> {
        // An item that cannot be JSON has no fields.
        let fields = serde_json::to_value(item).unwrap_or_default();
        let cell = |column: &str| match self.own.iter().find(|(name, _)| *name == column) {
            Some((_, cell)) => cell(item),
            None => field(&fields, column),
        };
        let columns = table::columns(self.header);
        columns.into_iter().map(cell).collect()
    }
}

/// Returns the text of the field that a column shows.
fn field(item: &Value, column: &str) -> String {
    let name = column.to_lowercase().replace('-', "_");
    if let Some(name) = name.strip_suffix("/s") {
        let value = find(item, &format!("{name}_rate")).and_then(Value::as_f64);
        return value.map_or_else(String::new, rate);
    }
    if let Some(value) = find(item, &name) {
        return text(value);
    }
    find(item, &format!("{name}_at")).map_or_else(String::new, |at| instant(at.as_u64()))
}

fn find<'a>(item: &'a Value, name: &str) -> Option<&'a Value> {
    let inside = || item.as_object()?.values().find_map(|part| part.get(name));
    item.get(name).or_else(inside)
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(is_so) => if *is_so { "yes" } else { "no" }.to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(","),
        Value::Number(number) if number.is_f64() => amount(number.as_f64().unwrap_or_default()),
        Value::Object(fields) => {
            let pairs = fields.iter();
            let pairs = pairs.map(|(name, value)| format!("{name}={}", text(value)));
            pairs.collect::<Vec<_>>().join(" ")
        }
        Value::Number(number) => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Serialize)]
    struct Item {
        name: &'static str,
        file_bytes: u64,
        created_at: u64,
        shards: [u16; 2],
        ratio: f64,
        ru_rate: f64,
        reason: Option<&'static str>,
        size: Size,
    }

    #[derive(Debug, Serialize)]
    struct Size {
        rows: u64,
    }

    #[test]
    fn columns_show_the_fields_of_their_names() {
        let item = Item {
            name: "a",
            file_bytes: u64::MAX,
            created_at: 1_500,
            shards: [1, 2],
            ratio: 0.125,
            ru_rate: 12.5,
            reason: None,
            size: Size { rows: 7 },
        };
        let listing =
            Listing::new("NAME  FILE-BYTES  CREATED  SHARDS  RATIO  RU/S  REASON  ROWS  FIRST")
                .with("FIRST", |item: &Item| item.shards[0].to_string());
        let expected = [
            "a",
            "18446744073709551615",
            "1970-01-01T00:00:01.500Z",
            "1,2",
            "0.125",
            "12",
            "",
            "7",
            "1",
        ];
        assert_eq!(listing.cells(&item), expected);
    }
}
