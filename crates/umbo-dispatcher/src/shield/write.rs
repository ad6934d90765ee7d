//! Writes: the shield is told before the store is asked and after it has answered.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use umbo_hotkey::Touched;

use crate::pod::Dispatcher;

/// A write of the store, and what it touches.
///
/// Reads of what it touches are kept apart from those before it until it has ended. A write that
/// was begun goes on in a task when its client leaves, and ends only there: the store carries it out
/// in any case.
pub(crate) struct Writing<T: Send + 'static> {
    pod: Arc<Dispatcher>,
    /// None once it has ended.
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    is_begun: bool,
}

/// Makes a write; it touches nothing before it is awaited.
pub(crate) fn writing<'a, T: Send + 'static>(
    pod: &Arc<Dispatcher>,
    touched: impl IntoIterator<Item = Touched<'a>>,
    work: impl Future<Output = T> + Send + 'static,
) -> Writing<T> {
    let guard = pod
        .hot_keys
        .shield()
        .map(|shield| shield.begin_write(touched));
    let work = async move {
        let answer = work.await;
        drop(guard);
        answer
    };
    Writing {
        pod: Arc::clone(pod),
        work: Some(Box::pin(work)),
        is_begun: false,
    }
}

impl<T: Send + 'static> Future for Writing<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        this.is_begun = true;
        let work = this
            .work
            .as_mut()
            .expect("a write is not awaited after its end");
        let answer = work.as_mut().poll(context);
        if answer.is_ready() {
            this.work = None;
        }
        answer
    }
}

impl<T: Send + 'static> Drop for Writing<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take()
            && self.is_begun
        {
            self.pod.go_on(async move { drop(work.await) });
        }
    }
}
