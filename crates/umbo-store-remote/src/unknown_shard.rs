//! Errors of a node that do not name a shard.

use umbo_store::StoreError;
use umbo_types::ShardId;

/// The shard of an error that does not name one.
pub(crate) const SHARD_UNKNOWN: ShardId = ShardId(u16::MAX);

/// Adds the shard to an error that does not name one.
pub(crate) fn of_shard(error: StoreError, shard: ShardId) -> StoreError {
    match error {
        StoreError::Unavailable {
            shard: SHARD_UNKNOWN,
            reason,
            outcome,
        } => StoreError::Unavailable {
            shard,
            reason,
            outcome,
        },
        error => error,
    }
}
