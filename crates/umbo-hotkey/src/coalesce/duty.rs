//! Duties that no exit forgets: to lead a flight, and to wait for one.
//!
//! Both are undone on drop. A leader that is dropped before it has landed its flight, because it
//! panicked or its task was ended, counts as failed; an elected follower that leaves passes the
//! duty on. So a flight always has somebody who will end it, and nobody waits for nothing.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::fill::{Fill, Payload};
use super::flight::{Failure, Flight, Lead, Progress};
use super::reads::SharedReads;

/// The duty to bring a flight to its end. Dropping it unfulfilled, in a panic or because the task
/// was ended, fails the leader, so that somebody else takes its place.
pub(crate) struct Leading<V: Payload, E: Payload> {
    reads: Arc<SharedReads<V, E>>,
    pub(crate) flight: Arc<Flight<V, E>>,
    pub(crate) leader: u8,
    is_over: bool,
}

impl<V: Payload, E: Payload> Leading<V, E> {
    pub(crate) fn new(
        reads: &Arc<SharedReads<V, E>>,
        flight: Arc<Flight<V, E>>,
        leader: u8,
    ) -> Self {
        Self {
            reads: Arc::clone(reads),
            flight,
            leader,
            is_over: false,
        }
    }

    pub(crate) fn lead(&self) -> Lead<V, E> {
        Lead {
            flight: Arc::clone(&self.flight),
            leader: self.leader,
        }
    }

    pub(crate) fn land(mut self, result: Result<Fill<V>, E>) -> Result<Fill<V>, Failure<E>> {
        self.is_over = true;
        match result {
            Ok(fill) => {
                self.reads.land(&self.flight, &fill);
                Ok(fill)
            }
            Err(error) => {
                let failure = Failure::Error(error);
                self.reads
                    .board
                    .fail(&self.flight, self.leader, failure.clone());
                Err(failure)
            }
        }
    }
}

impl<V: Payload, E: Payload> Drop for Leading<V, E> {
    fn drop(&mut self) {
        if !self.is_over {
            self.reads
                .board
                .fail(&self.flight, self.leader, Failure::Lost);
        }
    }
}

/// How the waiting ends.
pub(crate) enum Landing<V: Payload, E: Payload> {
    Landed(Result<Fill<V>, Failure<E>>),
    Elected(Leading<V, E>),
}

/// A place among those who wait. Dropping it leaves the flight; an elected follower that leaves
/// passes the duty on.
pub(crate) struct Waiting<V: Payload, E: Payload> {
    reads: Arc<SharedReads<V, E>>,
    pub(crate) flight: Arc<Flight<V, E>>,
    id: u64,
    is_over: bool,
}

impl<V: Payload, E: Payload> Waiting<V, E> {
    pub(crate) fn new(reads: &Arc<SharedReads<V, E>>, flight: Arc<Flight<V, E>>, id: u64) -> Self {
        Self {
            reads: Arc::clone(reads),
            flight,
            id,
            is_over: false,
        }
    }
}

impl<V: Payload, E: Payload> Future for Waiting<V, E> {
    type Output = Landing<V, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        match this.flight.progress(this.id, context.waker()) {
            Progress::Waiting => Poll::Pending,
            Progress::Landed(result) => {
                this.is_over = true;
                Poll::Ready(Landing::Landed(result))
            }
            Progress::Elected(leader) => {
                this.is_over = true;
                // The duty exists from here on: whatever happens next, it is not lost.
                let leading = Leading::new(&this.reads, Arc::clone(&this.flight), leader);
                this.reads.board.elected(&this.flight);
                Poll::Ready(Landing::Elected(leading))
            }
        }
    }
}

impl<V: Payload, E: Payload> Drop for Waiting<V, E> {
    fn drop(&mut self) {
        if !self.is_over && self.flight.leave(self.id) {
            self.reads.board.pass_on(&self.flight);
        }
    }
}
