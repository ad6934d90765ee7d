//! What a read wants: what names it, what makes it, and what it brings back.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use umbo_hotkey::{Fill, KeyRef, KeySeed, Kind, Polarity, Reading};
use umbo_store::{CallContext, RangeRequest, StoreError};
use umbo_types::{Deadline, Key, NamespaceId, ShardId, Timestamp, Value};

use crate::failure::Failure;
use crate::hot_keys::Shared;
use crate::pod::Dispatcher;
use crate::until::until;
use crate::wait::{Answered, Call, Timed, in_slot};

/// A read as the shield sees it: what names it, and what makes it.
#[derive(Debug, Clone)]
pub(super) enum Wanted<'a> {
    /// One row.
    Row(NamespaceId, &'a Key),
    /// The first chunk of a range.
    Range(&'a RangeRequest, SmallVec<[u8; 64]>),
}

impl<'a> Wanted<'a> {
    /// Wants the first chunk of a range.
    pub(super) fn range(request: &'a RangeRequest) -> Self {
        // Whatever decides the answer, each part of a known length or behind its length.
        let mut detail = SmallVec::new();
        let flags = u8::from(request.reverse) | u8::from(request.keys_only) << 1;
        detail.push(flags | u8::from(request.range.end.is_some()) << 2);
        detail.extend_from_slice(&request.rows_max.to_le_bytes());
        detail.extend_from_slice(&request.bytes_max.to_le_bytes());
        detail.extend_from_slice(&(request.range.start.len() as u32).to_le_bytes());
        detail.extend_from_slice(&request.range.start);
        detail.extend_from_slice(request.range.end.as_deref().unwrap_or_default());
        Self::Range(request, detail)
    }

    /// Names the read.
    pub(super) fn key(&self, seed: KeySeed) -> KeyRef<'_> {
        match self {
            Self::Row(namespace, key) => seed.row(*namespace, key),
            Self::Range(request, detail) => {
                let partition = request.partition.as_bytes();
                seed.key(request.namespace, Kind::Range, partition, detail)
            }
        }
    }

    /// Makes the read. It outlives the request, because others may wait for it.
    pub(super) fn read(
        &self,
        pod: &Arc<Dispatcher>,
        shard: ShardId,
        times: Times,
        mut call: Call,
    ) -> Reading<Timed<Shared>, Failure> {
        let pod = Arc::clone(pod);
        call.timeout = pod.hot_keys.leader_timeout();
        call.entry.deadline = Deadline::after(times.monotonic, call.timeout);
        let bound = (call.entry.deadline, call.timeout);
        match self {
            Self::Row(namespace, key) => {
                let (namespace, key) = (*namespace, Key::clone(key));
                Box::pin(async move {
                    let context = call.context();
                    let work = async {
                        let read = pod.store.get(&context, namespace, &key);
                        Answered::new(&context, bounded(read, shard, bound).await)
                    };
                    let fetched = in_slot(&pod, shard, &call, pin!(work)).await?;
                    Ok(times.fill(fetched.and_then(Shared::Row)?))
                })
            }
            Self::Range(request, _) => {
                let request = RangeRequest::clone(request);
                Box::pin(async move {
                    let context = call.context();
                    let work = async {
                        let read = pod.store.range(&context, &request);
                        Answered::new(&context, bounded(read, shard, bound).await)
                    };
                    let fetched = in_slot(&pod, shard, &call, pin!(work)).await?;
                    Ok(times.fill(fetched.and_then(|page| Shared::Page(Arc::new(page)))?))
                })
            }
        }
    }
}

impl Wanted<'_> {
    /// Reads for this request alone.
    pub(super) async fn ask(
        &self,
        pod: &Dispatcher,
        call: &Call,
    ) -> Answered<Result<Shared, Failure>> {
        let context = call.context();
        let answer = self.ask_with(pod, &context).await;
        Answered::new(&context, answer)
    }

    async fn ask_with(&self, pod: &Dispatcher, context: &CallContext) -> Result<Shared, Failure> {
        Ok(match self {
            Self::Row(namespace, key) => {
                Shared::Row(pod.store.get(context, *namespace, key).await?)
            }
            Self::Range(request, _) => {
                Shared::Page(Arc::new(pod.store.range(context, request).await?))
            }
        })
    }
}

/// Two clocks at one moment: when rows expire is told by one, how old an answer is by the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) monotonic: Instant,
    pub(super) wall: Timestamp,
}

impl Times {
    fn until(self, expires_at: Timestamp) -> Option<Instant> {
        let left = Duration::from_micros(expires_at.0.saturating_sub(self.wall.0));
        self.monotonic.checked_add(left)
    }

    /// Says what is to be known of an answer that is shared.
    pub(super) fn fill(self, value: Timed<Shared>) -> Fill<Timed<Shared>> {
        let (bytes, is_present, expires_at) = match &value.answer {
            Shared::Row(None) => (0, false, None),
            Shared::Row(Some(row)) => {
                let Value {
                    bytes,
                    content_type,
                    content_encoding,
                } = &row.value;
                let bytes = bytes.len() + content_type.len() + content_encoding.len();
                (bytes, true, row.expires_at)
            }
            Shared::Page(page) => {
                let rows = &page.rows;
                // The answer stops being true when the first of its rows expires.
                let expires_at = rows.iter().filter_map(|row| row.expires_at).min();
                (rows.memory(), !rows.is_empty(), expires_at)
            }
        };
        Fill {
            bytes,
            polarity: if is_present {
                Polarity::Present
            } else {
                Polarity::Absent
            },
            expires_at: expires_at.and_then(|at| self.until(at)),
            value,
        }
    }
}

/// Bounds a read that others wait for: not by the deadline of one of them.
async fn bounded<T>(
    work: impl Future<Output = Result<T, StoreError>>,
    shard: ShardId,
    (deadline, timeout): (Deadline, Duration),
) -> Result<T, Failure> {
    match until(deadline, pin!(work)).await {
        Some(answer) => Ok(answer?),
        None => Err(Failure::DeadlineInStore {
            shard: Some(shard),
            is_write: false,
            timeout,
        }),
    }
}
