//! The phase *fetch*: the calls of the store, one function for each, in a permit of the shard and timed. No other file
//! of this crate calls the store.
//!
//! Hot path. A failure of the store is part of the answer, so that its time is recorded too. A call of a store ends at
//! the deadline of its request at the latest: reads are stopped then, and writes go on in the shard.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio::time::timeout_at;
use umbo_hotkey::{CallSource, WriteScope};
use umbo_http::RequestError;
use umbo_store::{
    CallContext, ChunkRequest, DeleteRangeRequest, Deleted, Page, RangeRequest, RowSink, ScanPage,
    ScanRequest, StoreError, WriteError, WriteRequest, Written,
};
use umbo_types::{Key, NamespaceId, Row, ShardId};

use crate::dispatcher::Dispatcher;
use crate::phase::leader_bound::LeaderBound;
use crate::phase::queue::permit_of;
use crate::phase::write_through::write_through;
use crate::store_call::{Answered, StoreCall, Timed};

/// Answer of the store, or why it was not asked.
pub(crate) type StoreAnswer<T, E = StoreError> = Result<Timed<Result<T, E>>, RequestError>;

/// Answers for several rows.
pub(crate) type StoreRows<T, E> = Result<Timed<Vec<Result<T, E>>>, RequestError>;

/// The shard of a call, and the namespace that its work is counted for.
pub(crate) type CallPlace = (ShardId, NamespaceId);

/// Reads a row of a dataset.
pub(crate) async fn row(
    dispatcher: &Dispatcher,
    (shard, namespace): CallPlace,
    call: &StoreCall,
    dataset: NamespaceId,
    key: &Key,
) -> StoreAnswer<Option<Row>> {
    // Not by `read`: its layers cost a get one instruction of a hundred.
    let permit = permit_of(dispatcher, shard, call).await?;
    let context = call.context();
    let row = dispatcher.store.get(&context, shard, dataset, key).await;
    let source = || call.source(namespace, Some(&key.partition));
    Ok(permit.complete(Answered::new(&context, row), source))
}

/// Reads rows of a dataset, all of one shard. There may be fewer answers than keys.
pub(crate) async fn rows(
    dispatcher: &Dispatcher,
    shard: ShardId,
    call: &StoreCall,
    (dataset, keys): (NamespaceId, &[Key]),
    source: impl FnOnce() -> CallSource,
) -> StoreRows<Option<Row>, StoreError> {
    let ask = async |context: &_| {
        let store = &dispatcher.store;
        store.multi_get(context, shard, dataset, keys).await
    };
    read(dispatcher, shard, call, source, ask).await
}

/// Reads a chunk of a range.
pub(crate) async fn range(
    dispatcher: &Dispatcher,
    (shard, namespace): CallPlace,
    call: &StoreCall,
    request: &RangeRequest,
) -> StoreAnswer<Page> {
    let source = || call.source(namespace, Some(&request.partition));
    let ask = async |context: &_| dispatcher.store.range(context, shard, request).await;
    read(dispatcher, shard, call, source, ask).await
}

/// Reads a chunk of a range, whose rows go to `rows`.
pub(crate) async fn range_into(
    dispatcher: &Dispatcher,
    (shard, namespace): CallPlace,
    call: &StoreCall,
    request: &RangeRequest,
    rows: &mut dyn RowSink,
) -> StoreAnswer<Page> {
    let source = || call.source(namespace, Some(&request.partition));
    let ask = async |context: &_| {
        let store = &dispatcher.store;
        store.range_into(context, shard, request, rows).await
    };
    read(dispatcher, shard, call, source, ask).await
}

/// Reads a chunk of a scan of a shard.
pub(crate) async fn scan(
    dispatcher: &Dispatcher,
    (shard, namespace): CallPlace,
    call: &StoreCall,
    request: &ScanRequest,
) -> StoreAnswer<ScanPage> {
    let source = || call.source(namespace, None);
    let ask = async |context: &_| dispatcher.store.scan(context, shard, request).await;
    read(dispatcher, shard, call, source, ask).await
}

/// Reads a chunk of a scan of a shard, whose rows go to `rows`.
pub(crate) async fn scan_into(
    dispatcher: &Dispatcher,
    (shard, namespace): CallPlace,
    call: &StoreCall,
    request: &ScanRequest,
    rows: &mut dyn RowSink,
) -> StoreAnswer<ScanPage> {
    let source = || call.source(namespace, None);
    let ask = async |context: &_| {
        let store = &dispatcher.store;
        store.scan_into(context, shard, request, rows).await
    };
    read(dispatcher, shard, call, source, ask).await
}

/// Reads a chunk of the large value of a row.
pub(crate) async fn chunk(
    dispatcher: &Dispatcher,
    (shard, namespace): CallPlace,
    call: &StoreCall,
    key: &Key,
    request: &ChunkRequest,
) -> StoreAnswer<Option<Bytes>> {
    let source = || call.source(namespace, Some(&key.partition));
    let ask = async |context: &_| dispatcher.store.chunk(context, shard, key, request).await;
    read(dispatcher, shard, call, source, ask).await
}

/// Reads from a shard in a permit of it.
async fn read<T>(
    dispatcher: &Dispatcher,
    shard: ShardId,
    call: &StoreCall,
    source: impl FnOnce() -> CallSource,
    ask: impl AsyncFnOnce(&CallContext) -> T,
) -> Result<Timed<T>, RequestError> {
    let permit = permit_of(dispatcher, shard, call).await?;
    let context = call.context();
    let answer = ask(&context).await;
    Ok(permit.complete(Answered::new(&context, answer), source))
}

/// Reads a row of a dataset for all requests that wait for it, within the time of their leader. The call is borrowed: a
/// future would copy it twice.
pub(crate) async fn led_row(
    dispatcher: &Dispatcher,
    (shard, namespace): CallPlace,
    call: &mut StoreCall,
    (dataset, key): (NamespaceId, &Key),
    bound: &LeaderBound,
) -> StoreAnswer<Option<Row>, RequestError> {
    let permit = permit_of(dispatcher, shard, call).await?;
    let context = call.take_context();
    let mut read = dispatcher.store.get(&context, shard, dataset, key);
    let row = bound.on(Pin::new(&mut read)).await;
    let row = bound.answer(row, shard);
    let source = || CallSource {
        caller: context.caller.clone(),
        ..call.source(namespace, Some(&key.partition))
    };
    Ok(permit.complete(Answered::new(&context, row), source))
}

/// Reads a chunk of a range for all who wait for it, within the time of their leader.
pub(crate) async fn led_range(
    dispatcher: &Dispatcher,
    (shard, namespace): CallPlace,
    call: &mut StoreCall,
    request: &RangeRequest,
    bound: &LeaderBound,
) -> StoreAnswer<Page, RequestError> {
    let permit = permit_of(dispatcher, shard, call).await?;
    let context = call.take_context();
    let mut read = dispatcher.store.range(&context, shard, request);
    let page = bound.on(Pin::new(&mut read)).await;
    let page = bound.answer(page, shard);
    let source = || CallSource {
        caller: context.caller.clone(),
        ..call.source(namespace, Some(&request.partition))
    };
    Ok(permit.complete(Answered::new(&context, page), source))
}

/// Writes rows of a shard. Cached results within `scopes` are dropped.
pub(crate) async fn write<'s>(
    dispatcher: &Arc<Dispatcher>,
    shard: ShardId,
    call: &StoreCall,
    source: CallSource,
    scopes: impl IntoIterator<Item = WriteScope<'s>>,
    request: WriteRequest,
) -> StoreRows<Written, WriteError> {
    let (store, context) = (Arc::clone(&dispatcher.store), call.context());
    let work = async move {
        let written = store.write(&context, shard, request).await;
        Answered::new(&context, written)
    };
    write_through(dispatcher, shard, call, source, scopes, work).await
}

/// Removes rows of a range, one step of it.
pub(crate) async fn delete_range(
    dispatcher: &Arc<Dispatcher>,
    (shard, namespace): CallPlace,
    call: &StoreCall,
    request: DeleteRangeRequest,
) -> StoreAnswer<Deleted> {
    let (store, context) = (Arc::clone(&dispatcher.store), call.context());
    let source = call.source(namespace, Some(&request.partition));
    let partition = request.partition.clone();
    let scopes = [WriteScope::Partition(namespace, &partition)];
    let work = async move {
        let deleted = store.delete_range(&context, shard, request).await;
        Answered::new(&context, deleted)
    };
    write_through(dispatcher, shard, call, source, scopes, work).await
}

/// Waits for a call of a shard until an instant. A write continues after that without its request, and whether it is
/// applied is not known.
pub(crate) async fn until<T>(
    until: Instant,
    shard: ShardId,
    call: &StoreCall,
    is_write: bool,
    fetching: impl Future<Output = Result<Timed<T>, RequestError>>,
) -> Result<Timed<T>, RequestError> {
    let fetched = timeout_at(until.into(), fetching).await;
    fetched.unwrap_or(Err(RequestError::DeadlineInStore {
        shard: Some(shard),
        is_write,
        timeout: call.timeout,
    }))
}
