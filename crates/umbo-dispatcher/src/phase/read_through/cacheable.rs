//! A cacheable read: its key, how it is executed, and its result.

use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use umbo_hotkey::{
    Fetched, FlightError, KeyKind, KeyRef, KeySeed, ReadContext, Served, StoreRead, WriteScope,
};
use umbo_http::RequestError;
use umbo_store::RangeRequest;
use umbo_types::{Key, NamespaceId, Operation, Row, ShardId, Timestamp, Value};

use crate::dispatcher::Dispatcher;
use crate::hot_keys::{HotShield, SharedRead};
use crate::phase::fetch::{self, CallPlace};
use crate::phase::leader_bound::LeaderBound;
use crate::phase::locate::Located;
use crate::store_call::{StoreCall, Timed};

/// A read whose result many requests may share.
#[derive(Debug, Clone)]
pub(super) enum CacheableRead<'a> {
    /// One row.
    Row(ReadLocation, &'a Key),
    /// The first chunk of a range of a namespace.
    Range(NamespaceId, &'a RangeRequest, SmallVec<[u8; 64]>),
}

/// The place of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadLocation {
    /// The namespace: rows are counted, listed and cached under it.
    pub(super) namespace: NamespaceId,
    /// The dataset that is read.
    pub(super) dataset: NamespaceId,
}

impl ReadLocation {
    /// Returns the place of the rows of a request.
    pub(super) fn of(located: &Located<'_>) -> Self {
        Self {
            namespace: located.namespace_id(),
            dataset: located.dataset(),
        }
    }
}

impl ReadLocation {
    /// Returns the place for a call of the store.
    pub(super) const fn at(self, shard: ShardId) -> CallPlace {
        (shard, self.namespace)
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

    /// Returns the scope of writes that make the cached result stale.
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
        // A multi-get reads one row after the other, and may be listed already.
        let is_listed_later = call.operation != Operation::MultiGet;
        let request_deadline = call.entry.deadline;
        let bound = LeaderBound::new(time.monotonic, timeout, request_deadline, is_listed_later);
        call.timeout = timeout;
        call.entry.deadline = bound.deadline();
        match self {
            Self::Row(place, key) => {
                let (place, key) = (*place, Key::clone(key));
                // Made on the heap: it would be copied there.
                let memory = Box::new_uninit();
                let read = Box::write(memory, async move {
                    let (at, wanted) = (place.at(shard), (place.dataset, &key));
                    let fetched =
                        fetch::led_row(&dispatcher, at, &mut call, wanted, &bound).await?;
                    let read = fetched.and_then(|row| SharedRead::Row(place.dataset, row));
                    Ok(time.fetched(&dispatcher, shard, read?))
                });
                Box::into_pin(read as Box<_>)
            }
            Self::Range(namespace, request, _) => {
                let (namespace, request) = (*namespace, RangeRequest::clone(request));
                let dataset = request.namespace;
                Box::pin(async move {
                    let at = (shard, namespace);
                    let fetched =
                        fetch::led_range(&dispatcher, at, &mut call, &request, &bound).await?;
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

    /// Returns a result with its attributes for the shield.
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

/// Returns the row of a result.
pub(super) fn shared_row(shared: SharedRead) -> Result<Option<Row>, RequestError> {
    match shared {
        SharedRead::Row(_, row) => Ok(row),
        SharedRead::Page(..) => Err(mixed_up()),
    }
}

/// The kind of a read is part of its key.
pub(super) fn mixed_up() -> RequestError {
    RequestError::Internal("a read got an answer of another kind".to_owned())
}

/// Reads with all requests that want the same. If their leader fails, one of them leads once more, so that they do not
/// all come to the shard. Returns `None` if that one has failed too: the request is to ask the store itself.
pub(super) async fn shared(
    dispatcher: &Dispatcher,
    (shield, key): (&HotShield, &KeyRef<'_>),
    context: &ReadContext,
    lead: impl Fn() -> StoreRead<Timed<SharedRead>, RequestError>,
) -> Result<Option<Served<Timed<SharedRead>>>, RequestError> {
    let mut served = shield.read(key, context, &lead).await;
    if matches!(served, Err(FlightError::LeaderFailed)) {
        let now = dispatcher.clock.monotonic();
        let context = ReadContext { now, ..*context };
        served = shield.read(key, &context, &lead).await;
    }
    match served {
        Ok(served) => Ok(Some(served)),
        Err(FlightError::LeaderFailed) => Ok(None),
        Err(FlightError::Failed(failure)) => Err(failure),
        Err(FlightError::Panicked) => Err(RequestError::Internal("a read panicked".to_owned())),
        Err(FlightError::Full) => Err(RequestError::TooManyReaders),
    }
}
