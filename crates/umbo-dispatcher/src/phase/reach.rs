//! The wait for a node that is away for a moment, for example to restart.
//!
//! Comes before a permit is asked for, so that the shard is not taken for slow: until then nothing of
//! the request has reached the store.

use tokio::time::timeout_at;
use umbo_http::RequestError;
use umbo_store::{Outcome, StoreError};
use umbo_types::{Deadline, ShardId};

use crate::deadline_budget::DeadlineBudget;
use crate::dispatcher::Dispatcher;

/// Waits while the node of a shard is away for a moment. When the time of the request is over, the error names
/// the state of the node.
pub(crate) async fn wait_until_reachable(
    dispatcher: &Dispatcher,
    shard: ShardId,
    deadline: Deadline,
) -> Result<(), RequestError> {
    if dispatcher.store.is_reachable(shard) {
        return Ok(());
    }
    // Boxed, because the wait is rare and makes the future large.
    Box::pin(wait(dispatcher, shard, deadline)).await
}

async fn wait(
    dispatcher: &Dispatcher,
    shard: ShardId,
    deadline: Deadline,
) -> Result<(), RequestError> {
    let budget = DeadlineBudget::until(deadline, dispatcher.clock.monotonic());
    let back = dispatcher.store.reachable(shard);
    let told = timeout_at(budget.work.instant().into(), back).await;
    told.map_err(|_| {
        RequestError::Store(StoreError::Unavailable {
            shard,
            reason: "its node is not connected, and did not come back in time".to_owned(),
            outcome: Outcome::NotApplied,
        })
    })
}
