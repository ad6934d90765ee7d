//! The parts of loads: how many rows they have, with which keys, and the rows that a load makes of them.

use std::collections::BTreeMap;

use crate::limits::BATCH_ROWS_MAX;

pub(super) const PARTS: u16 = 3;
/// Of each part: two batches, the second of them short.
pub(super) const PART_ROWS: u32 = BATCH_ROWS_MAX as u32 + 100;
/// Lines of each part that are no rows: the last ones.
pub(super) const BAD_LINES: u32 = 3;
/// Keys come again in the next part, and now and then within one.
pub(super) const KEYS: u32 = 5_000;

pub(super) fn scattered(part: u16, row: u32) -> u32 {
    (row * 7 + u32::from(part) * 1_000) % KEYS
}

/// Of as many digits each, so that their texts are in order too.
pub(super) fn in_order(part: u16, row: u32) -> u32 {
    1_000 + (u32::from(part) * PART_ROWS + row) / 4
}

/// In order within a part, from the beginning in each.
pub(super) fn in_order_by_part(part: u16, row: u32) -> u32 {
    in_order(0, row) + u32::from(part)
}

/// The last row with a key, in the order of parts and rows.
pub(super) fn expected() -> BTreeMap<u32, String> {
    expected_of(scattered)
}

pub(super) fn expected_of(key_of: fn(u16, u32) -> u32) -> BTreeMap<u32, String> {
    let parts = (0..PARTS).flat_map(|part| (0..PART_ROWS).map(move |row| (part, row)));
    parts
        .map(|(part, row)| (key_of(part, row), format!("{part}-{row}")))
        .collect()
}
