//! The bounds of requests about loads and of the runner. Sizes are bytes, unless a name says otherwise.

use std::time::Duration;

/// Longest body of a request that describes a load: a few numbers and names of columns.
pub const LOAD_BODY_LEN_MAX: usize = 4 << 10;
/// Pieces of a part that are written together.
pub const PIECES_MAX: usize = 4;
/// Writes of a part that are under way at a time.
pub const WRITES_MAX: usize = 3;
/// Most rows of a batch, whose rows are read, divided by shard and counted together.
pub const BATCH_ROWS_MAX: usize = 4_096;
/// Bytes of rows at which a batch is full.
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// Batches of a run that are applied at a time. With four shards, each has two of them: one being committed, and one
/// waiting.
pub const BATCHES_MAX: usize = 8;
/// Bytes of rows at which no further batch is applied. This is twice the bytes of full batches, so it holds back only
/// batches with large values.
pub const OPEN_BYTES_MAX: u64 = 2 * (BATCHES_MAX * BATCH_BYTES_MAX) as u64;
/// Most rows of a request to a shard, unless one batch has more. The request is one commit. Writes of clients to the
/// shard wait for it, and a run has only one request at each shard at a time, so they wait for this many rows.
pub const REQUEST_ROWS_MAX: usize = 4_096;
/// Most bytes of a request to a shard, unless one batch has more.
pub const REQUEST_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a sorted run, and of the rows that are held until they are stored as one. Another buffer of this size fills
/// meanwhile. Long enough that few runs are merged, short enough for the memory of a few loads.
pub const SORTED_RUN_LEN: usize = if cfg!(test) { 64 << 10 } else { 24 << 20 };
/// Sorted runs that are merged at a time: 3 GiB. One or two pieces of each are held, 64 MiB together.
pub const SORTED_RUNS_MAX: usize = if cfg!(test) { 2 } else { 128 };
/// Rejects that are kept of a load; further ones are counted.
pub const REJECTS_MAX: u64 = umbo_api::loads::REJECTS_LISTED_MAX;
/// Bytes of a rejected row that are kept.
pub const EXCERPT_LEN_MAX: usize = 4 << 10;
/// Longest line: the length of a batch request with only one row.
pub const LINE_LEN_MAX: usize = umbo_types::limits::BATCH_BODY_LEN_MAX;
/// A run that has shown no sign of life for this time has ended, and another dispatcher continues. The time doubles
/// with each further run in a row that has ended without progress, from the second on.
pub const LEASE: Duration = Duration::from_secs(5);
/// Runs in a row that may end without progress and without letting the load go. (A server that stops in order lets its
/// loads go.) Then the load fails: its rows probably end the process, and would end the next dispatcher too. Each of
/// these processes had run for its lease, up to 20 s, and ended once it had the load.
pub const FRUITLESS_RUNS_MAX: u32 = 5;
/// How often a run shows that it goes on.
pub const BEAT: Duration = Duration::from_secs(1);
/// Loads that one dispatcher applies at a time: they share its memory, a few batches each.
pub const RUNS_MAX: usize = 4;

const _: () = assert!(LEASE.as_millis() >= 4 * BEAT.as_millis());
