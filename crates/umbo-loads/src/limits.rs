//! The bounds of loads. Sizes are bytes, unless a name says otherwise.

use std::time::Duration;

/// Loads of a namespace that have not ended. More would only wait for one another; each keeps its parts.
pub const OPEN_LOADS_MAX: usize = 8;
/// Imports of a namespace that have not ended, in addition to its loads: more than a person starts by hand, few enough
/// that their records stay small.
pub const OPEN_IMPORTS_MAX: usize = 32;
/// Ended imports of a namespace that are remembered, in addition to its loads: each for who has started it, and a few to
/// look back on.
pub const ENDED_IMPORTS_MAX: usize = 16;
/// Ended loads of a namespace that are remembered: a fortnight of nightly ones.
pub const ENDED_LOADS_MAX: usize = 14;
/// How long an ended load is remembered.
pub const ENDED_KEPT: Duration = Duration::from_hours(14 * 24);
/// How long a load may take parts. One that is not sealed by then fails, so that its bytes are reclaimed.
pub const UPLOAD_TIME_MAX: Duration = Duration::from_hours(7 * 24);
/// How long the shards may take to confirm a load of mode replace, whose creation is answered then: far longer than its
/// dispatcher waits, which may have gone away meanwhile.
pub const CONFIRM_TIME_MAX: Duration = Duration::from_mins(2);
/// Longest row of a part's bytes. One read returns one of them, and with its key it just fits the 256 KiB that an engine
/// gives it, as a chunk of a large value does: one of 256 KiB would take 512.
pub const PIECE_LEN: u64 = umbo_types::limits::LARGE_CHUNK_LEN as u64;
/// Bytes of a part that are in one partition, about 8 MiB; the next ones are in another, so that shards share the work.
pub const SEGMENT_LEN: u64 = 32 * PIECE_LEN;
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
pub const REJECTS_MAX: u64 = 1_000;
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
/// Longest reason of a failure or a wait that is kept.
pub const REASON_LEN_MAX: usize = 512;

const _: () = assert!(SEGMENT_LEN.is_multiple_of(PIECE_LEN));
const _: () = assert!(LEASE.as_millis() >= 4 * BEAT.as_millis());
