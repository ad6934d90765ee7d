//! The rows of the datasets: which of them clients write, and which they only read.

use std::fmt::Write as _;

use serde_json::json;

/// Partitions of keys that no client writes, and their rows.
pub(super) const STILL_PARTITIONS: usize = 8;
pub(super) const STILL_ROWS: usize = 40;
/// Writers, a partition each, and its rows.
pub(super) const WRITERS: usize = 3;
pub(super) const WRITTEN_ROWS: usize = 30;
pub(super) const NAMESPACE: &str = "swapped";

/// Returns the key of a row that no client writes.
pub(super) fn still_key(partition: usize, row: usize) -> (String, String) {
    (format!("still-{partition}"), format!("{row:03}"))
}

/// Returns the key of a row of a writer.
pub(super) fn written_key(writer: usize, row: usize) -> (String, String) {
    (format!("written-{writer}"), format!("{row:03}"))
}

/// Returns all rows of a dataset.
pub(super) fn rows_of(dataset: u64) -> String {
    let still =
        (0..STILL_PARTITIONS).flat_map(|at| (0..STILL_ROWS).map(move |row| still_key(at, row)));
    let written =
        (0..WRITERS).flat_map(|at| (0..WRITTEN_ROWS).map(move |row| written_key(at, row)));
    let mut lines = String::new();
    for (pk, sk) in still.chain(written) {
        let row = json!({"pk": pk, "sk": sk, "v": dataset.to_string()});
        writeln!(lines, "{row}").expect("a string takes every write");
    }
    lines
}
