//! A follower: a reader that waits for the read of another one.
//!
//! Dropping it leaves the flight; an elected follower that leaves passes the lead on, so that an
//! in-flight read always has a task that ends it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::fetched::{Fetched, FlightError, Payload};
use super::flight::{Flight, FlightProgress, LeaderToken};
use super::leader::Leader;
use super::shared_reads::SharedReads;

/// How the wait of a follower ends.
pub(crate) enum Followed<V: Payload, E: Payload> {
    /// With the result of the flight.
    Ended(Result<Fetched<V>, FlightError<E>>),
    /// With the lead.
    Elected(Leader<V, E>),
}

/// A place in a flight.
pub(crate) struct Follower<V: Payload, E: Payload> {
    reads: Arc<SharedReads<V, E>>,
    flight: Arc<Flight<V, E>>,
    /// The leader that was followed at first.
    pub(crate) followed: LeaderToken,
    id: u64,
    is_over: bool,
}

impl<V: Payload, E: Payload> Follower<V, E> {
    pub(crate) fn new(
        reads: &Arc<SharedReads<V, E>>,
        flight: Arc<Flight<V, E>>,
        followed: LeaderToken,
        id: u64,
    ) -> Self {
        Self {
            reads: Arc::clone(reads),
            flight,
            followed,
            id,
            is_over: false,
        }
    }
}

impl<V: Payload, E: Payload> Future for Follower<V, E> {
    type Output = Followed<V, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        match this.flight.progress(this.id, context.waker()) {
            FlightProgress::Waiting => Poll::Pending,
            FlightProgress::Ended(result) => {
                this.is_over = true;
                Poll::Ready(Followed::Ended(result))
            }
            FlightProgress::Elected(attempt) => {
                this.is_over = true;
                let token = this.reads.in_flight.elected(&this.followed, attempt);
                Poll::Ready(Followed::Elected(Leader::new(&this.reads, token)))
            }
        }
    }
}

impl<V: Payload, E: Payload> Drop for Follower<V, E> {
    fn drop(&mut self) {
        if !self.is_over && self.flight.leave(self.id) {
            self.reads.in_flight.pass_on(&self.followed);
        }
    }
}
