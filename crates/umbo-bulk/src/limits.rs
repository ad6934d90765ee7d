//! The bounds of requests about loads and of the runner. Sizes are bytes, unless a name says otherwise.

use std::time::Duration;

/// Longest body that says something about a load: a few numbers and names of columns.
pub const LOAD_BODY_LEN_MAX: usize = 4 << 10;
/// Pieces of a part that are written together.
pub const PIECES_MAX: usize = 4;
/// Writes of a part that are under way at a time.
pub const WRITES_MAX: usize = 3;
/// Most rows of a batch: what is read, divided by shard and counted together.
pub const BATCH_ROWS_MAX: usize = 4_096;
/// Bytes of rows from which on a batch takes no more.
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// Batches of a run that are applied at a time. Of four shards each has two of them: one that it commits, and one that
/// waits.
pub const BATCHES_MAX: usize = 8;
/// Bytes of rows from which on no further batch is applied: twice the bytes of full batches, so it holds back none but those
/// with large values.
pub const OPEN_BYTES_MAX: u64 = 2 * (BATCHES_MAX * BATCH_BYTES_MAX) as u64;
/// Rows that a request to a shard has at most, unless one batch has more. It is one commit, which writes of clients to
/// the shard wait for, and a run has one request at each shard: so they wait for this many rows.
pub const REQUEST_ROWS_MAX: usize = 4_096;
/// Bytes that a request to a shard has at most, unless one batch has more.
pub const REQUEST_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a sorted run, and of the rows that are held until they are stored as one; another such buffer fills
/// meanwhile. Long enough that few runs are merged, short enough for the memory of a few loads.
pub const SORTED_RUN_LEN: usize = if cfg!(test) { 64 << 10 } else { 24 << 20 };
/// Sorted runs that are merged at a time, 3 GiB: of each a piece or two is held, 64 MiB together.
pub const SORTED_RUNS_MAX: usize = if cfg!(test) { 2 } else { 128 };
/// Rejects that are kept of a load; further ones are counted.
pub const REJECTS_MAX: u64 = umbo_api::loads::REJECTS_LISTED_MAX;
/// Bytes of a rejected row that are kept.
pub const EXCERPT_LEN_MAX: usize = 4 << 10;
/// Longest line: that of a batch request in which it is the only row.
pub const LINE_LEN_MAX: usize = umbo_types::limits::BATCH_BODY_LEN_MAX;
/// A run that has not been heard of for so long has ended, and another dispatcher continues. After two runs in a row that
/// have ended without getting on it is twice as long, and so on.
pub const LEASE: Duration = Duration::from_secs(5);
/// Runs in a row that may end without getting on and without letting the load go, as a server does that stops in order;
/// the load fails then. It is what the load holds that ends the process, and the next dispatcher would be the next to
/// end: each process had lived for its lease, up to 20 s, and ended once it had the load.
pub const FRUITLESS_RUNS_MAX: u32 = 5;
/// How often a run is heard of.
pub const BEAT: Duration = Duration::from_secs(1);
/// Loads that one dispatcher applies at a time: they share its memory, a few batches each.
pub const RUNS_MAX: usize = 4;

const _: () = assert!(LEASE.as_millis() >= 4 * BEAT.as_millis());
