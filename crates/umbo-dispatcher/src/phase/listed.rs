//! The wait for the store, which an operator can see and end once it takes long.

use std::pin::{Pin, pin};

use futures_util::future::{Either, select};
use umbo_http::RequestError;
use umbo_telemetry::trace::Phase;
use umbo_types::Deadline;

use crate::phase::locate::Located;
use crate::running::LISTED_AFTER;
use crate::until::until;

/// Waits for work of the store until the deadline of the request. Fails if it passes before, or if an operator ends the
/// request.
///
/// Work that is over at the first poll, such as a read of a store in this process, costs nothing more. A write that
/// has reached the store is not undone: as with the deadline, only the wait for it ends.
pub(crate) async fn until_killed<T>(
    located: &mut Located<'_>,
    mut work: Pin<&mut impl Future<Output = Result<T, RequestError>>>,
) -> Result<T, RequestError> {
    let deadline = located.context().deadline;
    let soon = Deadline::after(located.log.asks(), LISTED_AFTER);
    let first = if soon.instant() < deadline.instant() {
        soon
    } else {
        deadline
    };
    match until(first, work.as_mut()).await {
        Some(done) => done,
        None if first == deadline => Err(late(located)),
        // On the heap: few requests come here, and all have the future.
        None => Box::pin(until_told(located, deadline, work)).await,
    }
}

async fn until_told<T>(
    located: &Located<'_>,
    deadline: Deadline,
    work: Pin<&mut impl Future<Output = Result<T, RequestError>>>,
) -> Result<T, RequestError> {
    let listed = located.log.list(Phase::Wait, located.charge.charged());
    let told = pin!(listed.killed());
    match until(deadline, pin!(select(work, told))).await {
        Some(Either::Left((done, _))) => done,
        Some(Either::Right((killed, _))) => Err(killed),
        None => Err(late(located)),
    }
}

fn late(located: &Located<'_>) -> RequestError {
    RequestError::DeadlineInStore {
        shard: located.shard(),
        is_write: located.identified().operation.is_write(),
        timeout: located.context().timeout,
    }
}
