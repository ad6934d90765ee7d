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
use std::pin::Pin;

use umbo_telemetry::trace::Verb;

use crate::classify::Context;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::until::until;
use crate::wait::Timed;

/// Asks the store, within the deadline, and notes how long it took. The work waits for its slots.
///
/// Reads are stopped at the deadline. Writes that reached the store run to their end there; only
/// the waiting is given up, and the outcome is then unknown. The caller holds the work: it would be
/// copied from hand to hand.
pub(crate) async fn ask_store<T>(
    context: &Context,
    exchange: &mut Exchange,
    work: Pin<&mut impl Future<Output = Result<Timed<T>, Failure>>>,
) -> Result<T, Failure> {
    exchange.verb(Verb::Wait);
    exchange.begin_store();
    let Some(result) = until(context.deadline, work).await else {
        return Err(Failure::DeadlineInStore {
            shard: exchange.shard(),
            is_write: exchange.operation().is_write(),
            timeout: context.timeout,
        });
    };
    let timed = result?;
    exchange.stored(timed.service_time);
    Ok(timed.answer)
}
