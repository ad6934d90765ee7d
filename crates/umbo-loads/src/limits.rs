//! The bounds of loads and of their rows. Sizes are bytes, unless a name says otherwise.

use std::time::Duration;

/// Loads of a namespace that have not ended. More loads would only wait for one another, and each keeps its parts.
pub const OPEN_LOADS_MAX: usize = 8;
/// Imports of a namespace that have not ended, in addition to its loads: more than a person starts by hand, few enough
/// that their records stay small.
pub const OPEN_IMPORTS_MAX: usize = 32;
/// Ended imports of a namespace that are remembered, in addition to its loads: the results for those who started them,
/// and a few to look back on.
pub const ENDED_IMPORTS_MAX: usize = 16;
/// Ended loads of a namespace that are remembered: a fortnight of nightly ones.
pub const ENDED_LOADS_MAX: usize = 14;
/// How long an ended load is remembered.
pub const ENDED_KEPT: Duration = Duration::from_hours(14 * 24);
/// How long a load may take parts. A load that is not sealed by then fails, so that its bytes are reclaimed.
pub const UPLOAD_TIME_MAX: Duration = Duration::from_hours(7 * 24);
/// How long the shards may take to confirm a load of mode replace; its creation is answered then. This is far longer
/// than its dispatcher waits, which may have gone away meanwhile.
pub const CONFIRM_TIME_MAX: Duration = Duration::from_mins(2);
/// Longest row of a part's bytes. One read returns one row. With its key a row just fits the 256 KiB that an engine
/// gives it, as a chunk of a large value does: a row of 256 KiB would take 512.
pub const PIECE_LEN: u64 = umbo_types::limits::LARGE_CHUNK_LEN as u64;
/// Bytes of a part in one partition, about 8 MiB. The next ones are in another partition, so that shards share the
/// work.
pub const SEGMENT_LEN: u64 = 32 * PIECE_LEN;
/// Longest reason of a failure or a wait that is kept.
pub const REASON_LEN_MAX: usize = 512;

const _: () = assert!(SEGMENT_LEN.is_multiple_of(PIECE_LEN));
