//! The loads of all namespaces, listed and counted for operators.

use std::cmp::Reverse;
use std::sync::Arc;

use futures_util::future::join_all;
use umbo_api::loads::{LoadList, LoadState};

use super::own_rows::OwnRows;
use super::report;
use crate::dispatcher::Dispatcher;

/// Most loads that are listed together: each costs a read of the store.
const LOADS_LISTED_MAX: usize = 256;

/// Lists the loads of all namespaces, at most 256 of them: the open ones, then the latest of the ended
/// ones. The queues of the shards count the reads for `caller`, the hash of a caller.
pub async fn list_loads(dispatcher: &Arc<Dispatcher>, caller: u64) -> LoadList {
    let mut loads = dispatcher.control.loads.all();
    loads.sort_by_key(|(_, load)| (load.ended_at.is_some(), Reverse(load.ended_at)));
    let left_out = loads.len().saturating_sub(LOADS_LISTED_MAX) as u64;
    loads.truncate(LOADS_LISTED_MAX);
    loads.sort_by(|(one, _), (other, _)| one.cmp(other));
    let rows = OwnRows::of_operator(dispatcher, caller);
    let waits = &dispatcher.load_waits;
    let told = loads
        .iter()
        .map(|(id, load)| report::describe_for_list(waits, &rows, id, load));
    LoadList {
        loads: join_all(told).await,
        left_out,
    }
}

/// Counts the loads by their states; every state is there.
pub fn loads_by_state(dispatcher: &Dispatcher) -> Vec<(LoadState, u64)> {
    let loads = dispatcher.control.loads.all();
    let of = |state| loads.iter().filter(|(_, load)| load.state == state).count() as u64;
    LoadState::ALL.map(|state| (state, of(state))).to_vec()
}

/// Returns how many loads wait in this dispatcher for longer than ten minutes, without getting on.
pub fn stuck_loads(dispatcher: &Dispatcher) -> u64 {
    let now = dispatcher.clock.monotonic();
    dispatcher.load_waits.stuck(now)
}
