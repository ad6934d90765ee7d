//! Bounds on commits, and the intervals of a committer.

use std::time::Duration;

use crate::queue::WorkSize;

/// Most work in one commit.
pub(super) const COMMIT_MAX: WorkSize = WorkSize {
    mutations: 8_192,
    bytes: 8 << 20,
};
/// Most rows of a commit that does not give way while it is written: one row from each of 64 clients.
pub(super) const SHORT_COMMIT_ROWS_MAX: u64 = 64;
/// If a commit puts rows one by one, it gives way after this number of rows, instead of
/// [`umbo_store::GIVES_WAY_EVERY`].
pub(super) const PUT_GIVES_WAY_EVERY: usize = 16;
/// Most rows that a commit on a full disk removes: the pages that it copies fit into the smallest reserve.
pub(super) const ROWS_MAX_WITHOUT_ROOM: u32 = 64;
/// Rows of a memtable that are applied together. With four times as many, a put to a table of a million rows takes 5 % less
/// of the processor; but work that the log does not take waits for an apply four times as long, and a small file has half
/// as many bytes again, for pages that are free only later.
pub(super) const APPLY_ROWS: usize = 1_024;
/// Bytes of keys and rows of a memtable that are applied together.
pub(super) const APPLY_BYTES: usize = 4 << 20;
/// Most rows of a memtable that waits for an apply to end.
pub(super) const MEMTABLE_ROWS_MAX: usize = 16_384;
/// Most bytes of such a memtable.
pub(super) const MEMTABLE_BYTES_MAX: usize = 8 << 20;
/// How long an answer is held back for each row of its write while a memtable is full: some thousand times what an
/// apply takes for a row, so that 64 callers of one row each are slowed in time, too.
pub(super) const ROW_HELD_MAX: Duration = Duration::from_millis(16);
/// Longest time that an asynchronous write stays off the disk.
pub(super) const FLUSH_AFTER: Duration = Duration::from_millis(50);
/// How often an idle committer checks for rows that have expired.
pub(super) const IDLE_WAKE: Duration = Duration::from_secs(1);
/// How often an idle committer tries again to open a file that has failed.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(10);
