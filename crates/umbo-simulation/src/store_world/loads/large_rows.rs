//! Which rows have large values, and what their bytes are.

use umbo_types::limits::VALUE_LEN_MAX;

use super::datasets::RowId;

/// The partition of large values that clients put. No load has rows of it.
pub(super) const PARTITION: u64 = 100;
/// The partition of large values of loads, after all others of loads.
pub(super) const LOADED_PARTITION: u64 = 9;
/// Rows of it.
pub(super) const LOADED_ROWS: u64 = 2;

/// Returns whether the value of a row is a large one.
pub(super) const fn is_large(row: RowId) -> bool {
    row.0 == PARTITION || row.0 == LOADED_PARTITION
}

/// Returns the bytes that are put for a large value: one more than fit into a row.
pub(super) fn long_bytes(value: &str) -> Vec<u8> {
    let mut bytes = format!("{value}:").into_bytes();
    bytes.resize(VALUE_LEN_MAX + 1, b'.');
    bytes
}
