//! One file per operation of the data plane: locate, fetch, and the answer as a type.

pub(crate) mod batch_write;
pub(crate) mod body;
pub(crate) mod delete_range;
pub(crate) mod explain;
pub(crate) mod get;
pub(crate) mod multi_get;
pub(crate) mod range;
pub(crate) mod scan;
pub(crate) mod shares;
pub(crate) mod usage;
pub(crate) mod write;

use std::future::Future;
use std::pin::pin;
use std::time::Instant;

use futures_util::future::poll_immediate;
use umbo_telemetry::trace::Verb;

use crate::classify::Context;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::pod::Dispatcher;

/// Asks the store, within the deadline, and notes how long it took.
///
/// Reads are stopped at the deadline. Writes that reached the store run to their end there; only
/// the waiting is given up, and the outcome is then unknown.
pub(crate) async fn ask_store<T>(
    pod: &Dispatcher,
    context: &Context,
    exchange: &mut Exchange,
    work: impl Future<Output = T>,
) -> Result<T, Failure> {
    exchange.verb(Verb::Fetch);
    let asked: Instant = pod.clock.monotonic();
    if context.deadline.has_passed(asked) {
        return Err(Failure::DeadlineBeforeStore {
            timeout: context.timeout,
        });
    }
    exchange.begin_store();
    let mut work = pin!(work);
    // A store in this process answers a read at once: no timer is made for that.
    let result = match poll_immediate(work.as_mut()).await {
        Some(answer) => Ok(answer),
        None => tokio::time::timeout_at(context.deadline.instant().into(), work).await,
    };
    exchange.stored(pod.clock.monotonic() - asked);
    exchange.verb(Verb::Settle);
    result.map_err(|_| Failure::DeadlineInStore {
        is_write: exchange.operation().is_write(),
        timeout: context.timeout,
    })
}
