//! The time of day of the home, which decides when records begin and end. So a token or an entry of a list ends at the
//! same instant for all dispatchers, even if the clock of the dispatcher that made it is wrong.

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
