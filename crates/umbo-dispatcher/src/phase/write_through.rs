//! Writes: they are announced to the shield before the store is asked, and ended after it has answered.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use umbo_hotkey::{CallSource, WriteScope};
use umbo_http::RequestError;
use umbo_types::ShardId;

use crate::dispatcher::Dispatcher;
use crate::phase::queue::permit_of;
use crate::store_call::StoreCall;
use crate::store_call::{Answered, Timed};

/// Does a write of one shard, in one of its permits.
///
/// Nothing happens before there is a permit: a client that leaves until then has written nothing. Once
/// the permit is there, the shield keeps reads in `scopes` that begin later apart from earlier ones. If
/// the client leaves then, the write continues in a task, because the store carries it out in any case.
/// Permit and reads are released when the write has ended.
pub(crate) async fn write_through<'a, T: Send + 'static>(
    dispatcher: &Arc<Dispatcher>,
    shard: ShardId,
    call: &StoreCall,
    source: CallSource,
    scopes: impl IntoIterator<Item = WriteScope<'a>>,
    work: impl Future<Output = Answered<T>> + Send + 'static,
) -> Result<Timed<T>, RequestError> {
    let permit = permit_of(Arc::clone(dispatcher), shard, call).await?;
    let shield = dispatcher.hot_keys.shield();
    let guard = shield.map(|shield| shield.begin_write(scopes));
    let work = async move {
        let timed = permit.complete(work.await, || source);
        drop(guard);
        timed
    };
    let writing = Writing {
        dispatcher: Arc::clone(dispatcher),
        work: Some(Box::pin(work)),
    };
    Ok(writing.await)
}

/// A write under way.
struct Writing<T: Send + 'static> {
    dispatcher: Arc<Dispatcher>,
    /// `None` once it has ended.
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
}

impl<T: Send + 'static> Future for Writing<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let work = self.work.as_mut();
        let work = work.expect("a write is not awaited after its end");
        let answer = work.as_mut().poll(context);
        if answer.is_ready() {
            self.work = None;
        }
        answer
    }
}

impl<T: Send + 'static> Drop for Writing<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.dispatcher.go_on(async move { drop(work.await) });
        }
    }
}
