//! The leader of a read, and the read it makes.
//!
//! Both end on drop, or go on without the request that drops them. A leader that is dropped before its read has
//! completed, because it panicked or its task was ended, counts as failed. A read that is dropped goes on in a task,
//! because others may wait for it.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::fetched::{Fetched, FlightError, Payload};
use super::flight::LeaderToken;
use super::shared_reads::{SharedReads, StoreRead};

/// The duty to end an in-flight read.
pub(crate) struct Leader<V: Payload, E: Payload> {
    reads: Arc<SharedReads<V, E>>,
    pub(crate) token: LeaderToken,
    is_over: bool,
}

impl<V: Payload, E: Payload> Leader<V, E> {
    pub(crate) fn new(reads: &Arc<SharedReads<V, E>>, token: LeaderToken) -> Self {
        Self {
            reads: Arc::clone(reads),
            token,
            is_over: false,
        }
    }

    /// Ends the read with its result.
    pub(crate) fn end(mut self, result: &Result<Fetched<V>, E>) {
        self.is_over = true;
        match result {
            Ok(fetched) => self.reads.complete(&self.token, fetched),
            Err(error) => {
                let error = FlightError::Failed(error.clone());
                self.reads.in_flight.fail(&self.token, error);
            }
        }
    }

    /// Makes the read in a separate task.
    pub(crate) fn spawn(self, read: StoreRead<V, E>) {
        let reads = Arc::clone(&self.reads);
        (reads.spawner)(Box::pin(async move {
            let result = read.await;
            self.end(&result);
        }));
    }
}

impl<V: Payload, E: Payload> Drop for Leader<V, E> {
    fn drop(&mut self) {
        if !self.is_over {
            self.reads
                .in_flight
                .fail(&self.token, FlightError::LeaderLost);
        }
    }
}

/// A read of the store, made by the request that asked for it, so that no other task is woken. If
/// the request leaves, the read goes on in a task.
pub(crate) struct LeaderRead<V: Payload, E: Payload> {
    running: Option<(Leader<V, E>, StoreRead<V, E>)>,
}

impl<V: Payload, E: Payload> LeaderRead<V, E> {
    pub(crate) fn new(leader: Leader<V, E>, read: StoreRead<V, E>) -> Self {
        Self {
            running: Some((leader, read)),
        }
    }
}

impl<V: Payload, E: Payload> Future for LeaderRead<V, E> {
    type Output = Result<Fetched<V>, FlightError<E>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Some((_, read)) = &mut this.running else {
            return Poll::Ready(Err(FlightError::LeaderLost));
        };
        // A read that panics has failed like any other, for its own client and for the followers.
        let polled = catch_unwind(AssertUnwindSafe(|| read.as_mut().poll(context)));
        if matches!(polled, Ok(Poll::Pending)) {
            return Poll::Pending;
        }
        match (this.running.take(), polled) {
            (Some((leader, _)), Ok(Poll::Ready(result))) => {
                leader.end(&result);
                Poll::Ready(result.map_err(FlightError::Failed))
            }
            // Dropping the leader tells the flight.
            _ => Poll::Ready(Err(FlightError::LeaderLost)),
        }
    }
}

impl<V: Payload, E: Payload> Drop for LeaderRead<V, E> {
    fn drop(&mut self) {
        if let Some((leader, read)) = self.running.take() {
            leader.spawn(read);
        }
    }
}
