//! What the price should be, and the server it is tried on.

/// Request units for a millisecond of the store.
pub(super) const MILLISECOND: f64 = 0.1;
/// Settings of a cache that holds few of the pages.
pub(super) const SETTINGS: &str = "[store]\ncache = \"1MiB\"\n";

/// Returns the price of reads without their time: their number, the rows and bytes that they read.
pub(super) fn fixed_units(reads: f64, rows: f64, bytes: f64) -> f64 {
    reads + 0.05 * rows + bytes / 4_096.0
}
