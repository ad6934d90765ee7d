//! A large value as a body: the next chunk is read when the connection has room for it.
//!
//! As with pages, each chunk holds its memory until the connection has taken it, and is charged when it is read. The
//! head names the charge of all chunks, but not of their time, which is not known yet. All chunks are of one upload, so
//! an answer never mixes values. Shards keep a removed value for reads under way for a limited time; a read that takes
//! longer is cut off.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use umbo_control::NamespaceEntry;
use umbo_edge::body::{ReplyAborted, ReplyBody};
use umbo_http::RequestError;
use umbo_quota::ActualUsage;
use umbo_store::{ChunkRequest, Outcome, StoreError};
use umbo_types::limits::LARGE_CHUNK_LEN;
use umbo_types::{Deadline, Key, LargeRef, ShardId};

use crate::charge::Charge;
use crate::dispatcher::Dispatcher;
use crate::phase::fetch;
use crate::request_log::RequestLog;
use crate::store_call::StoreCall;

/// The part of a large value that is to be sent.
#[derive(Debug)]
pub(crate) struct LargeRead {
    dispatcher: Arc<Dispatcher>,
    namespace: Arc<NamespaceEntry>,
    key: Key,
    large: LargeRef,
    /// The next byte.
    at: u64,
    /// First byte beyond.
    end: u64,
    call: StoreCall,
    /// The work that was done and charged so far.
    work: ActualUsage,
}

impl LargeRead {
    /// Begins a read of the bytes from the first to the last of `part`. `work` is the work done before it.
    pub(crate) fn new(
        dispatcher: &Arc<Dispatcher>,
        (namespace, key): (Arc<NamespaceEntry>, Key),
        large: LargeRef,
        (at, end): (u64, u64),
        call: StoreCall,
        work: ActualUsage,
    ) -> Self {
        Self {
            dispatcher: Arc::clone(dispatcher),
            namespace,
            key,
            large,
            at,
            end,
            call,
            work,
        }
    }

    /// Returns the work that is charged once all is read. Chunks are charged whole, even if only a part of them is
    /// sent.
    pub(crate) fn whole_work(&self) -> ActualUsage {
        let chunk = LARGE_CHUNK_LEN as u64;
        let first = self.at / chunk * chunk;
        let end = self.end.next_multiple_of(chunk).min(self.large.len);
        ActualUsage {
            read_bytes: self.work.read_bytes + end.saturating_sub(first),
            ..self.work
        }
    }

    /// Turns the read into a body. Log and charge go with it and end with it.
    pub(crate) fn into_body(self: Box<Self>, log: RequestLog, charge: Charge) -> ReplyBody {
        let streamed = Some(LargeStream {
            read: self,
            charge,
            log,
        });
        ReplyBody::stream(stream::unfold(streamed, |streamed| async move {
            let streamed = streamed?;
            if streamed.read.at >= streamed.read.end {
                return None;
            }
            let dispatcher = Arc::clone(&streamed.read.dispatcher);
            let (mut streamed, read) = dispatcher.long_reads.run(streamed.read_on()).await;
            match read {
                Ok(piece) => {
                    let is_last = streamed.read.at >= streamed.read.end;
                    streamed.log.sent(piece.len());
                    let piece = streamed.log.hold_piece(piece, is_last);
                    Some((Ok(piece), Some(streamed)))
                }
                Err(error) => {
                    streamed.log.stream_failed(&error);
                    streamed.charge.close_failed(&error);
                    Some((Err(ReplyAborted), None))
                }
            }
        }))
    }

    async fn next_piece(
        &mut self,
        log: &mut RequestLog,
        charge: &mut Charge,
    ) -> Result<Bytes, RequestError> {
        let dispatcher = &self.dispatcher;
        log.reserve_piece().await?;
        // Each chunk gets the default timeout anew. The time that the connection takes does not count.
        let now = dispatcher.clock.monotonic();
        self.call.entry.deadline = Deadline::after(now, dispatcher.limits.default_timeout);
        self.namespace = dispatcher.control.namespaces.current(&self.namespace);
        let index = self.at / LARGE_CHUNK_LEN as u64;
        let shard = dispatcher
            .shard_map
            .locate(self.namespace.id, &self.key.partition);
        let gone = || StoreError::Unavailable {
            shard,
            reason: "the value was replaced or removed while it was read".to_owned(),
            outcome: Outcome::NotApplied,
        };
        let chunk = match self.chunk(log, shard, index).await {
            Err(RequestError::Store(StoreError::NamespaceGone { namespace, .. })) => {
                // The bytes are of the namespace, and stay for a while when one of its datasets is dropped.
                let control = &self.dispatcher.control;
                let found = Box::pin(control.find_after_drop(namespace, &self.namespace)).await?;
                self.namespace = found.ok_or_else(gone)?;
                self.chunk(log, shard, index).await?
            }
            chunk => chunk?,
        };
        let chunk = chunk.ok_or_else(gone)?;
        let begun = index * LARGE_CHUNK_LEN as u64;
        let first = (self.at - begun) as usize;
        let last = (self.end - begun).min(chunk.len() as u64) as usize;
        if first >= last {
            return Err(gone().into());
        }
        let piece = chunk.slice(first..last);
        self.at += piece.len() as u64;
        self.work.read_bytes += chunk.len() as u64;
        if self.at >= self.end {
            charge.settle(&self.work);
        } else {
            charge.progress(&self.work);
        }
        Ok(piece)
    }

    /// Reads a chunk from the shard; `None` if the value is gone.
    async fn chunk(
        &self,
        log: &mut RequestLog,
        shard: ShardId,
        index: u64,
    ) -> Result<Option<Bytes>, RequestError> {
        let request = ChunkRequest {
            namespace: self.namespace.dataset,
            large: self.large,
            index: u32::try_from(index).unwrap_or(u32::MAX),
        };
        let at = (shard, self.namespace.id);
        let chunk = fetch::chunk(&self.dispatcher, at, &self.call, &self.key, &request);
        let timed = chunk.await?;
        log.stored(timed.time);
        Ok(timed.answer?)
    }
}

/// A large value that is being sent.
struct LargeStream {
    read: Box<LargeRead>,
    // The charge is dropped before the log that it is counted with.
    charge: Charge,
    log: RequestLog,
}

impl LargeStream {
    async fn read_on(mut self) -> (Self, Result<Bytes, RequestError>) {
        let Self { read, charge, log } = &mut self;
        let piece = read.next_piece(log, charge).await;
        (self, piece)
    }
}

impl Drop for LargeStream {
    fn drop(&mut self) {
        let Self { log, charge, .. } = self;
        log.end(|at| Some(charge.end(at)));
    }
}
