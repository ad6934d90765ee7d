//! Single-flight: one read of the store for all readers that want the same at the same time.
//!
//! Owns the protocol of leader and follower. The *leader* asks the store, the *followers* wait for its result. The
//! request that asked for the leader's read polls it, so that no other task is woken. If its client leaves, the read
//! goes on in a task, so that no client can cancel a read that others wait for. A leader that fails, panics or is
//! ended with its task tells its followers; each of them then reads again, with others or alone.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::fetched::{AnswerSource, Fetched, FlightError, Payload, Served};
use super::in_flight::{FlightRole, ReadContext};
use super::key::KeyRef;
use super::shared_reads::{SharedReads, StoreRead};

impl<V: Payload> SharedReads<V> {
    /// Follows the in-flight read of the key, or leads one.
    ///
    /// Dropping the future gives up the wait and nothing else.
    pub(crate) async fn read<E: 'static>(
        self: &Arc<Self>,
        key: &KeyRef<'_>,
        is_hot: bool,
        context: &ReadContext,
        fetch: impl FnOnce() -> StoreRead<V, E>,
    ) -> Result<Served<V>, FlightError<E>> {
        let role = self.join_or_lead(key, is_hot, context);
        match role.ok_or(FlightError::Full)? {
            FlightRole::Leader(id) => {
                let leader = Leader::new(self, key, id);
                let running = Some((leader, fetch()));
                let fetched = LeaderRead { running }.await?;
                Ok(Served::new(fetched, AnswerSource::Leader, context.now))
            }
            FlightRole::Follower(mut results, read_at) => {
                let Ok(held) = results.recv().await else {
                    self.in_flight.stripe(key.hash()).totals.orphans += 1;
                    return Err(FlightError::LeaderFailed);
                };
                let fetched = held.fetched.clone();
                Ok(Served::new(fetched, AnswerSource::Follower, read_at))
            }
        }
    }

    /// Reads in a separate task, unless the key is being read already.
    pub(crate) fn refresh<E: 'static>(
        self: &Arc<Self>,
        key: &KeyRef<'_>,
        context: &ReadContext,
        fetch: impl FnOnce() -> StoreRead<V, E>,
    ) {
        if let Some(FlightRole::Leader(id)) = self.join_or_lead(key, true, context) {
            let leader = Leader::new(self, key, id);
            leader.spawn(fetch());
        }
    }
}

/// The duty to end an in-flight read. Dropping it before its end tells the followers that the leader has failed.
struct Leader<V: Payload> {
    reads: Arc<SharedReads<V>>,
    hash: u64,
    id: u64,
    is_over: bool,
}

impl<V: Payload> Leader<V> {
    fn new(reads: &Arc<SharedReads<V>>, key: &KeyRef<'_>, id: u64) -> Self {
        Self {
            reads: Arc::clone(reads),
            hash: key.hash(),
            id,
            is_over: false,
        }
    }

    /// Ends the read with its result.
    fn complete(mut self, fetched: &Fetched<V>) {
        self.is_over = true;
        self.reads.complete(self.hash, self.id, fetched);
    }

    /// Makes the read in a separate task.
    fn spawn<E: 'static>(self, read: StoreRead<V, E>) {
        let reads = Arc::clone(&self.reads);
        (reads.spawner)(Box::pin(async move {
            if let Ok(fetched) = read.await {
                self.complete(&fetched);
            }
        }));
    }
}

impl<V: Payload> Drop for Leader<V> {
    fn drop(&mut self) {
        if !self.is_over {
            let read = self.reads.in_flight.stripe(self.hash).remove(self.id);
            // Outside of the lock: this wakes the followers.
            drop(read);
        }
    }
}

/// The read of a leader, polled by its request. If the request leaves, the read goes on in a task.
struct LeaderRead<V: Payload, E: 'static> {
    /// `None` once the read is over.
    running: Option<(Leader<V>, StoreRead<V, E>)>,
}

impl<V: Payload, E> Future for LeaderRead<V, E> {
    type Output = Result<Fetched<V>, FlightError<E>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some((_, read)) = &mut self.running else {
            return Poll::Ready(Err(FlightError::Panicked));
        };
        // A read that panics has failed like any other, for its own client and for the followers.
        let polled = catch_unwind(AssertUnwindSafe(|| read.as_mut().poll(context)));
        if matches!(polled, Ok(Poll::Pending)) {
            return Poll::Pending;
        }
        match (self.running.take(), polled) {
            (Some((leader, _)), Ok(Poll::Ready(Ok(fetched)))) => {
                leader.complete(&fetched);
                Poll::Ready(Ok(fetched))
            }
            (_, Ok(Poll::Ready(Err(error)))) => Poll::Ready(Err(FlightError::Failed(error))),
            _ => Poll::Ready(Err(FlightError::Panicked)),
        }
    }
}

impl<V: Payload, E> Drop for LeaderRead<V, E> {
    fn drop(&mut self) {
        if let Some((leader, read)) = self.running.take() {
            leader.spawn(read);
        }
    }
}
