//! Pages: rows of a range or scan, streamed chunk after chunk in constant memory.
//!
//! A chunk is one snapshot of the store and is encoded at once, so no snapshot is held while a
//! client reads. The next chunk is fetched when the connection asks for more, so a slow client
//! holds one encoded chunk and a client that leaves ends the walk. Every page ends with its `end`
//! line, or with an `error` line and a cut connection. Both lines have the cursor to continue with.

mod streaming;

use std::pin::pin;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use umbo_api::row::{RowFields, ValueField};
use umbo_api::stream::{End, EndLine, EndReason};
use umbo_http::cursor::{RangeCursor, ScanCursor};
use umbo_http::decode::{Layout, PageBounds};
use umbo_http::{RequestError, encode};
use umbo_quota::ActualUsage;
use umbo_routing::ShardMap;
use umbo_store::{Page, RangeRequest, RowBatch, RowRef, ScanRequest, Touched};
use umbo_types::{Deadline, RequestUnits, ShardId, limits};

use crate::charge::Charge;
use crate::dispatcher::Dispatcher;
use crate::phase::queue::with_permit;
use crate::request_log::RequestLog;
use crate::store_call::StoreCall;
use crate::store_call::{Answered, Timed};

/// Longest text of a chunk that room is kept for, in bytes: 256 KiB of rows and one more of 1 MiB, as
/// base64. Text of control characters alone, which is longer, is taken in beyond that.
pub(crate) const CHUNK_TEXT_LEN_MAX: usize =
    (limits::CHUNK_BYTES_MAX as usize + limits::VALUE_LEN_MAX) / 3 * 4;

/// Part of a chunk that the first one may be where the store works on the thread of the request, which others
/// wait for: about 100 µs.
const FIRST_CHUNK_PART: u32 = 4;

/// Where the rows come from; advanced as they are read.
#[derive(Debug)]
pub(crate) enum PageSource {
    /// A partition.
    Range {
        /// What is still to be read.
        request: RangeRequest,
        /// Digest of what was asked for, kept in cursors.
        selectors: u64,
    },
    /// A segment of a namespace.
    Scan {
        /// What is still to be read.
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
    layout: Layout,
    /// What gates are told of each chunk.
    call: StoreCall,
    /// Ends the page early; only where the client named a time.
    deadline: Option<Deadline>,
    rows: u64,
    bytes: u64,
    /// What was read for them.
    touched: Touched,
}

/// The rows of one chunk, and whether more may follow.
#[derive(Debug, Default)]
pub(crate) struct ChunkRows {
    page: Arc<Page>,
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
        Self {
            dispatcher,
            source,
            left: bounds,
            layout,
            call,
            deadline,
            rows: 0,
            bytes: 0,
            touched: Touched::default(),
        }
    }

    /// Returns how the rows are laid out.
    pub(crate) const fn layout(&self) -> Layout {
        self.layout
    }

    /// Reads the rows of the next chunk and moves the source beyond them.
    pub(crate) async fn read(&mut self) -> Result<Timed<ChunkRows>, RequestError> {
        let mut call = self.call.clone();
        if self.call.is_continued {
            // The first chunk had the time of the request, even if it held no row. From then on the
            // client's own time bounds the page and not the waiting for a permit.
            let now = self.dispatcher.clock.monotonic();
            call.entry.deadline = Deadline::after(now, self.dispatcher.limits.default_timeout);
        }
        let context = call.context();
        if let Some(request) = self.next_range() {
            let shard = self
                .dispatcher
                .shard_map
                .locate(request.namespace, &request.partition);
            let work = async {
                let page = self.dispatcher.store.range(&context, &request).await;
                Answered::new(&context, page)
            };
            let timed = with_permit(&self.dispatcher, shard, &call, pin!(work)).await?;
            let timed = timed.and_then(Arc::new)?;
            return Ok(timed.map(|page| self.take_up(page)));
        }
        let (rows_max, bytes_max) = self.chunk_bounds();
        let PageSource::Scan { request, .. } = &mut self.source else {
            let page = Arc::default();
            let may_continue = false;
            return Ok(Timed::untimed(ChunkRows { page, may_continue }));
        };
        (request.rows_max, request.bytes_max) = (rows_max, bytes_max);
        let shard = scanned(&self.dispatcher.shard_map, request);
        let work = async {
            let page = self.dispatcher.store.scan(&context, request).await;
            Answered::new(&context, page)
        };
        let timed = with_permit(&self.dispatcher, shard, &call, pin!(work)).await?;
        let (time, page) = (timed.time, timed.answer?);
        let may_continue = page.resume_after.is_some();
        request.after = page.resume_after;
        let page = Arc::new(Page {
            rows: page.rows,
            resume_after: None,
            touched: page.touched,
        });
        Ok(Timed {
            answer: ChunkRows { page, may_continue },
            time,
        })
    }

    /// Returns what to ask the store for the next chunk of a range; none for a scan, and where the
    /// range is empty.
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

    /// Moves a range beyond what was read of it.
    pub(crate) fn take_up(&mut self, page: Arc<Page>) -> ChunkRows {
        let may_continue = page.resume_after.is_some();
        if let (PageSource::Range { request, .. }, Some(last)) =
            (&mut self.source, &page.resume_after)
        {
            request.range = std::mem::take(&mut request.range).beyond(last, request.reverse);
        }
        ChunkRows { page, may_continue }
    }

    fn chunk_bounds(&self) -> (u32, u32) {
        let Dispatcher {
            long_reads, store, ..
        } = &*self.dispatcher;
        let is_short =
            !self.call.is_continued && long_reads.has_threads() && store.answers_at_once();
        let part = if is_short { FIRST_CHUNK_PART } else { 1 };
        let rows_max = u64::from(limits::CHUNK_ROWS_MAX / part);
        let bytes_max = u64::from(limits::CHUNK_BYTES_MAX / part);
        let rows_max = self.left.rows_max.min(rows_max) as u32;
        (rows_max, self.left.bytes_max.min(bytes_max) as u32)
    }

    /// Encodes the rows of a chunk and charges them; the last one settles the charge, because
    /// its end line says what the whole page was charged.
    pub(crate) fn encode(
        &mut self,
        chunk: &ChunkRows,
        log: &RequestLog,
        charge: &mut Charge,
    ) -> EncodedChunk {
        let rows = &chunk.page.rows;
        let mut text = BytesMut::with_capacity(rows.bytes() + rows.len() * 64 + 256);
        self.write_rows(rows, &mut text);
        // Whatever is read from here on is a part of the same request.
        self.call.is_continued = true;
        self.rows += rows.len() as u64;
        self.bytes += rows.bytes() as u64;
        self.touched += chunk.page.touched;
        self.left.rows_max -= rows.len() as u64;
        self.left.bytes_max = self.left.bytes_max.saturating_sub(rows.bytes() as u64);
        let work = ActualUsage {
            rows: self.touched.rows,
            read_bytes: self.touched.bytes,
            reads: 1,
            service_time: log.charged_time(),
            ..ActualUsage::default()
        };
        let reason = self.end_reason(chunk.may_continue);
        match reason {
            Some(why) => {
                let charged = charge.settle(&work);
                self.write_end(why, charged, &mut text);
            }
            None => charge.progress(&work),
        }
        EncodedChunk {
            text: text.freeze(),
            is_last: reason.is_some(),
        }
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

    fn write_rows(&self, rows: &RowBatch, text: &mut BytesMut) {
        let is_scan = matches!(self.source, PageSource::Scan { .. });
        let keys_only = self.left.keys_only;
        if self.layout == Layout::Array && !self.call.is_continued {
            text.put_u8(b'[');
        }
        for row in rows.iter() {
            text.put_u8(b'{');
            row_fields(&row, is_scan, keys_only).write(text);
            text.put_slice(match self.layout {
                Layout::Lines => b"}\n",
                Layout::Array => b"},\n",
            });
        }
    }

    fn write_end(&self, why: EndReason, charged: RequestUnits, text: &mut BytesMut) {
        let cursor = (why != EndReason::Done).then(|| self.cursor()).flatten();
        let end = End {
            more: cursor.is_some(),
            cursor,
            why,
            rows: self.rows,
            bytes: self.bytes,
            ru: encode::ru(charged),
        };
        serde_json::to_writer(text.writer(), &EndLine { end })
            .expect("a buffer that grows takes every write");
        text.put_slice(match self.layout {
            Layout::Lines => b"\n",
            Layout::Array => b"]\n",
        });
    }

    fn cursor(&self) -> Option<String> {
        match &self.source {
            PageSource::Range { request, selectors } => {
                Some(self.dispatcher.cursor_key.seal_range(&RangeCursor {
                    namespace: request.namespace,
                    partition: Bytes::copy_from_slice(request.partition.as_bytes()),
                    rest: request.range.clone(),
                    reverse: request.reverse,
                    selectors: *selectors,
                }))
            }
            PageSource::Scan {
                request,
                segments,
                segment,
            } => {
                let after = request.after.clone()?;
                Some(self.dispatcher.cursor_key.seal_scan(&ScanCursor {
                    namespace: request.namespace,
                    segments: *segments,
                    segment: *segment,
                    after,
                }))
            }
        }
    }
}

/// Returns the shard that a scan reads next. It may go on to others in the same chunk.
fn scanned(map: &ShardMap, request: &ScanRequest) -> ShardId {
    let after = request.after.as_ref().map(|after| after.shard);
    let first = || map.owners_of(request.slots.clone()).first().copied();
    after.or_else(first).unwrap_or(ShardId(0))
}

/// Returns the fields of a row as the wire has them.
pub(crate) fn row_fields<'a>(
    row: &RowRef<'a>,
    with_partition: bool,
    keys_only: bool,
) -> RowFields<'a> {
    RowFields {
        partition: with_partition.then_some(row.partition),
        sort: row.sort,
        version: row.version.0,
        expires_at: row.expires_at.map(umbo_types::Timestamp::as_millis),
        content_type: row.content_type,
        content_encoding: row.content_encoding,
        value: if keys_only {
            ValueField::Len(row.value_len.into())
        } else {
            ValueField::Bytes(row.value)
        },
    }
}
