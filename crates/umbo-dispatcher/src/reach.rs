//! The wait for a node that is away for a moment, as one that restarts.
//!
//! Comes before a slot is asked for, so that the shard is not taken for slow: until then nothing of
//! the request has reached the store.

use tokio::time::timeout_at;
use umbo_store::{Outcome, StoreError};
use umbo_types::{Deadline, ShardId};

use crate::failure::Failure;
use crate::patience::Patience;
use crate::pod::Dispatcher;

/// Waits while the node of a shard is away for a moment. Who has no time left is told what it is.
pub(crate) async fn reachable(
    pod: &Dispatcher,
    shard: ShardId,
    deadline: Deadline,
) -> Result<(), Failure> {
    if pod.store.is_reachable(shard) {
        return Ok(());
    }
    let patience = Patience::until(deadline, pod.clock.monotonic());
    let back = pod.store.reachable(shard);
    let told = timeout_at(patience.work.instant().into(), back).await;
    told.map_err(|_| {
        Failure::Store(StoreError::Unavailable {
            shard,
            reason: "its node is away, and was not back in time".to_owned(),
            outcome: Outcome::NotApplied,
        })
    })
}
