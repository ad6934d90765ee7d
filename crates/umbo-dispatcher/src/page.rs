//! Pages: rows of a range or scan, streamed chunk after chunk in constant memory.
//!
//! A chunk is one snapshot of the store and is encoded while it is read, so no snapshot is held while a
//! client reads. The next chunk is fetched when the connection asks for more, so a slow client
//! holds one encoded chunk and a client that leaves ends the walk. Every page ends with its `end`
//! line, or with an `error` line and a cut connection. Both lines have the cursor to continue with.

mod chunk_text;
mod selectors;
mod streaming;

use std::sync::Arc;

use bytes::Bytes;
use umbo_api::json_line;
use umbo_api::stream::{End, EndCause, EndLine, EndReason};
use umbo_http::cursor::{RangeCursor, ScanCursor};
use umbo_http::decode::{Layout, PageBounds};
use umbo_http::{RequestError, encode};
use umbo_quota::{ActualUsage, CostHint};
use umbo_store::{Page, RangeRequest, RowSink, ScanRequest, Touched};
use umbo_types::{Deadline, NamespaceId, PartitionKey, RequestUnits, ShardId, limits};

pub(crate) use self::chunk_text::value_field;
use self::chunk_text::{ChunkText, RowShape};
pub(crate) use self::selectors::Selectors;
use crate::charge::Charge;
use crate::dispatcher::Dispatcher;
use crate::operation::stored_form::damaged;
use crate::phase::fetch;
use crate::request_log::RequestLog;
use crate::store_call::{StoreCall, StoreTime, Timed};

/// Longest text of a chunk that room is kept for, in bytes: 256 KiB of rows and one more of 1 MiB, as
/// base64. Text of control characters alone, which is longer, is taken in beyond that.
pub(crate) const CHUNK_TEXT_LEN_MAX: usize =
    (limits::CHUNK_BYTES_MAX as usize + limits::VALUE_LEN_MAX) / 3 * 4;

/// Divisor of the first chunk's bounds if the store works on the thread of the request: other requests wait for about
/// 100 µs then.
const FIRST_CHUNK_PART: u32 = 4;

/// Source of the rows; advanced as they are read.
#[derive(Debug)]
pub(crate) enum PageSource {
    /// A partition.
    Range {
        /// The namespace, kept in cursors.
        namespace: NamespaceId,
        /// The rest of the range.
        request: RangeRequest,
        /// The selection of the request.
        selectors: Selectors,
    },
    /// A segment of a namespace.
    Scan {
        /// The namespace, kept in cursors.
        namespace: NamespaceId,
        /// The next shard.
        shard: ShardId,
        /// The rest of this shard; later shards are still to be read as a whole.
        request: ScanRequest,
        /// Number of segments, kept in cursors.
        segments: u32,
        /// Which of them, kept in cursors.
        segment: u32,
    },
}

/// A page under way.
#[derive(Debug)]
pub(crate) struct PageWalk {
    dispatcher: Arc<Dispatcher>,
    source: PageSource,
    left: PageBounds,
    /// The chunk that is being read.
    chunk: ChunkText,
    /// Attributes of each chunk's call for the queue and the store.
    call: StoreCall,
    /// Ends the page early; set only if the client named a time.
    deadline: Option<Deadline>,
    rows: u64,
    bytes: u64,
    /// Rows and bytes read for them.
    touched: Touched,
    /// Whether rows were read that could not be encoded: no cursor continues after them.
    has_lost_rows: bool,
    /// Whether a chunk was read: all further reads are parts of the same request.
    is_continued: bool,
}

/// Rows and bytes read for a chunk, and whether more may follow. Its rows are in the walk.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ChunkRead {
    touched: Touched,
    may_continue: bool,
}

/// One encoded chunk, and whether it is the last.
#[derive(Debug)]
pub(crate) struct EncodedChunk {
    pub(crate) text: Bytes,
    pub(crate) is_last: bool,
}

impl PageWalk {
    /// Begins a page.
    pub(crate) fn new(
        dispatcher: &Arc<Dispatcher>,
        source: PageSource,
        bounds: PageBounds,
        layout: Layout,
        call: StoreCall,
        deadline: Option<Deadline>,
    ) -> Self {
        let dispatcher = Arc::clone(dispatcher);
        let shape = RowShape {
            layout,
            with_partition: matches!(source, PageSource::Scan { .. }),
            keys_only: bounds.keys_only,
        };
        Self {
            dispatcher,
            source,
            left: bounds,
            chunk: ChunkText::new(shape),
            call,
            deadline,
            rows: 0,
            bytes: 0,
            touched: Touched::default(),
            has_lost_rows: false,
            is_continued: false,
        }
    }

    /// Returns how the rows are laid out.
    pub(crate) const fn layout(&self) -> Layout {
        self.chunk.shape().layout
    }

    /// Returns the sink for the rows of the next chunk.
    pub(crate) const fn rows(&mut self) -> &mut impl RowSink {
        &mut self.chunk
    }

    /// Reads the rows of the next chunk and moves the source beyond them.
    pub(crate) async fn read(&mut self) -> Result<Timed<ChunkRead>, RequestError> {
        let mut call = self.call.clone();
        if self.is_continued {
            // The first chunk had the time of the request, even if it held no row. Each later chunk gets the default
            // timeout anew. A time named by the client ends the page, not the wait for a permit.
            let now = self.dispatcher.clock.monotonic();
            call.entry.deadline = Deadline::after(now, self.dispatcher.limits.default_timeout);
        }
        let (PageSource::Range { namespace, .. } | PageSource::Scan { namespace, .. }) =
            self.source;
        if let Some(request) = self.next_range() {
            let shard = self
                .dispatcher
                .shard_map
                .locate(request.namespace, &request.partition);
            let Self {
                dispatcher, chunk, ..
            } = self;
            let at = (shard, namespace);
            let page = fetch::range_into(dispatcher, at, &call, &request, chunk).await?;
            let timed = page.and_then(|page| page)?;
            return Ok(timed.map(|page| self.take_up(&page)));
        }
        self.read_scan(namespace, call).await
    }

    /// Reads the next chunk of a scan, of several shards if they have few rows. If any of them fails, the scan does not
    /// move.
    async fn read_scan(
        &mut self,
        namespace: NamespaceId,
        call: StoreCall,
    ) -> Result<Timed<ChunkRead>, RequestError> {
        let (rows_max, bytes_max) = self.chunk_bounds();
        let Self {
            dispatcher,
            source: PageSource::Scan { shard, request, .. },
            chunk,
            ..
        } = self
        else {
            return Ok(Timed::untimed(ChunkRead::default()));
        };
        let owners = dispatcher.shard_map.owners_of(request.slots.clone());
        let first = *shard;
        let mut shards = owners.into_iter().skip_while(|owner| *owner != first);
        let mut at = shards.next();
        let now = dispatcher.clock.monotonic();
        let half = now + call.entry.deadline.remaining(now) / 2;
        let (mut asked, mut touched, mut time) =
            (request.clone(), Touched::default(), StoreTime::default());
        while let Some(here) = at {
            let (rows, bytes) = chunk.keep();
            asked.rows_max = rows_max.saturating_sub(rows as u32);
            asked.bytes_max = bytes_max.saturating_sub(bytes as u32);
            let is_full = asked.rows_max == 0 || asked.bytes_max == 0 || chunk.is_damaged();
            // Each chunk has time anew, so slow shards get one each.
            let is_late = here != first && dispatcher.clock.monotonic() > half;
            if is_full || is_late || touched.bytes >= limits::CHUNK_BYTES_MAX.into() {
                break;
            }
            let place = (here, namespace);
            let timed = fetch::scan_into(dispatcher, place, &call, &asked, chunk).await?;
            let page = timed.answer?;
            time += timed.time;
            touched += page.touched;
            asked.after = page.resume_after;
            if asked.after.is_some() {
                break;
            }
            at = shards.next();
        }
        let answer = ChunkRead {
            touched,
            may_continue: at.is_some(),
        };
        (*shard, request.after) = (at.unwrap_or(*shard), asked.after);
        Ok(Timed { answer, time })
    }

    /// Returns the request for the next chunk of a range; `None` for a scan, or if the range is empty.
    pub(crate) fn next_range(&self) -> Option<RangeRequest> {
        let PageSource::Range { request, .. } = &self.source else {
            return None;
        };
        let (rows_max, bytes_max) = self.chunk_bounds();
        (!request.range.is_empty()).then(|| RangeRequest {
            rows_max,
            bytes_max,
            ..request.clone()
        })
    }

    /// Moves the range beyond the rows that were read.
    pub(crate) fn take_up(&mut self, page: &Page) -> ChunkRead {
        let may_continue = page.resume_after.is_some();
        if let (PageSource::Range { request, .. }, Some(last)) =
            (&mut self.source, &page.resume_after)
        {
            request.range = std::mem::take(&mut request.range).beyond(last, request.reverse);
        }
        ChunkRead {
            touched: page.touched,
            may_continue,
        }
    }

    fn chunk_bounds(&self) -> (u32, u32) {
        let Dispatcher {
            long_reads, store, ..
        } = &*self.dispatcher;
        let is_short =
            !self.is_continued && long_reads.has_threads() && store.capabilities().answers_at_once;
        let part = if is_short { FIRST_CHUNK_PART } else { 1 };
        let rows_max = u64::from(limits::CHUNK_ROWS_MAX / part);
        let bytes_max = u64::from(limits::CHUNK_BYTES_MAX / part);
        let rows_max = self.left.rows_max.min(rows_max) as u32;
        (rows_max, self.left.bytes_max.min(bytes_max) as u32)
    }

    /// Takes the text of a chunk and charges its rows. The last chunk settles the charge, because its end line has the
    /// charge of the whole page.
    pub(crate) fn encode(
        &mut self,
        read: ChunkRead,
        log: &RequestLog,
        charge: &mut Charge,
    ) -> Result<EncodedChunk, RequestError> {
        let mut written = self.chunk.take().map_err(|partition| {
            self.has_lost_rows = true;
            damaged(self.shard_of(partition))
        })?;
        self.is_continued = true;
        self.rows += written.rows;
        self.bytes += written.bytes;
        self.touched += read.touched;
        self.left.rows_max -= written.rows;
        self.left.bytes_max = self.left.bytes_max.saturating_sub(written.bytes);
        let work = ActualUsage {
            rows: self.touched.rows,
            read_bytes: self.touched.bytes,
            reads: 1,
            service_time: log.charged_time(),
            ..ActualUsage::default()
        };
        // A page that has cost too much ends as if it had reached a limit.
        let is_runaway = || charge.price_of(&work) >= self.dispatcher.limits.request_cost_max;
        let reason = match self.end_reason(read.may_continue) {
            None if is_runaway() => Some((EndReason::Limit, Some(EndCause::Cost))),
            reason => reason.map(|why| (why, None)),
        };
        match reason {
            Some(why) => {
                let charged = charge.settle(&work);
                self.write_end(why, charged, &mut written.text);
            }
            None => charge.progress(&work),
        }
        Ok(EncodedChunk {
            text: written.text.into(),
            is_last: reason.is_some(),
        })
    }

    fn end_reason(&self, may_continue: bool) -> Option<EndReason> {
        if !may_continue {
            Some(EndReason::Done)
        } else if self.left.rows_max == 0 {
            Some(EndReason::Limit)
        } else if self.left.bytes_max == 0 {
            Some(EndReason::Bytes)
        } else if self
            .deadline
            .is_some_and(|at| at.has_passed(self.dispatcher.clock.monotonic()))
        {
            Some(EndReason::Deadline)
        } else {
            None
        }
    }

    /// Returns the shard of a row that was read, by its partition, which only the rows of a scan name.
    fn shard_of(&self, partition: Bytes) -> ShardId {
        let map = &self.dispatcher.shard_map;
        match &self.source {
            PageSource::Range { request, .. } => map.locate(request.namespace, &request.partition),
            PageSource::Scan { request, .. } => PartitionKey::new(partition)
                .map_or(ShardId(0), |partition| {
                    map.locate(request.namespace, &partition)
                }),
        }
    }

    fn write_end(
        &self,
        (why, cause): (EndReason, Option<EndCause>),
        charged: RequestUnits,
        text: &mut Vec<u8>,
    ) {
        let cursor = (why != EndReason::Done).then(|| self.cursor()).flatten();
        let end = End {
            more: cursor.is_some(),
            cursor,
            why,
            cause,
            rows: self.rows,
            expired: self.touched.rows.saturating_sub(self.rows),
            bytes: self.bytes,
            ru: encode::ru(charged),
        };
        json_line::write(&mut *text, &EndLine { end })
            .expect("a buffer that grows takes every write");
        text.extend_from_slice(match self.layout() {
            Layout::Lines => b"\n",
            Layout::Array => b"]\n",
        });
    }

    fn cursor(&self) -> Option<String> {
        if self.has_lost_rows {
            return None;
        }
        match &self.source {
            PageSource::Range {
                namespace,
                request,
                selectors,
            } => Some(self.dispatcher.cursor_key.seal_range(&RangeCursor {
                namespace: *namespace,
                dataset: request.namespace,
                partition: Bytes::copy_from_slice(request.partition.as_bytes()),
                rest: request.range.clone(),
                reverse: request.reverse,
                selectors: selectors.digest(),
            })),
            PageSource::Scan {
                namespace,
                shard,
                request,
                segments,
                segment,
            } => Some(self.dispatcher.cursor_key.seal_scan(&ScanCursor {
                namespace: *namespace,
                dataset: request.namespace,
                segments: *segments,
                segment: *segment,
                shard: *shard,
                after: request.after.clone(),
            })),
        }
    }
}

/// Returns the hint that the bounds of a page give of its cost.
pub(crate) fn hint(bounds: &PageBounds) -> CostHint {
    CostHint {
        rows_max: Some(bounds.rows_max).filter(|&rows| rows < u64::MAX),
        // With `keys_only` the bound says nothing about the work: the values are read too.
        bytes_max: Some(bounds.bytes_max).filter(|_| !bounds.keys_only),
        ..CostHint::default()
    }
}
