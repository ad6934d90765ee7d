//! A cacheable read: its key, how it is executed, and its result.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use tokio::task;
use umbo_hotkey::{
    CallSource, Fetched, FlightError, KeyKind, KeyRef, KeySeed, StoreRead, WriteScope,
};
use umbo_http::RequestError;
use umbo_store::{RangeRequest, StoreError};
use umbo_types::{Deadline, Key, NamespaceId, Row, ShardId, Timestamp, Value};

use crate::dispatcher::Dispatcher;
use crate::hot_keys::SharedRead;
use crate::phase::locate::Located;
use crate::phase::queue::permit_of;
use crate::store_call::StoreCall;
use crate::store_call::{Answered, Timed};
use crate::until::until_where;

/// A read whose result many requests may share.
#[derive(Debug, Clone)]
pub(super) enum CacheableRead<'a> {
    /// One row.
    Row(ReadLocation, &'a Key),
    /// The first chunk of a range of a namespace.
    Range(NamespaceId, &'a RangeRequest, SmallVec<[u8; 64]>),
}

/// Where a row is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadLocation {
    /// The namespace, by which the row is counted, listed and cached.
    pub(super) namespace: NamespaceId,
    /// The dataset that is read.
    pub(super) dataset: NamespaceId,
}

impl ReadLocation {
    /// Returns where a request reads rows.
    pub(super) fn of(located: &Located<'_>) -> Self {
        Self {
            namespace: located.namespace_id(),
            dataset: located.dataset(),
        }
    }
}

impl<'a> CacheableRead<'a> {
    /// Returns the read of the first chunk of a range.
    pub(super) fn range(namespace: NamespaceId, request: &'a RangeRequest) -> Self {
        // All that decides the result, each part of a fixed length or behind its length.
        let mut detail = SmallVec::new();
        let flags = u8::from(request.reverse) | u8::from(request.keys_only) << 1;
        detail.push(flags | u8::from(request.range.end.is_some()) << 2);
        detail.extend_from_slice(&request.rows_max.to_le_bytes());
        detail.extend_from_slice(&request.bytes_max.to_le_bytes());
        detail.extend_from_slice(&(request.range.start.len() as u32).to_le_bytes());
        detail.extend_from_slice(&request.range.start);
        detail.extend_from_slice(request.range.end.as_deref().unwrap_or_default());
        Self::Range(namespace, request, detail)
    }

    /// Returns the dataset that is read.
    pub(super) const fn dataset(&self) -> NamespaceId {
        match self {
            Self::Row(place, _) => place.dataset,
            Self::Range(_, request, _) => request.namespace,
        }
    }

    /// Returns the scope of a write that ends what is cached of the read.
    pub(super) const fn scope(&self) -> WriteScope<'_> {
        match self {
            Self::Row(place, key) => WriteScope::Row(place.namespace, key),
            Self::Range(namespace, request, _) => {
                WriteScope::Partition(*namespace, &request.partition)
            }
        }
    }

    /// Returns the key of the read.
    pub(super) fn key(&self, seed: KeySeed) -> KeyRef<'_> {
        match self {
            Self::Row(place, key) => seed.row(place.namespace, key),
            Self::Range(namespace, request, detail) => {
                let partition = request.partition.as_bytes();
                seed.key(*namespace, KeyKind::Range, partition, detail)
            }
        }
    }

    /// Returns whose work a call is that executes the read.
    pub(super) fn source(&self, call: &StoreCall) -> CallSource {
        match self {
            Self::Row(place, key) => call.source(place.namespace, Some(&key.partition)),
            Self::Range(namespace, request, _) => call.source(*namespace, Some(&request.partition)),
        }
    }

    /// Executes the read as a leader. It outlives the request, because others may wait for it. To be called
    /// in the task of the request.
    pub(super) fn lead(
        &self,
        dispatcher: &Arc<Dispatcher>,
        shard: ShardId,
        time: ReadTime,
        mut call: StoreCall,
    ) -> StoreRead<Timed<SharedRead>, RequestError> {
        let dispatcher = Arc::clone(dispatcher);
        let timeout = dispatcher.hot_keys.leader_timeout();
        let bound = LeaderBound::new(time, timeout, call.entry.deadline);
        call.timeout = timeout;
        call.entry.deadline = bound.deadline;
        match self {
            Self::Row(place, key) => {
                let (place, key) = (*place, Key::clone(key));
                // Made on the heap: it would be copied there.
                let memory = Box::new_uninit();
                let read = Box::write(memory, async move {
                    let permit = permit_of(&*dispatcher, shard, &call).await?;
                    let context = call.take_context();
                    let mut read = dispatcher.store.get(&context, place.dataset, &key);
                    let row = bound.on(Pin::new(&mut read)).await;
                    let row = bound.answer(row, shard);
                    let source = || CallSource {
                        caller: context.caller.clone(),
                        ..call.source(place.namespace, Some(&key.partition))
                    };
                    let fetched = permit.complete(Answered::new(&context, row), source);
                    let read = fetched.and_then(|row| SharedRead::Row(place.dataset, row));
                    Ok(time.fetched(&dispatcher, shard, read?))
                });
                Box::into_pin(read as Box<_>)
            }
            Self::Range(namespace, request, _) => {
                let (namespace, request) = (*namespace, RangeRequest::clone(request));
                let dataset = request.namespace;
                Box::pin(async move {
                    let permit = permit_of(&*dispatcher, shard, &call).await?;
                    let context = call.take_context();
                    let mut read = dispatcher.store.range(&context, &request);
                    let page = bound.on(Pin::new(&mut read)).await;
                    let page = bound.answer(page, shard);
                    let source = || CallSource {
                        caller: context.caller.clone(),
                        ..call.source(namespace, Some(&request.partition))
                    };
                    let fetched = permit.complete(Answered::new(&context, page), source);
                    let read = fetched.and_then(|page| SharedRead::Page(dataset, Arc::new(page)));
                    Ok(time.fetched(&dispatcher, shard, read?))
                })
            }
        }
    }
}

/// One moment by two clocks: rows expire by the wall clock, results age by the monotonic one.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadTime {
    monotonic: Instant,
    wall: Timestamp,
}

impl ReadTime {
    /// Returns when a request began.
    pub(super) const fn of(located: &Located<'_>) -> Self {
        Self {
            monotonic: located.identified().started,
            wall: located.context().now,
        }
    }

    /// Returns when a row of a store expires whose clock shows `now` at this moment.
    fn until(self, expires_at: Timestamp, now: Timestamp) -> Option<Instant> {
        let left = Duration::from_micros(expires_at.0.saturating_sub(now.0));
        self.monotonic.checked_add(left)
    }

    /// Returns a result with what the shield needs of it.
    pub(super) fn fetched(
        self,
        dispatcher: &Dispatcher,
        shard: ShardId,
        value: Timed<SharedRead>,
    ) -> Fetched<Timed<SharedRead>> {
        let (bytes, is_found, expires_at) = match &value.answer {
            SharedRead::Row(_, None) => (0, false, None),
            SharedRead::Row(_, Some(row)) => {
                let Value {
                    bytes,
                    content_type,
                    content_encoding,
                    form: _,
                } = &row.value;
                let bytes = bytes.len() + content_type.len() + content_encoding.len();
                (bytes, true, row.expires_at)
            }
            SharedRead::Page(_, page) => {
                let rows = &page.rows;
                // The result stops being true when the first of its rows expires.
                let expires_at = rows.iter().filter_map(|row| row.expires_at).min();
                (rows.memory(), !rows.is_empty(), expires_at)
            }
        };
        Fetched {
            bytes,
            is_found,
            expires_at: expires_at
                .and_then(|at| self.until(at, dispatcher.store.time_at(shard, self.wall))),
            value,
        }
    }
}

/// The time that a leader has for its read.
#[derive(Debug, Clone, Copy)]
struct LeaderBound {
    deadline: Deadline,
    timeout: Duration,
    /// The task of the request; none outside of tasks.
    made_in: Option<task::Id>,
    /// Whether the request ends no later than the leader. In its task the timer of the request then bounds the
    /// read; a request that ends leaves the read to another task.
    is_bounded_there: bool,
}

impl LeaderBound {
    /// To be made in the task of the request, which ends at `request_deadline`.
    fn new(time: ReadTime, timeout: Duration, request_deadline: Deadline) -> Self {
        let deadline = Deadline::after(time.monotonic, timeout);
        Self {
            deadline,
            timeout,
            made_in: task::try_id(),
            is_bounded_there: request_deadline.instant() <= deadline.instant(),
        }
    }

    /// Returns whether a poll of the present task needs a timer.
    fn needs_timer(&self) -> bool {
        !self.is_bounded_there || self.made_in != task::try_id()
    }

    /// Waits for the answer to a read within the time of the leader; none where it passes before.
    fn on<T>(
        &self,
        read: Pin<&mut impl Future<Output = Result<T, StoreError>>>,
    ) -> impl Future<Output = Option<Result<T, StoreError>>> {
        until_where(self.deadline, || self.needs_timer(), read)
    }

    /// Returns the answer to a read, or that there was none in time.
    fn answer<T>(
        &self,
        answer: Option<Result<T, StoreError>>,
        shard: ShardId,
    ) -> Result<T, RequestError> {
        match answer {
            Some(answer) => Ok(answer?),
            None => Err(RequestError::DeadlineInStore {
                shard: Some(shard),
                is_write: false,
                timeout: self.timeout,
            }),
        }
    }
}

/// Returns the row of a result.
pub(super) fn shared_row(shared: SharedRead) -> Result<Option<Row>, RequestError> {
    match shared {
        SharedRead::Row(_, row) => Ok(row),
        SharedRead::Page(..) => Err(mixed_up()),
    }
}

/// The kind of a read is part of its key.
pub(super) fn mixed_up() -> RequestError {
    RequestError::Internal("a read was answered with one of another kind".to_owned())
}

/// Returns why a shared read has no result.
pub(super) fn flight_error(error: FlightError<RequestError>) -> RequestError {
    match error {
        FlightError::Failed(failure) => failure,
        FlightError::LeaderLost => RequestError::Internal("a shared read was abandoned".to_owned()),
        FlightError::Full => RequestError::TooManyReaders,
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::pin::pin;

    use tokio::time::timeout;

    use super::*;

    const LEADER_TIMEOUT: Duration = Duration::from_millis(20);

    fn bound(request_timeout: Duration) -> LeaderBound {
        let monotonic = tokio::time::Instant::now().into_std();
        let wall = Timestamp(0);
        let request_deadline = Deadline::after(monotonic, request_timeout);
        LeaderBound::new(
            ReadTime { monotonic, wall },
            LEADER_TIMEOUT,
            request_deadline,
        )
    }

    async fn is_ended(bound: LeaderBound) -> bool {
        let read = pin!(pending::<Result<(), StoreError>>());
        let answer = timeout(4 * LEADER_TIMEOUT, bound.on(read)).await;
        answer.is_ok_and(|answer| answer.is_none())
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_is_bounded_by_its_request_and_in_another_task_by_itself() {
        let of_short_request = || bound(LEADER_TIMEOUT / 2);
        assert!(!is_ended(of_short_request()).await);
        let left_behind = tokio::spawn(is_ended(of_short_request()));
        assert!(left_behind.await.unwrap());
        assert!(is_ended(bound(2 * LEADER_TIMEOUT)).await);
    }
}
