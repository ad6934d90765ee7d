//! The time of day by which records begin and end: that of their home. So the end of a token or of an entry of a list is
//! the same instant for all dispatchers, however wrong the clock of the one that made it is.

use std::sync::Arc;
use std::time::Instant;

use umbo_store::Store;
use umbo_types::{Clock, Timestamp};

/// The clock of this process, with the time of day of the home.
#[derive(Debug)]
pub(crate) struct HomeClock {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) own: Arc<dyn Clock>,
}

impl Clock for HomeClock {
    fn wall(&self) -> Timestamp {
        self.store.time_at(self.store.home().shard, self.own.wall())
    }

    fn monotonic(&self) -> Instant {
        self.own.monotonic()
    }
}
