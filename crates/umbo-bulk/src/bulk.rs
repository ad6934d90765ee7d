//! The plane of bulk uploads of a process: serves its requests, runs its loads, and lists them for operators.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use http::Response;
use http::request::Parts;
use umbo_api::loads::{LoadList, LoadState};
use umbo_dispatcher::plane::OwnRows;
use umbo_dispatcher::{Dispatcher, LowPriority};
use umbo_edge::body::{ArrivingBody, ReplyBody};
use umbo_edge::memory::ConnectionAnswers;

use crate::request::continuations::Continuations;
use crate::request::{self, report};
use crate::runner::run_loads;
use crate::waits::LoadWaits;
use crate::wire::BulkRoute;

/// Most loads that are listed together: each costs a read of the store.
const LOADS_LISTED_MAX: usize = 256;

/// The plane of bulk uploads, above a dispatcher.
#[derive(Debug)]
pub struct Bulk {
    dispatcher: Arc<Dispatcher>,
    /// Shared with the runner.
    waits: Arc<LoadWaits>,
    continuations: Continuations,
}

impl Bulk {
    /// Makes the plane of a dispatcher, which has one.
    pub fn new(dispatcher: &Arc<Dispatcher>) -> Arc<Self> {
        Arc::new(Self {
            dispatcher: Arc::clone(dispatcher),
            waits: Arc::default(),
            continuations: Continuations::default(),
        })
    }

    /// Returns the dispatcher below.
    pub const fn dispatcher(&self) -> &Arc<Dispatcher> {
        &self.dispatcher
    }

    /// Serves a request about loads or versions.
    pub async fn serve<B: ArrivingBody>(
        &self,
        route: BulkRoute<'_>,
        head: &Parts,
        body: &mut B,
        answers: Arc<ConnectionAnswers>,
        started: Instant,
    ) -> Response<ReplyBody> {
        let parts = (&*self.waits, &self.continuations);
        request::serve(
            &self.dispatcher,
            parts,
            route,
            (head, body),
            (answers, started),
        )
        .await
    }

    /// Applies loads on these threads until the dispatcher drains and its runs have let their loads go. To be run once.
    pub async fn run(&self, threads: &LowPriority) {
        let (dispatcher, waits) = (Arc::clone(&self.dispatcher), Arc::clone(&self.waits));
        threads.run(run_loads(dispatcher, waits)).await;
    }

    /// Lists the loads of all namespaces, at most 256 of them: the open ones, then the latest of the ended
    /// ones. The queues of the shards count the reads for `caller`, the hash of a caller.
    pub async fn list(&self, caller: u64) -> LoadList {
        let mut loads = self.dispatcher.control.loads.all();
        loads.sort_by_key(|(_, load)| (load.ended_at.is_some(), Reverse(load.ended_at)));
        let left_out = loads.len().saturating_sub(LOADS_LISTED_MAX) as u64;
        loads.truncate(LOADS_LISTED_MAX);
        loads.sort_by(|(one, _), (other, _)| one.cmp(other));
        let rows = OwnRows::of_operator(&self.dispatcher, caller);
        let told = loads
            .iter()
            .map(|(id, load)| report::describe_for_list(&self.waits, &rows, id, load));
        LoadList {
            loads: join_all(told).await,
            left_out,
        }
    }

    /// Counts the loads by their states; every state is there.
    pub fn count_by_state(&self) -> Vec<(LoadState, u64)> {
        let loads = self.dispatcher.control.loads.all();
        let of = |state| loads.iter().filter(|(_, load)| load.state == state).count() as u64;
        LoadState::ALL.map(|state| (state, of(state))).to_vec()
    }

    /// Returns how many loads wait in this process for longer than ten minutes, without getting on.
    pub fn stuck(&self) -> u64 {
        self.waits.stuck(self.dispatcher.clock.monotonic())
    }
}
