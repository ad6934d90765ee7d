//! The requests of a connection that wait for the store.
//!
//! The task of their connection polls them, whether or not the peer reads its answers, so that they free their
//! resources. The store contract defines the effect of dropping a request: a read stops, a write that the store has not
//! begun is withdrawn, and a write that it has begun completes there. So cancelling a request, and ending a connection,
//! is dropping. Bounded by the admission limit of one connection ([`PendingReplies::count`] is checked before a request
//! is added).

use std::collections::HashMap;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::{FuturesUnordered, Stream as _};
use umbo_protocol::Answer;

use crate::kind::RequestKind;

/// A future that ends with the answer to one request.
pub(crate) type PendingWork = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A request that waits for the store.
struct PendingAnswer {
    id: u64,
    kind: RequestKind,
    work: Abortable<PendingWork>,
}

/// A request that has ended; without an answer if it was cancelled.
pub(crate) struct FinishedRequest {
    pub(crate) id: u64,
    pub(crate) kind: RequestKind,
    pub(crate) answer: Option<Answer>,
}

impl Future for PendingAnswer {
    type Output = FinishedRequest;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<FinishedRequest> {
        let answer = ready!(Pin::new(&mut self.work).poll(context));
        Poll::Ready(FinishedRequest {
            id: self.id,
            kind: self.kind,
            answer: answer.ok(),
        })
    }
}

/// The requests of a connection that wait for the store.
#[derive(Default)]
pub(crate) struct PendingReplies {
    running: FuturesUnordered<PendingAnswer>,
    aborts: HashMap<u64, AbortHandle>,
}

impl PendingReplies {
    /// Returns the number of pending requests.
    pub(crate) fn count(&self) -> usize {
        self.running.len()
    }

    /// Adds a request, which is dropped when it is cancelled or the connection ends.
    pub(crate) fn add(&mut self, kind: RequestKind, id: u64, work: PendingWork) {
        let (handle, registration) = AbortHandle::new_pair();
        self.aborts.insert(id, handle);
        let work = Abortable::new(work, registration);
        self.running.push(PendingAnswer { id, kind, work });
    }

    /// Drops a cancelled request; ignores an unknown id. The next poll drops the request, and the task is woken for it.
    pub(crate) fn cancel(&mut self, id: u64) {
        if let Some(request) = self.aborts.remove(&id) {
            request.abort();
        }
    }

    /// Returns the next request that has ended. Also pending if no request is left.
    pub(crate) fn poll_finished(&mut self, context: &mut Context<'_>) -> Poll<FinishedRequest> {
        match Pin::new(&mut self.running).poll_next(context) {
            Poll::Ready(Some(finished)) => {
                self.aborts.remove(&finished.id);
                Poll::Ready(finished)
            }
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use tokio::sync::oneshot;
    use umbo_protocol::Outcome;

    use super::*;

    /// A request that ends on command, and reports when it is dropped.
    fn work() -> (oneshot::Sender<()>, oneshot::Receiver<()>, PendingWork) {
        let (tell, told) = oneshot::channel();
        let (alive, gone) = oneshot::channel::<()>();
        let work = Box::pin(async move {
            let _ = told.await;
            drop(alive);
            Answer::without_rows(0, Duration::ZERO, Outcome::Row(None))
        });
        (tell, gone, work)
    }

    fn finished(pending: &mut PendingReplies) -> Option<u64> {
        let next = poll_fn(|context| pending.poll_finished(context)).now_or_never();
        next.map(|finished| finished.id)
    }

    #[test]
    fn what_is_done_is_returned_once() {
        let mut pending = PendingReplies::default();
        let (tell, _gone, first) = work();
        let (_keep, _gone_too, second) = work();
        pending.add(RequestKind::Write, 7, first);
        pending.add(RequestKind::Get, 8, second);
        assert_eq!((finished(&mut pending), pending.count()), (None, 2));
        tell.send(()).unwrap();
        assert_eq!(finished(&mut pending), Some(7));
        assert_eq!((finished(&mut pending), pending.count()), (None, 1));
        assert_eq!(pending.aborts.len(), 1);
    }

    #[test]
    fn what_is_cancelled_is_dropped_and_so_is_what_its_connection_leaves() {
        let mut pending = PendingReplies::default();
        let (_tell, mut first_gone, first) = work();
        let (_tell_too, mut second_gone, second) = work();
        pending.add(RequestKind::Write, 7, first);
        pending.add(RequestKind::Write, 8, second);
        assert_eq!(finished(&mut pending), None);
        pending.cancel(7);
        pending.cancel(99);
        assert_eq!(finished(&mut pending), Some(7));
        assert!(first_gone.try_recv().is_err_and(|error| is_closed(&error)));
        assert!(!second_gone.try_recv().is_err_and(|error| is_closed(&error)));
        drop(pending);
        assert!(second_gone.try_recv().is_err_and(|error| is_closed(&error)));
    }

    fn is_closed(error: &oneshot::error::TryRecvError) -> bool {
        *error == oneshot::error::TryRecvError::Closed
    }
}
