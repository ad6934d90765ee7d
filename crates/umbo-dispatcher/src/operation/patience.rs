//! How long a request for many rows waits for each of the shards that it asks.
//!
//! A shard that stalls must not cost the rows of the others: it is given up a little before the
//! deadline of the request, so that what the others have answered can still be told in time. A
//! request of one part has nothing to tell without it, and waits to the end.

use std::time::{Duration, Instant};

use umbo_types::Deadline;

use crate::wait::Call;

/// Longest time that is kept for telling.
const TELLING_MAX: Duration = Duration::from_millis(20);

/// Shortens the deadline of a call that is one of several parts of a request. Returns when a part
/// is given up that has not ended by itself then, which is somewhat later.
pub(crate) fn shorten(call: &mut Call, now: Instant) -> Instant {
    let left = call.entry.deadline.remaining(now);
    let telling = (left / 10).min(TELLING_MAX);
    call.entry.deadline = Deadline::after(now, left.saturating_sub(telling));
    now + left.saturating_sub(telling / 2)
}
