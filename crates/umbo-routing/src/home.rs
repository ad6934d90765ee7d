//! The home of Umbo's own records.

use umbo_types::ShardId;

/// The one shard where Umbo's own records are changed. All others hold copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordsHome {
    /// The shard.
    pub shard: ShardId,
    /// Number of the home, from 1. Promoting another shard begins the next epoch; records of a home of an
    /// earlier epoch are no longer valid.
    pub epoch: u64,
}

impl Default for RecordsHome {
    /// Returns the home of a store or cluster that has never changed its home.
    fn default() -> Self {
        Self {
            shard: ShardId(0),
            epoch: 1,
        }
    }
}
