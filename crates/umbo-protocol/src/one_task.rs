//! All parts of a connection in one task.
//!
//! HTTP/2 hands the bytes of a connection and each of its streams to an executor. As tasks of their own
//! they wake each other, and with them idle threads of the runtime, several times a request; here
//! the task of the connection polls them all. What one part wakes while they are polled is polled in the
//! same turn, and the runtime hears nothing of it. The invariant: a wake is followed by a poll, either
//! of this turn or of the next.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use futures_util::task::AtomicWaker;
use hyper::rt::Executor;

/// Polls in a row before other tasks have their turn.
const ROUNDS_MAX: usize = 16;

type Part = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Polls the parts of one connection; they end with it.
#[derive(Debug, Default)]
pub struct OneTask {
    begun: Parts,
    running: FuturesUnordered<Part>,
}

/// Takes parts: the executor that a connection is given.
#[derive(Clone, Default)]
pub struct Parts(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// Those that have not been polled yet.
    new: Mutex<Vec<Part>>,
    flag: Arc<Flag>,
}

/// What a part wakes.
#[derive(Debug, Default)]
struct Flag {
    is_polling: AtomicBool,
    is_woken: AtomicBool,
    task: AtomicWaker,
}

impl OneTask {
    /// Returns where the connection puts its parts.
    pub fn parts(&self) -> Parts {
        self.begun.clone()
    }

    /// Polls the parts beside `main` until that is over. Parts that are not go on with the next call.
    pub async fn drive<F: Future>(&mut self, main: F) -> F::Output {
        let mut main = pin!(main);
        let all = Arc::clone(&self.begun.0);
        let flag = &all.flag;
        let waker = Waker::from(Arc::clone(flag));
        let running = &mut self.running;
        poll_fn(|outer| {
            flag.task.register(outer.waker());
            let mut context = Context::from_waker(&waker);
            for _ in 0..ROUNDS_MAX {
                flag.begin();
                if let Poll::Ready(output) = main.as_mut().poll(&mut context) {
                    flag.end();
                    return Poll::Ready(output);
                }
                running.extend(all.take());
                while let Poll::Ready(Some(())) = running.poll_next_unpin(&mut context) {}
                if flag.end() {
                    return Poll::Pending;
                }
            }
            outer.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }
}

impl Drop for OneTask {
    /// Parts that were never polled end, too: they may hold what they were put into.
    fn drop(&mut self) {
        drop(self.begun.0.take());
    }
}

impl Inner {
    fn take(&self) -> Vec<Part> {
        std::mem::take(&mut *self.new.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Flag {
    fn begin(&self) {
        self.is_polling.store(true, Ordering::SeqCst);
        self.is_woken.store(false, Ordering::SeqCst);
    }

    /// Says whether nothing was woken since the beginning. Whoever wakes after this wakes the task.
    fn end(&self) -> bool {
        self.is_polling.store(false, Ordering::SeqCst);
        !self.is_woken.load(Ordering::SeqCst)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        if !self.is_polling.load(Ordering::SeqCst) {
            self.task.wake();
        }
    }
}

impl<F> Executor<F> for Parts
where
    F: Future + Send + 'static,
{
    fn execute(&self, part: F) {
        let part = async {
            part.await;
        };
        let mut new = self.0.new.lock().unwrap_or_else(PoisonError::into_inner);
        new.push(Box::pin(part));
        drop(new);
        self.0.flag.wake_by_ref();
    }
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Parts").finish_non_exhaustive()
    }
}

/// Lets all other tasks that are ready run first, and what the network has brought meanwhile.
///
/// Waking oneself is not enough for a part: its task would poll it again at once.
#[derive(Default)]
pub struct Yield(Option<Part>);

impl Yield {
    /// Waits until the others have had their turn. Begins anew after each.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let rest = self
            .0
            .get_or_insert_with(|| Box::pin(tokio::task::yield_now()));
        let polled = rest.as_mut().poll(context);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl std::fmt::Debug for Yield {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Yield").finish()
    }
}

#[cfg(test)]
mod tests;
