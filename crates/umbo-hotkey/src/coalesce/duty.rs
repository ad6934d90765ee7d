//! Duties that no exit forgets: to lead a read, to make it, and to wait for one.
//!
//! All are undone on drop, or go on without whoever drops them. A leader that is dropped before its
//! read has landed, because it panicked or its task was ended, counts as failed; a read that is
//! dropped goes on in a task; an elected follower that leaves passes the duty on. So a claim always
//! has somebody who will end it, and nobody waits for nothing.

use std::future::Future;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::fill::{Fill, Payload};
use super::flight::{Failure, Flight, Lead, Progress};
use super::reads::{Reading, SharedReads};

/// Who holds the shared reads for a leader.
pub(crate) enum Holder<'a, V, E> {
    /// The request, while the read is polled where it was asked for.
    Request(&'a SharedReads<V, E>),
    /// The task of the read.
    Task(Arc<SharedReads<V, E>>),
}

impl<V, E> Deref for Holder<'_, V, E> {
    type Target = SharedReads<V, E>;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Request(reads) => reads,
            Self::Task(reads) => reads,
        }
    }
}

/// The duty to bring a read to its end.
pub(crate) struct Leading<'a, V: Payload, E: Payload> {
    reads: Holder<'a, V, E>,
    pub(crate) lead: Lead,
    is_over: bool,
}

impl<'a, V: Payload, E: Payload> Leading<'a, V, E> {
    pub(crate) fn new(reads: Holder<'a, V, E>, lead: Lead) -> Self {
        Self {
            reads,
            lead,
            is_over: false,
        }
    }

    /// Hands the duty to a task.
    pub(crate) fn hand_over(mut self, reads: &Arc<SharedReads<V, E>>) -> Leading<'static, V, E> {
        self.is_over = true;
        Leading::new(Holder::Task(Arc::clone(reads)), self.lead)
    }

    /// Brings the read to its end, and returns its result.
    pub(crate) fn land(mut self, result: Result<Fill<V>, E>) -> Result<Fill<V>, Failure<E>> {
        self.is_over = true;
        match result {
            Ok(fill) => {
                self.reads.land(&self.lead, &fill);
                Ok(fill)
            }
            Err(error) => {
                let failure = Failure::Error(error);
                self.reads.board.fail(&self.lead, failure.clone());
                Err(failure)
            }
        }
    }
}

impl<V: Payload, E: Payload> Drop for Leading<'_, V, E> {
    fn drop(&mut self) {
        if !self.is_over {
            self.reads.board.fail(&self.lead, Failure::Lost);
        }
    }
}

/// A read of the store, made by the request that asked for it: no other task has to be woken. Should
/// the request leave, the read goes on in a task, because others may wait for it.
pub(crate) struct Driving<V: Payload, E: Payload> {
    reads: Arc<SharedReads<V, E>>,
    under_way: Option<(Leading<'static, V, E>, Reading<V, E>)>,
    /// Whether the read has just been polled with the waker of whoever awaits this next.
    is_polled: bool,
}

impl<V: Payload, E: Payload> Driving<V, E> {
    /// Of a read that has been polled and is awaited here in the same poll of the same task.
    pub(crate) fn new(
        reads: &Arc<SharedReads<V, E>>,
        leading: Leading<'_, V, E>,
        reading: Reading<V, E>,
    ) -> Self {
        Self {
            reads: Arc::clone(reads),
            under_way: Some((leading.hand_over(reads), reading)),
            is_polled: true,
        }
    }
}

impl<V: Payload, E: Payload> Future for Driving<V, E> {
    type Output = Result<Fill<V>, Failure<E>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if std::mem::take(&mut this.is_polled) {
            return Poll::Pending;
        }
        let Some((_, reading)) = &mut this.under_way else {
            return Poll::Ready(Err(Failure::Lost));
        };
        // A read that panics has failed as any other, for this one as for those who wait for it.
        let polled = catch_unwind(AssertUnwindSafe(|| reading.as_mut().poll(context)));
        if matches!(polled, Ok(Poll::Pending)) {
            return Poll::Pending;
        }
        let Some((leading, _)) = this.under_way.take() else {
            return Poll::Ready(Err(Failure::Lost));
        };
        match polled {
            Ok(Poll::Ready(result)) => Poll::Ready(leading.land(result)),
            // Nobody is to land it any more: its end is told on drop.
            Ok(Poll::Pending) | Err(_) => Poll::Ready(Err(Failure::Lost)),
        }
    }
}

impl<V: Payload, E: Payload> Drop for Driving<V, E> {
    fn drop(&mut self) {
        if let Some((leading, reading)) = self.under_way.take() {
            self.reads.spawn(leading, reading);
        }
    }
}

/// How the waiting ends.
pub(crate) enum Landing<V: Payload, E: Payload> {
    /// With a result.
    Landed(Result<Fill<V>, Failure<E>>),
    /// With the duty to lead.
    Elected(Leading<'static, V, E>),
}

/// A place among those who wait. Dropping it leaves the flight; an elected follower that leaves
/// passes the duty on.
pub(crate) struct Waiting<V: Payload, E: Payload> {
    reads: Arc<SharedReads<V, E>>,
    flight: Arc<Flight<V, E>>,
    /// The leader that was followed at first.
    pub(crate) followed: Lead,
    id: u64,
    is_over: bool,
}

impl<V: Payload, E: Payload> Waiting<V, E> {
    pub(crate) fn new(
        reads: &Arc<SharedReads<V, E>>,
        flight: Arc<Flight<V, E>>,
        followed: Lead,
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
                let lead = this.reads.board.elected(&this.followed, leader);
                let holder = Holder::Task(Arc::clone(&this.reads));
                Poll::Ready(Landing::Elected(Leading::new(holder, lead)))
            }
        }
    }
}

impl<V: Payload, E: Payload> Drop for Waiting<V, E> {
    fn drop(&mut self) {
        if !self.is_over && self.flight.leave(self.id) {
            self.reads.board.pass_on(&self.followed);
        }
    }
}
