//! The clock of the system: the only place of the server where time is read.

use std::time::{Instant, SystemTime};

use umbo_types::{Clock, Timestamp};

/// The system's clocks.
#[derive(Debug)]
pub(super) struct SystemClock;

impl Clock for SystemClock {
    fn wall(&self) -> Timestamp {
        // A clock set before 1970 reads as 1970; versions grow all the same.
        let since = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }

    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}
